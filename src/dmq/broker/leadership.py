"""Who leads what, told and heard: this broker's part in the table of leaders.

Looks at local replicas after they changed, claims in the table what they lead, and tells the other
brokers: changes of leaders with the end of the turn that made them, changes of the in-sync replicas
now and then. What others say goes into the table. Whoever asks for a partition's leader gets the
higher epoch of what the table and the local replica know. Called by the runtime and the service.
"""

import logging
from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from dmq.broker.answer import Answer
from dmq.broker.leaders import LeaderTable
from dmq.broker.multiraft.node import GroupNode
from dmq.broker.multiraft.replica import Replica
from dmq.broker.peers import Peers
from dmq.broker.replicas import Replicas
from dmq.broker.roll_call import RollCall
from dmq.types import METADATA_TOPIC_ID, NO_EPOCH, NO_LEADER

log = logging.getLogger("dmq.broker")

LEADERS, TELL_ALL = "leaders", "tell-leaders"
"""Verbs between brokers."""
MOVING_MS = 500
"""So long after a leadership left us its next owner should be known, if it was handed over."""
PRUNE_MS = 30_000
"""A topic that the metadata do not know for so long was deleted; one that is new is known before."""


class Led(NamedTuple):
    """A partition's leader and its in-sync replicas, as far as this broker knows."""

    leader: int
    epoch: int
    isr: tuple[int, ...]


NOBODY = Led(NO_LEADER, NO_EPOCH, ())


