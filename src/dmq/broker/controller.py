"""What a broker does for the cluster by itself, as far as it leads: the metadata's voters, partitions on
the move, leaderships that belong to others.

Every broker runs one. Whoever leads the metadata moves its voters towards `targets.metadata_voters`
and lets go of brokers that have left; whoever leads a partition moves its voters where the metadata
want them, tells when that is done, and gives the leadership to the preferred replica when that is well.
`tick` does a bounded piece of work; changes of the metadata come by `changed`. Never blocks, no clock.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

from dmq.broker.answer import Answer
from dmq.broker.host import MachineHost
from dmq.broker.multiraft.links import PeerLinks
from dmq.broker.multiraft.replica import Replica
from dmq.broker.multiraft.turn import NodeSettings
from dmq.broker.partition import Partition
from dmq.broker.replicas import Replicas
from dmq.errors import DmqError, KafkaError
from dmq.machines.commands import ReassignmentDone, UnregisterBroker
from dmq.machines.machine import Command
from dmq.machines.records import Order
from dmq.machines.state import ClusterState
from dmq.machines.targets import finished, group_target, may_leave, metadata_voters
from dmq.types import Voter

R = TypeVar("R")

log = logging.getLogger("dmq.broker")

CHECK_MS = 500
"""Between looks at the metadata's voters and at partitions on the move."""
HANDOVERS_MAX = 50
"""Leaderships given back per look: clients must find each new leader."""
SLOW_SYNC_MS = NodeSettings().slow_sync_ms
"""A broker whose sync is this old hands over what it leads: nothing is given back to it."""


class Submit(Protocol):
    def __call__(self, command: Command[R]) -> Answer[R]: ...


