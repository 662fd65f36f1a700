"""Leaderships handed over: because this broker's disk is slow or full, or because it stops in order.

A broker whose sync takes a second hands its groups to voters whose last sync took less than a quarter of
that, and stands after all others until its disk is well again: only if nobody else can be elected, as
when what was committed is on bad disks only. Brokers that share one slow disk keep what they have.
While a sync hangs nothing that promises can leave, so then it just resigns: the next heartbeats' digests
tell the others. A sync that hangs for long ends the process.

A full disk takes no records, so it counts as the slowest of all, here and in what others are told; only
groups that may use its reserve stay. If nobody is better off any more, all are as good as before: what
can't be written can be read. Called by node.py.
"""

from collections.abc import Callable, Iterable

from dmq.broker.multiraft.links import PeerLinks
from dmq.broker.multiraft.replica import Replica
from dmq.errors import FatalStorageError
from dmq.types import Voter

WELL = 4
"""A voter's sync must be so many times quicker than ours to get our groups, and ours so many times
quicker than `slow_ms` before we stand again: else leaderships would come and go."""


FORGET = 2
"""After so many times `slow_ms` without a sync the disk counts as well."""
FULL_MS = 1 << 20
"""What a full disk counts as."""
LEAVING_MS = 1 << 21
"""What a broker counts as that stops: nobody gives it anything, for it would stand for nothing."""


class DiskWatch:
    """How long syncs take, whether there is room, and what follows from it."""

    __slots__ = (
        "_began_at",
        "_ended_at",
        "_handed_at",
        "_is_full",
        "_is_leaving",
        "_last_ms",
        "_refused_at",
        "_slow_ms",
        "_stuck_ms",
    )

    def __init__(self, slow_ms: int, stuck_ms: int, is_full: Callable[[], bool]) -> None:
        self._is_full = is_full
        self._is_leaving = False
        self._slow_ms = slow_ms
        self._stuck_ms = stuck_ms
        self._began_at: int | None = None
        self._ended_at = 0
        self._last_ms = 0
        self._refused_at: int | None = None
        self._handed_at: int | None = None

    def began(self, now: int) -> None:
        self._began_at = now

    def ended(self, now: int) -> None:
        if self._began_at is not None:
            self._last_ms = max(now - self._began_at, 0)
            self._began_at, self._ended_at = None, now

    def leave(self) -> None:
        """This broker stops: whatever the disk is like, it takes no leadership any more."""
        self._is_leaving = True

    def refused(self, now: int) -> None:
        """The disk had no room for a batch, whatever it said of its free space."""
        self._refused_at = now

    def paused(self, now: int) -> None:
        """We were stopped: nobody knows how long the disk took."""
        if self._began_at is not None:
            self._began_at = now

    def age_ms(self, now: int) -> int:
        """Of the last sync, or of the one under way if that takes longer already."""
        if self._is_leaving:
            return LEAVING_MS
        return FULL_MS if self._takes_nothing(now) else self._sync_ms(now)

    def _takes_nothing(self, now: int) -> bool:
        at = self._refused_at
        return self._is_full() or (at is not None and now - at < FORGET * self._slow_ms)

    def _sync_ms(self, now: int) -> int:
        if self._began_at is not None:
            return max(self._last_ms, now - self._began_at)
        # An idle broker does not sync: a slow one in the past says little about the next.
        return self._last_ms if now - self._ended_at < FORGET * self._slow_ms else 0

    def look(self, now: int, links: PeerLinks, replicas: Iterable[Replica]) -> None:
        """Hand over if our disk is bad and others' are not. Raises FatalStorageError if stuck."""
        age, sync_ms = self.age_ms(now), self._sync_ms(now)
        is_hanging = self._began_at is not None
        if is_hanging and sync_ms >= self._stuck_ms:
            raise FatalStorageError(f"a sync has not returned for {sync_ms} ms")
        if not links.raft.is_fit and not is_hanging and age * WELL < self._slow_ms:
            self._recover(now, links, replicas)
        elif age >= self._slow_ms and self._is_due(now):
            better = [v for v, x in links.by_peer.items() if x.is_live and x.sync_ms * WELL < age]
            if better:
                self._handed_at = now
                links.raft.is_fit = False
                self._give_all(replicas, better, now)
            elif age == FULL_MS and not links.raft.is_fit:
                self._recover(now, links, replicas)

    def _give_all(self, replicas: Iterable[Replica], better: list[Voter], now: int) -> None:
        is_hanging, is_full = self._began_at is not None, self._takes_nothing(now)
        for replica in replicas:
            stays = is_full and not is_hanging and replica.settings.log.may_use_reserve
            if replica.is_leader and not stays:
                _give(replica, better, now, is_hanging=is_hanging)

    def _is_due(self, now: int) -> bool:
        return self._handed_at is None or now - self._handed_at >= self._slow_ms

    def _recover(self, now: int, links: PeerLinks, replicas: Iterable[Replica]) -> None:
        links.raft.is_fit = True
        self._handed_at = None
        for replica in replicas:
            if replica.leader is None:
                replica.restart(now)


def _give(replica: Replica, better: list[Voter], now: int, *, is_hanging: bool) -> None:
    heirs = [voter for voter in replica.core.voters if voter in better]
    if not heirs:
        return
    replica.count("handed over, bad disk")
    if is_hanging:
        replica.resign(now)
    else:
        replica.transfer(min(heirs, key=lambda voter: replica.core.has_failed(voter, now)), now)


class Farewell:
    """An orderly end: every group that is ours goes to another voter, and we know that it has it."""

    def __init__(self, links: PeerLinks) -> None:
        links.raft.is_leaving = True
        self._links = links
        self._given: dict[Replica, None] = {}

    def left(self, replicas: Iterable[Replica], now: int) -> int:
        """Give what is ours to its best live voter; how many groups are not in other hands yet.

        Call again until that is 0 or patience ends. Who is elected is known a little later than
        that we lead no more: until then we could send our clients to nobody.
        """
        for replica in replicas:
            heirs = self._heirs(replica)
            if replica.is_leader and heirs:
                self._given[replica] = None
                if replica.core.can_append:
                    replica.transfer(best_heir(replica, heirs, now), now)
        return sum(not _is_elsewhere(r) and bool(self._heirs(r)) for r in self._given)

    def _heirs(self, replica: Replica) -> list[Voter]:
        """Voters that can be heard and do not stop themselves."""
        links = self._links.by_peer
        return [
            voter
            for voter in replica.core.voters
            if voter in links and links[voter].is_live and links[voter].sync_ms < LEAVING_MS
        ]


def best_heir(replica: Replica, heirs: list[Voter], now: int) -> Voter:
    """One that did not fail lately, and of those who has most; one that failed if there is no other:
    what it lacked, it may have now."""
    core, matches = replica.core, replica.core.matches()
    return max(heirs, key=lambda voter: (not core.has_failed(voter, now), matches[voter]))


def _is_elsewhere(replica: Replica) -> bool:
    return replica.is_retired or (not replica.is_leader and replica.core.leader is not None)