class Leadership:
    """See the module."""

    def __init__(
        self,
        node: GroupNode,
        replicas: Replicas,
        peers: Peers | None,
        now: Callable[[], int],
    ) -> None:
        self._node = node
        self._replicas = replicas
        self._peers = peers
        self._now = now
        self.roll_call = RollCall(peers)
        self._table: LeaderTable | None = None
        self._node_id = node.me.node
        self._changed: dict[Replica, None] = {}
        """Leaders whose in-sync replicas may have changed."""
        self._turned: dict[Replica, None] = {}
        """Replicas that became leaders, or no longer are."""
        self._waiting: list[tuple[Callable[[], bool], Callable[[], None]]] = []
        self._strangers: set[UUID] = set()
        """Topics that the metadata did not know when the table was pruned last."""
        self._prune_at = 0
        node.on_look = self._looked
        if peers is not None:
            peers.serve(LEADERS, self._hear)
            peers.serve(TELL_ALL, self._tell_all)
            peers.watch(self._link_changed)

    def begin(self, life: int) -> None:
        """This broker is registered, with this epoch."""
        self._table = LeaderTable(self._node_id, life)
        if self._peers is not None:
            for node in self._peers.linked():
                self._link_changed(node, True)

    # --- ours --------------------------------------------------------------------------------

    def _looked(self, replica: Replica, has_turned: bool) -> None:
        if replica.key.topic_id != METADATA_TOPIC_ID:
            if has_turned:
                self._turned[replica] = None
            elif replica.is_leader and len(replica.known_members):
                self._changed[replica] = None

    def turn_ended(self) -> None:
        """Tell at once who leads."""
        if self._turned and self._table is not None:
            turned, self._turned = self._turned, {}
            self._claim(turned)
            self._tell()

    def tick(self, now: int) -> None:
        """Tell who is in sync."""
        table = self._table
        if table is None:
            return
        if self._changed:
            changed, self._changed = self._changed, {}
            self._claim(changed)
            self._tell()
        if self._peers is not None:
            for node in table.wanting:
                self._peers.cast(node, TELL_ALL, b"")
        if now >= self._prune_at:
            self._prune_at = now + PRUNE_MS
            self._prune(table)
            self._let_go(table)

    def _prune(self, table: LeaderTable) -> None:
        """Forget deleted topics of which somebody spoke after we had forgotten them."""
        topics = table.topics()
        before, self._strangers = self._strangers, topics - self._replicas.by_id.keys()
        gone = before & self._strangers
        if gone:
            table.prune(topics - gone)

    def _let_go(self, table: LeaderTable) -> None:
        """Logs of replicas that were moved away while this broker was down: no topic wants them here,
        and whoever leads them now goes on without us. Metadata alone are not believed: they may be
        older than the move that brought the replica here."""
        for key in self._node.unclaimed:
            local, led = self._replicas.by_id.get(key.topic_id), table.get(*key)
            if local is None or led is None or key.partition in local.wanted:
                continue
            if led.leader != NO_LEADER and self._node_id not in (led.leader, *led.voters):
                log.info("%s-%d was moved away: its files go", local.name, key.partition)
                self._node.leave_group(*key)

    def _claim(self, replicas: dict[Replica, None]) -> None:
        table, now = self._table, self._now()
        assert table is not None
        for replica in replicas:
            key = replica.key
            if replica.is_retired or not replica.is_leader:
                table.lost(*key)
            else:
                isr = [voter.node for voter in replica.in_sync(now)]
                voters = tuple(voter.node for voter in replica.core.voters)
                table.leads(*key, replica.leader_epoch, isr, voters)

    def _tell(self) -> None:
        assert self._table is not None
        for frame in self._table.take_delta():
            if self._peers is not None:
                for node in self._peers.linked():
                    self._peers.cast(node, LEADERS, frame)
        self._wake()

    def forget(self, topic_id: UUID, partitions: int) -> None:
        """A topic was deleted."""
        if self._table is not None:
            for index in range(partitions):
                self._table.forget(topic_id, index)

    # --- others' -----------------------------------------------------------------------------

    def _hear(self, node: int, body: bytes) -> Answer[bytes]:
        """Raises ProtocolError."""
        if self._table is not None:
            self._table.apply(node, body)
            self._wake()
        return Answer.of(b"")

    def _tell_all(self, node: int, body: bytes) -> Answer[bytes]:
        if self._table is not None and self._peers is not None:
            for frame in self._table.full():
                self._peers.cast(node, LEADERS, frame)
        return Answer.of(b"")

    def _link_changed(self, node: int, is_linked: bool) -> None:
        if self._table is None or self._peers is None:
            return
        if is_linked:
            self._tell_all(node, b"")
            self._peers.cast(node, TELL_ALL, b"")
        else:
            self._table.died(node)

    # --- asking ------------------------------------------------------------------------------

    def of(self, topic_id: UUID, index: int) -> Led:
        """A partition's leader, by the highest epoch that is known here."""
        known = None if self._table is None else self._table.get(topic_id, index)
        led = NOBODY if known is None else Led(known.leader, known.epoch, known.isr)
        local = self._replicas.by_id.get(topic_id)
        partition = None if local is None else local.partitions.get(index)
        if partition is None:
            return led
        replica = partition.replica
        if replica.is_leader:
            isr = led.isr if led.epoch == replica.leader_epoch and led.isr else None
            if isr is None:
                isr = tuple(voter.node for voter in replica.in_sync(self._now()))
            return Led(self._node_id, replica.leader_epoch, isr)
        if replica.leader_epoch > led.epoch or led.leader == self._node_id:
            leader = replica.leader
            node = NO_LEADER if leader is None else leader.node
            return Led(node, replica.leader_epoch, led.isr or (() if leader is None else (node,)))
        return led

    def is_moving(self, replica: Replica) -> bool:
        """Whether its leadership is leaving us, or left us just now, and nobody has it yet."""
        if replica.core.is_leader:
            return not replica.core.can_append
        left_at = replica.left_at
        if left_at is None or self._now() - left_at >= MOVING_MS:
            return False
        return self.of(*replica.key).leader in (NO_LEADER, self._node_id)

    def when(self, condition: Callable[[], bool], callback: Callable[[], None]) -> None:
        """Call when `condition` holds; it is looked at after every change of leaders."""
        if condition():
            callback()
        else:
            self._waiting.append((condition, callback))

    def _wake(self) -> None:
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for entry in waiting:
                if entry[0]():
                    entry[1]()
                else:
                    self._waiting.append(entry)

    def give_up(self, callback: Callable[[], None]) -> bool:
        """Wait no longer; whether it was still waited for."""
        before = len(self._waiting)
        self._waiting = [entry for entry in self._waiting if entry[1] != callback]
        return len(self._waiting) < before
