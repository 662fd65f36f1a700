"""Reads that must be the newest: answered when no other leader can have been before they were asked.

    the lease stood when it was asked     at once (SPEC §5)
    it did not                            when a majority has answered a heartbeat that says so after all:
                                          one sent within the lease's time before the question or later,
                                          or later only, if an heir was told to stand and leases are void
    the leadership of that epoch is over  NOT_LEADER_OR_FOLLOWER
    nobody answers                        REQUEST_TIMED_OUT

In health nobody waits. A leader that is cut off soon has no lease, and tells its readers when it resigns.
A read is judged by the time that it was asked at: what it was shown need only have been the newest then.
Never looks at a log; node.py says what happened.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from dmq.broker.multiraft.links import PeerLinks
from dmq.broker.multiraft.replica import Replica
from dmq.broker.multiraft.waiting import OnAppended
from dmq.errors import ErrorCode


class Read(NamedTuple):
    """Somebody who read from a leader of `epoch`, at this time."""

    epoch: int
    asked_at: int
    callback: OnAppended


class Reads:
    """All reads of this broker that wait; see the module."""

    def __init__(self, links: PeerLinks, patience_ms: int, count: Callable[[str], None]) -> None:
        self._links = links
        self._patience_ms = patience_ms
        self._count = count
        self._waiting: dict[Replica, deque[Read]] = {}
        """In the order of asking: what does not let the first one go keeps the others too."""

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def is_newest(self, replica: Replica, asked_at: int) -> bool:
        """Whether nobody else can have led this group before `asked_at`, at which we did."""
        core = replica.core
        lease_ms = self._links.settings.lease_ms if core.may_lease else 0
        since = max(asked_at - lease_ms, replica.led_at)
        return core.is_leader and self._links.have_answered(core.voters, since)

    def ask(self, replica: Replica, read: Read) -> None:
        """Call back when it is known; at once if it is."""
        core = replica.core
        if not core.is_leader or core.epoch != read.epoch:
            read.callback(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif self.is_newest(replica, read.asked_at):
            read.callback(ErrorCode.NONE)
        else:
            self._count("read waits for a round")
            self._waiting.setdefault(replica, deque()).append(read)

    def renewed(self) -> None:
        """A peer answered a heartbeat."""
        for replica in list(self._waiting):
            for read in self._take(replica, partial(self._is_known, replica)):
                read.callback(ErrorCode.NONE)

    def _is_known(self, replica: Replica, read: Read) -> bool:
        return self.is_newest(replica, read.asked_at)

    def look(self, replica: Replica) -> None:
        """Something happened to it: perhaps it leads no more, or in another epoch."""
        if replica not in self._waiting:
            return
        core = replica.core
        for read in self._take(replica, lambda r: not core.is_leader or core.epoch != r.epoch):
            self._count("leadership lost under a read")
            read.callback(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def expire(self, now: int) -> None:
        """Time passed: who waited for too long is told so."""
        until = now - self._patience_ms
        for replica in list(self._waiting):
            for read in self._take(replica, lambda r: r.asked_at <= until):
                self._count("read timed out")
                read.callback(ErrorCode.REQUEST_TIMED_OUT)

    def retire(self, replica: Replica, code: ErrorCode) -> None:
        """It is gone from here."""
        for read in self._take(replica, lambda r: True):
            read.callback(code)

    def _take(self, replica: Replica, is_due: Callable[[Read], bool]) -> list[Read]:
        """Those that are due, first come first: who is told may ask again."""
        waiting = self._waiting.get(replica)
        taken: list[Read] = []
        while waiting and is_due(waiting[0]):
            taken.append(waiting.popleft())
        if not waiting:
            self._waiting.pop(replica, None)
        return taken