class Controller:
    """See the module."""

    def __init__(
        self,
        me: Voter,
        state: Callable[[], ClusterState],
        metadata: MachineHost,
        replicas: Replicas,
        links: PeerLinks,
        submit: Submit,
        preferred_ms: Callable[[], int | None],
    ) -> None:
        """`state`: what is committed of the metadata. `preferred_ms`: how long a preferred replica must
        be well before it leads; None: never."""
        self._me = me
        self._state = state
        self._metadata = metadata
        self._replicas = replicas
        self._links = links
        self._submit = submit
        self._preferred_ms = preferred_ms
        self._look_at = 0
        self._said: dict[tuple[Any, ...], Answer[Any]] = {}
        """Commands under way, so that none is given twice at a time."""
        self._well_since: dict[int, int] = {}
        """By broker: since when its link has been up without a break."""

    # --- targets -----------------------------------------------------------------------------

    def changed(self, now: int) -> None:
        """Brokers came, left or changed their disks: every group may want other voters."""
        self._aim_metadata(now)
        for local in self._replicas.by_id.values():
            self.aim(local.partitions.values(), now)

    def aim(self, partitions: Iterable[Partition], now: int) -> None:
        """Tell groups which voters the metadata want."""
        state = self._state()
        for partition in partitions:
            placed = state.partition(partition.topic_id, partition.index)
            if placed is not None and placed.order is not None:
                self._obey(partition, placed.order, now)
            target = group_target(state, partition.topic_id, partition.index)
            if target and target != partition.replica.target:
                partition.replica.set_target(target, now)

    def _obey(self, partition: Partition, order: Order, now: int) -> None:
        """An operator said who goes on with this partition alone."""
        if not partition.replica.ordered(order.leader, order.epoch, now, order.epoch_seen):
            log.warning(
                "%s-%d can't go on here from epoch %d, as was ordered: order it again",
                partition.topic,
                partition.index,
                order.epoch,
            )

    def _aim_metadata(self, now: int) -> None:
        replica = self._metadata.replica
        if not replica.is_leader:
            return
        live = {self._me.node, *self._live_nodes()}
        target = metadata_voters(self._state(), replica.core.voters, live, self._me.node)
        if (target.voters, target.observers) != (replica.target, replica.observers):
            log.info(
                "the metadata are to have the voters %s and the observers %s",
                [voter.node for voter in target.voters],
                [voter.node for voter in target.observers],
            )
            replica.set_target(target.voters, now, target.observers)

    def _live_nodes(self) -> list[int]:
        return [voter.node for voter, link in self._links.by_peer.items() if link.is_live]

    # --- time --------------------------------------------------------------------------------

    def tick(self, now: int) -> None:
        if now < self._look_at:
            return
        self._look_at = now + CHECK_MS
        self._said = {key: answer for key, answer in self._said.items() if not answer.is_done}
        self._note_links(now)
        self._aim_metadata(now)
        self._let_go()
        self._finish_moves()
        self._prefer(now)

    def _note_links(self, now: int) -> None:
        live = self._live_nodes()
        self._well_since = {node: self._well_since.get(node, now) for node in live}

    def _let_go(self) -> None:
        replica = self._metadata.replica
        if replica.is_leader:
            voters = [voter.node for voter in replica.core.voters]
            for node in may_leave(self._state(), voters):
                self._say(("leave", node), UnregisterBroker(node))

    def _finish_moves(self) -> None:
        state = self._state()
        for topic_id, index in list(state.moving):
            local = self._replicas.by_id.get(topic_id)
            partition = None if local is None else local.partitions.get(index)
            if partition is None or not partition.is_serving:
                continue
            core = partition.replica.core
            if core.marks.last.offset > core.commit.offset or core.commit[:2] < core.end[:2]:
                continue  # The last change of voters is not committed yet.
            done = finished(state, topic_id, index, core.voters)
            if done is not None:
                self._finish(partition, done)

    def _finish(self, partition: Partition, done: ReassignmentDone) -> None:
        """Say that a move is done, once it is known that nobody leads with other voters since: on our
        word those that are left out give their logs up."""
        asked = ("asked", done.topic_id, done.partition)
        if asked in self._said:
            return
        self._said[asked] = answer = partition.newest()

        def known(newest: Answer[None]) -> None:
            try:
                newest.get()
            except KafkaError:
                return  # Whoever leads now says it.
            self._say(("done", done.topic_id, done.partition), done)

        answer.on_done(known)

    def _say(self, key: tuple[Any, ...], command: Command[Any]) -> None:
        if key not in self._said:
            self._said[key] = answer = self._submit(command)
            answer.on_done(lambda done: _log_failure(command, done))

    def _prefer(self, now: int) -> None:
        """Give leaderships back to those that the metadata name first."""
        wait_ms = self._preferred_ms()
        if wait_ms is None:
            return
        left = HANDOVERS_MAX
        for local in self._replicas.by_id.values():
            for partition in local.partitions.values():
                if not partition.is_leader or len(partition.replica.target) < 2:
                    continue
                first = partition.replica.target[0]
                since = self._well_since.get(first.node)
                if first == self._me or since is None or now - since < wait_ms:
                    continue
                if self._may_lead(partition.replica, first, now):
                    left -= partition.replica.transfer(first, now)
                    if not left:
                        return

    def _may_lead(self, replica: Replica, first: Voter, now: int) -> bool:
        """Producers wait while a leadership is handed over: not again and again for one that can't.
        One whose disk is slow or full says so, and so does one that stops: it would give it back.
        """
        link = self._links.by_peer.get(first)
        if link is None or link.sync_ms >= SLOW_SYNC_MS:
            return False
        return first in replica.in_sync(now) and not replica.core.has_failed(first, now)


def _log_failure(command: Command[Any], done: Answer[Any]) -> None:
    try:
        done.get()
    except DmqError as error:
        kind = type(command).__name__
        level = logging.DEBUG if isinstance(command, ReassignmentDone) else logging.INFO
        log.log(level, "%s was not done and is tried again: %s", kind, error)
