"""What two brokers tell each other of themselves: heartbeats with digests, and tables when they differ.

Owns the rules: a digest that differs twice brings the lists; a group whose believed leader does not claim
it is leaderless at once; a follower that does not know its leader is reminded; a peer's answer to a
heartbeat renews our leases with it only if it follows us wherever we lead it. A peer that we don't
hear may hear us, and can't ask: it is told the list unasked. Lists that did not
help are not sent again at once: one side may lack a group that the metadata have not brought yet. Long
lists are sent less often: while a broker that was started again opens thousands of groups, the digests
differ with every heartbeat, and the lists would be all that is done.
Called by node.py.
"""

from collections.abc import Callable
from typing import NamedTuple

from dmq.broker.multiraft.frames import Digest, GroupKey, Heartbeat, Table
from dmq.broker.multiraft.links import Link, PeerLinks
from dmq.broker.multiraft.replica import Replica
from dmq.broker.multiraft.sending import Sender
from dmq.broker.multiraft.tables import Tables

Find = Callable[[GroupKey], Replica | None]

GROUPS_PER_MS = 4
"""Lists of so many groups may be exchanged once in a millisecond: about a tenth of the time is theirs."""


class Verdict(NamedTuple):
    """What a table says of one group: its sender leads it in this epoch, or has no part in it."""

    replica: Replica
    epoch: int | None


class Talk:
    """See the module."""

    def __init__(
        self,
        links: PeerLinks,
        tables: Tables,
        sender: Sender,
        again_ms: int,
        count: Callable[[str], None],
    ) -> None:
        self._links = links
        self._tables = tables
        self._sender = sender
        self._again_ms = again_ms
        self._count = count

    def beat(self, link: Link, sync_ms: int, now: int) -> None:
        leads, follows = self._tables.leads(link.peer), self._tables.follows(link.peer)
        self._sender.beat(link, Heartbeat(now, link.echo, sync_ms, leads, follows))
        if not link.is_live and self._is_worth_a_list(link, (leads, follows), now):
            # Else a follower of ours that we don't hear would hold on to us after we gave up.
            self._sender.table(link, self._tables.table(link.peer, now, wants_reply=False))
            self._count("told unasked")

    def introduce(self, link: Link, now: int) -> None:
        """A session began: all that we lead and follow."""
        self._sender.table(link, self._tables.table(link.peer, now, wants_reply=False))

    def on_heartbeat(self, link: Link, beat: Heartbeat, now: int) -> None:
        link.echo = beat.sent_at
        link.sync_ms = beat.sync_ms
        leads, follows = self._tables.leads(link.peer), self._tables.follows(link.peer)
        if beat.follows == leads:
            self._links.renew_lease(link, beat.echo)
        if (beat.follows, beat.leads) == (leads, follows):
            link.mismatches = 0
            return
        link.mismatches += 1
        if link.mismatches < 2:
            return
        if self._is_worth_a_list(link, (beat.follows, beat.leads, leads, follows), now):
            self._sender.table(link, self._tables.table(link.peer, now, wants_reply=True))
            self._count("digest mismatch")

    def _is_worth_a_list(self, link: Link, digests: tuple[Digest, ...], now: int) -> bool:
        """Whether the last list was sent long enough ago, or said something else. Notes that one is."""
        pause_ms = self._again_ms
        if digests != link.exchanged_digests:
            pause_ms = min(pause_ms, sum(digest.groups for digest in digests) // GROUPS_PER_MS)
        if now - link.exchanged_at < pause_ms:
            return False
        link.exchanged_at, link.exchanged_digests = now, digests
        return True

    def on_table(self, link: Link, table: Table, find: Find, now: int) -> list[Verdict]:
        """What groups must hear after this, in order. A list that a heartbeat has overtaken tells
        nothing: what is not on it may be led by its sender since, who counts on us."""
        peer = link.peer
        if table.wants_reply:
            self._sender.table(link, self._tables.table(peer, now, wants_reply=False))
        if table.sent_at < link.echo:
            self._count("list overtaken")
            return []
        leads, follows = dict(table.leads), dict(table.follows)
        verdicts = [
            Verdict(replica, None)
            for replica in self._tables.followed(peer)
            if replica.key not in leads
        ]
        for replica in self._tables.led(peer):
            if follows.get(replica.key) != replica.core.epoch:
                verdicts.append(Verdict(replica, None))
        for key, epoch in table.leads:
            found = find(key)
            if found is not None and found.stance != (epoch, (peer,), False):
                verdicts.append(Verdict(found, epoch))
        return verdicts
