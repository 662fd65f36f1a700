"""The verb `elect_leaders`: leaderships moved on demand (ElectLeaders of the Kafka protocol).

A preferred election asks the partition's leader, wherever it is, to hand over to the first of its
replicas, and is done when the table of leaders says so. Many are asked at once, each by itself.
An unclean election needs what no broker may decide alone, and is refused while it can't be done safely.
"""

import struct
from collections.abc import Callable
from uuid import UUID

from dmq.broker.answer import Answer, when_all
from dmq.broker.elections import PREFERRED, Elected
from dmq.broker.leadership import Leadership
from dmq.broker.peers import Peers
from dmq.broker.replicas import Replicas
from dmq.broker.timers import Timers
from dmq.errors import DmqError, ErrorCode, ProtocolError
from dmq.machines.state import ClusterState, PartitionState
from dmq.types import NO_LEADER

TRANSFER = "transfer"
_BODY = struct.Struct(">16sIi")  # topic, partition, node
_YES, _NO = b"\x01", b"\x00"


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
    ) -> None:
        self._node_id = node_id
        self._state = state
        self._replicas = replicas
        self._leadership = leadership
        self._peers = peers
        self._timers = timers
        self._now = now
        if peers is not None:
            peers.serve(TRANSFER, self._serve)

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
            text = "No replica may lead without a majority of its voters."
            return _refused(name, index, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, text)
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
