"""The verb `elect_leaders`: leaderships moved on demand (ElectLeaders of the Kafka protocol).

A preferred election asks the partition's leader, wherever it is, to hand over to the first of its
replicas, and is done when the table of leaders says so. Many are asked at once, each by itself.
An unclean one is an operator's order, for a partition that too few of its voters are left of: the best
survivor goes on alone, from an epoch that the metadata remember; records that only the lost had are lost.
If every replica can be asked and none has a log, all of it is lost, and one of them begins anew.
"""

import logging
import struct
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol
from uuid import UUID

from dmq.broker.answer import Answer, when_all
from dmq.broker.elections import PREFERRED, Elected
from dmq.broker.leadership import Leadership
from dmq.broker.peers import Peers
from dmq.broker.replicas import Replicas
from dmq.broker.timers import Timers
from dmq.errors import DmqError, ErrorCode, ProtocolError
from dmq.machines.commands import Done, RecoverPartition
from dmq.machines.state import ClusterState, PartitionState
from dmq.types import NO_LEADER, Position, Voter

log = logging.getLogger("dmq.broker")

TRANSFER, POSITION = "transfer", "position"
"""Verbs between brokers."""
EPOCH_LEAP = 1000
"""Those who are lost may have held elections that no survivor heard of; not so many."""
_BODY = struct.Struct(">16sIi")  # topic, partition, node
_POSITION = struct.Struct(">i16siiiq")  # node, directory, epoch; the end of the log
_YES, _NO = b"\x01", b"\x00"
NO_EPOCH = -1
"""Where the end of a log is that is not there."""


class Submit(Protocol):
    def __call__(self, command: RecoverPartition) -> Answer[Done]: ...


class Electing:
    """See the module."""

    def __init__(
        self,
        node_id: int,
        state: Callable[[], ClusterState],
        replicas: Replicas,
        leadership: Leadership,
        peers: Peers | None,
        timers: Timers,
        now: Callable[[], int],
        submit: Submit,
    ) -> None:
        self._node_id = node_id
        self._state = state
        self._replicas = replicas
        self._leadership = leadership
        self._peers = peers
        self._timers = timers
        self._now = now
        self._submit = submit
        if peers is not None:
            peers.serve(TRANSFER, self._serve)
            peers.serve(POSITION, self._tell_position)

    def elect(
        self, kind: int, partitions: list[tuple[str, int]] | None, timeout_ms: int
    ) -> Answer[list[Elected]]:
        """Elect leaders of these partitions, of all for None; each succeeds or fails by itself."""
        wanted = self._everything() if partitions is None else partitions
        answers = [self._one(kind, topic, index, timeout_ms) for topic, index in wanted]
        result: Answer[list[Elected]] = Answer()

        def all_done() -> None:
            found = [answer.get() for answer in answers]
            if partitions is None:
                found = [one for one in found if one.code is not ErrorCode.ELECTION_NOT_NEEDED]
            result.resolve(found)

        when_all(answers, all_done)
        return result

    def _everything(self) -> list[tuple[str, int]]:
        topics = sorted(self._state().topics.values(), key=lambda topic: topic.name)
        return [(topic.name, index) for topic in topics for index in range(len(topic.partitions))]

    def _one(self, kind: int, name: str, index: int, timeout_ms: int) -> Answer[Elected]:
        topic = self._state().topics.get(name)
        if topic is None:
            return _refused(
                name, index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}"
            )
        if not 0 <= index < len(topic.partitions):
            text = f"No such partition as {name}-{index}"
            return _refused(name, index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        placed, led = topic.partitions[index], self._leadership.of(topic.topic_id, index)
        if kind != PREFERRED:
            if led.leader != NO_LEADER:
                return _refused(name, index, ErrorCode.ELECTION_NOT_NEEDED, None)
            return self._save(name, topic.topic_id, index, placed, timeout_ms)
        if led.leader == placed.replicas[0]:
            return _refused(name, index, ErrorCode.ELECTION_NOT_NEEDED, None)
        return self._prefer(name, topic.topic_id, index, placed, led.leader, timeout_ms)

    def _prefer(
        self,
        name: str,
        topic_id: UUID,
        index: int,
        placed: PartitionState,
        leader: int,
        timeout_ms: int,
    ) -> Answer[Elected]:
        first = placed.replicas[0]
        handover = _Handover(self._leadership, (topic_id, index), first, Elected(name, index))
        body = _BODY.pack(topic_id.bytes, index, first)
        if leader == self._node_id:
            asked = self._serve(self._node_id, body)
        elif leader != NO_LEADER and self._peers is not None:
            asked = self._peers.call(leader, TRANSFER, body, timeout_ms)
        else:
            asked = Answer.of(_NO)
        asked.on_done(handover.asked)
        if not handover.answer.is_done:
            self._timers.at(self._now() + max(timeout_ms, 1), handover.give_up)
        return handover.answer

    # --- unclean -------------------------------------------------------------------------------

    def _save(
        self, name: str, topic_id: UUID, index: int, placed: PartitionState, timeout_ms: int
    ) -> Answer[Elected]:
        """Let the best survivor go on alone: whoever of those that can be asked has most."""
        body = _BODY.pack(topic_id.bytes, index, 0)
        asked: list[Answer[bytes]] = []
        for node in placed.members:
            if node == self._node_id:
                asked.append(self._tell_position(node, body))
            elif self._peers is not None and node in self._peers.linked():
                asked.append(self._peers.call(node, POSITION, body, timeout_ms))
        answer: Answer[Elected] = Answer()
        result = Elected(name, index)

        def told() -> None:
            best = _best(asked, placed)
            if best is None:
                code = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
                text = "No replica that has a log of it can be reached."
                answer.resolve(result._replace(code=code, message=text))
                return
            order = RecoverPartition(topic_id, index, best.voter, best.epoch_seen + EPOCH_LEAP)
            log.warning(
                "%s-%d goes on with what broker %d has, up to offset %d, by an operator's order",
                name,
                index,
                best.voter.node,
                best.end.offset,
            )
            self._submit(order).on_done(partial(ordered, best.voter.node))

        def ordered(heir: int, done: Answer[Done]) -> None:
            try:
                done.get()
            except DmqError as error:
                answer.resolve(result._replace(code=error.code, message=str(error)))
                return
            handover = _Handover(self._leadership, (topic_id, index), heir, result)
            handover.asked(Answer.of(_YES))
            handover.answer.on_done(answer.follow)
            if not handover.answer.is_done:
                self._timers.at(self._now() + max(timeout_ms, 1), handover.give_up)

        when_all(asked, told)
        return answer

    def _tell_position(self, node: int, body: bytes) -> Answer[bytes]:
        """How much of a partition we have, to NO_EPOCH if we never had a log of it. Raises
        ProtocolError."""
        if len(body) != _BODY.size:
            raise ProtocolError(f"{len(body)} bytes name no partition")
        raw, index, _ = _BODY.unpack(body)
        local = self._replicas.by_id.get(UUID(bytes=raw))
        partition = None if local is None else local.partitions.get(index)
        if partition is None:
            return Answer.of(b"")
        replica = partition.replica
        if replica.memory and not replica.core.voters:
            return Answer.of(b"")  # There was a log here: this is no empty disk.
        end, me = replica.core.end, replica.me
        said = _POSITION.pack(me.node, me.directory.bytes, replica.core.epoch, *end)
        return Answer.of(said)

    def _serve(self, node: int, body: bytes) -> Answer[bytes]:
        """Hand a partition over, if we lead it and the heir is in sync. Raises ProtocolError."""
        if len(body) != _BODY.size:
            raise ProtocolError(f"{len(body)} bytes name no partition")
        raw, index, heir = _BODY.unpack(body)
        local = self._replicas.by_id.get(UUID(bytes=raw))
        partition = None if local is None else local.partitions.get(index)
        if partition is None or not partition.is_leader:
            return Answer.of(_NO)
        replica, now = partition.replica, self._now()
        voters = [voter for voter in replica.in_sync(now) if voter.node == heir]
        is_begun = bool(voters) and replica.transfer(voters[0], now)
        return Answer.of(_YES if is_begun else _NO)


class _Survivor(NamedTuple):
    """A replica that can be asked: who it is, and how much it has."""

    end: Position
    voter: Voter
    epoch_seen: int


def _best(asked: list[Answer[bytes]], placed: PartitionState) -> _Survivor | None:
    """Whoever has most; with the highest epoch that any of them, or an earlier order, has seen. One
    without a log only if all others are without one too: who can't be asked may have it."""
    found: list[_Survivor] = []
    for answer in asked:
        try:
            said = answer.get()
        except DmqError:
            continue
        if len(said) == _POSITION.size:
            node, directory, epoch, *end = _POSITION.unpack(said)
            voter = Voter(node, UUID(bytes=directory))
            found.append(_Survivor(Position(*end), voter, max(epoch, end[0])))
    if not found or (max(found).end.epoch == NO_EPOCH and len(found) < len(placed.members)):
        return None
    ordered = 0 if placed.order is None else placed.order.epoch
    return max(found)._replace(epoch_seen=max(ordered, *(one.epoch_seen for one in found)))


class _Handover:
    """A preferred election under way."""

    def __init__(
        self, leadership: Leadership, key: tuple[UUID, int], heir: int, success: Elected
    ) -> None:
        self.answer: Answer[Elected] = Answer()
        self._leadership = leadership
        self._key = key
        self._heir = heir
        self._success = success

    def asked(self, begun: Answer[bytes]) -> None:
        """The leader was asked to hand over."""
        try:
            is_begun = begun.get() == _YES
        except DmqError:
            is_begun = False
        if is_begun and not self.answer.is_done:
            self._leadership.when(self._has_moved, self._moved)
        else:
            self.give_up()

    def _has_moved(self) -> bool:
        return self._leadership.of(*self._key).leader == self._heir

    def _moved(self) -> None:
        if not self.answer.is_done:
            self.answer.resolve(self._success)

    def give_up(self) -> None:
        """It can't be, or takes too long."""
        self._leadership.give_up(self._moved)
        if not self.answer.is_done:
            code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
            text = f"Broker {self._heir} is not up, or not in sync."
            self.answer.resolve(self._success._replace(code=code, message=text))


def _refused(topic: str, index: int, code: ErrorCode, text: str | None) -> Answer[Elected]:
    return Answer.of(Elected(topic, index, code, text))
