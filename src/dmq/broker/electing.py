"""The verb `elect_leaders`: leaderships moved on demand (ElectLeaders of the Kafka protocol).

A preferred election asks the partition's leader, wherever it is, to hand over to the first of its
replicas, and is done when the table of leaders says so. Many are asked at once, each by itself.
An unclean one is an operator's order, for a partition that too few of its voters are left of: the best
survivor goes on alone, from an epoch that the metadata remember; records that only the lost had are lost.
If every replica can be asked and none has a log, all of it is lost, and one of them begins anew. When no
order is given at all is told in survivors.py.
"""

import logging
import struct
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Protocol
from uuid import UUID

from dmq.broker.answer import Answer, in_turns, when_all
from dmq.broker.elections import PREFERRED, Elected
from dmq.broker.leadership import Leadership
from dmq.broker.peers import Peers
from dmq.broker.replicas import Replicas
from dmq.broker.survivors import Account, account, choose, decode, encode, epoch_seen
from dmq.broker.timers import Timers
from dmq.errors import DmqError, ErrorCode, KafkaError, ProtocolError
from dmq.machines.commands import Done, RecoverPartition
from dmq.machines.records import EPOCH_LEAP
from dmq.machines.state import ClusterState, PartitionState
from dmq.types import NO_LEADER

log = logging.getLogger("dmq.broker")

TRANSFER, ACCOUNT = "transfer", "account"
"""Verbs between brokers."""
LOOK_AGAIN_MS = 500
"""So often it is seen whether a broker that is up can be asked."""
LEADER_MS = 3_000
"""Without a leader of the metadata for so long, nobody knows who is up."""
SURVEY_MS = 10_000
"""Who has not answered for so long can't be asked."""
AT_ONCE = 500
"""Partitions under way at a time: each asks its brokers, and links bound the calls of all together."""
_BODY = struct.Struct(">16sIi")  # topic, partition, node; or whether to wait for an order
_YES, _NO = b"\x01", b"\x00"


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
        listed: Callable[[], Collection[int]] = tuple,
        has_controller: Callable[[], bool] = lambda: True,
    ) -> None:
        """`listed`: the other brokers that are up, as far as the metadata's leader knows."""
        self.node_id = node_id
        self._state = state
        self._replicas = replicas
        self._leadership = leadership
        self._peers = peers
        self._timers = timers
        self.now = now
        self._submit = submit
        self._listed = listed
        self.has_controller = has_controller
        if peers is not None:
            peers.serve(TRANSFER, self._serve)
            peers.serve(ACCOUNT, self._tell_account)

    def elect(
        self, kind: int, partitions: list[tuple[str, int]] | None, timeout_ms: int
    ) -> Answer[list[Elected]]:
        """Elect leaders of these partitions, of all for None; each succeeds or fails by itself."""
        wanted = self._everything() if partitions is None else partitions
        deadline = self.now() + timeout_ms

        def begin(topic: str, index: int) -> Answer[Elected]:
            left_ms = deadline - self.now()
            if left_ms < 0:
                text = "Not begun: others took all the time that the request allows."
                return _refused(topic, index, ErrorCode.REQUEST_TIMED_OUT, text)
            return self._one(kind, topic, index, left_ms)

        def told(answers: list[Answer[Elected]]) -> list[Elected]:
            found = [answer.get() for answer in answers]
            if partitions is None:
                found = [one for one in found if one.code is not ErrorCode.ELECTION_NOT_NEEDED]
            return found

        return in_turns([partial(begin, *one) for one in wanted], AT_ONCE).map(told)

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
        late = (
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            f"Broker {first} is not up, or not in sync.",
        )
        success = Elected(name, index)
        handover = _Handover(self._leadership, (topic_id, index), first, success, late)
        body = _BODY.pack(topic_id.bytes, index, first)
        if leader == self.node_id:
            asked = self._serve(self.node_id, body)
        elif leader != NO_LEADER and self._peers is not None:
            asked = self._peers.call(leader, TRANSFER, body, timeout_ms)
        else:
            asked = Answer.of(_NO)
        asked.on_done(handover.asked)
        if not handover.answer.is_done:
            self._timers.at(self.now() + max(timeout_ms, 1), handover.give_up)
        return handover.answer

    # --- unclean -------------------------------------------------------------------------------

    def _save(
        self, name: str, topic_id: UUID, index: int, placed: PartitionState, timeout_ms: int
    ) -> Answer[Elected]:
        """Let the best survivor go on alone: whoever of those that can be asked has most.

        They are asked twice: what they say the second time they stand by until the order comes.
        """
        rescue = _Rescue(self, Elected(name, index), (topic_id, index), placed, timeout_ms)
        rescue.begin()
        return rescue.answer

    def unheard(self, nodes: Iterable[int]) -> list[int]:
        """Those of these brokers that are up, but can't be asked from here; one that was just started
        has no link with anybody yet."""
        linked = () if self._peers is None else self._peers.linked()
        up = self._listed()
        return [n for n in nodes if n in up and n != self.node_id and n not in linked]

    def later(self, action: Callable[[], None]) -> None:
        self._timers.at(self.now() + LOOK_AGAIN_MS, action)

    def survey(
        self, nodes: Iterable[int], key: tuple[UUID, int], timeout_ms: int, *, is_held: bool
    ) -> dict[int, Answer[bytes]]:
        """Ask those of these brokers that can be asked for an account of their replica."""
        body = _BODY.pack(key[0].bytes, key[1], int(is_held))
        asked: dict[int, Answer[bytes]] = {}
        for node in nodes:
            if node == self.node_id:
                asked[node] = self._own_account(body)
            elif self._peers is not None and node in self._peers.linked():
                asked[node] = self._peers.call(node, ACCOUNT, body, min(timeout_ms, SURVEY_MS))
        return asked

    def give_order(self, order: RecoverPartition) -> Answer[Done]:
        return self._submit(order)

    def await_heir(
        self, key: tuple[UUID, int], heir: int, success: Elected, timeout_ms: int
    ) -> Answer[Elected]:
        """An order was given: wait for it to be obeyed."""
        late = ErrorCode.REQUEST_TIMED_OUT, f"Ordered; broker {heir} does not lead yet."
        handover = _Handover(self._leadership, key, heir, success, late)
        handover.asked(Answer.of(_YES))
        if not handover.answer.is_done:
            self._timers.at(self.now() + max(timeout_ms, 1), handover.give_up)
        return handover.answer

    def _own_account(self, body: bytes) -> Answer[bytes]:
        try:
            return self._tell_account(self.node_id, body)
        except KafkaError as error:
            untold: Answer[bytes] = Answer()
            untold.fail(error)
            return untold

    def _tell_account(self, node: int, body: bytes) -> Answer[bytes]:
        """What we have of a partition; nothing if there was a log of it that is gone.

        Raises KafkaError if the replica is not open yet, so that nobody takes it for lost;
        ProtocolError.
        """
        if len(body) != _BODY.size:
            raise ProtocolError(f"{len(body)} bytes name no partition")
        raw, index, is_held = _BODY.unpack(body)
        local = self._replicas.by_id.get(UUID(bytes=raw))
        partition = None if local is None else local.partitions.get(index)
        if partition is None:
            raise KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE, "its replica is not open yet")
        replica = partition.replica
        if replica.memory and not replica.core.voters:
            return Answer.of(b"")  # There was a log here: this is no empty disk.
        if is_held:
            replica.hold(self.now())
        return Answer.of(encode(account(replica, self.now())))

    def _serve(self, node: int, body: bytes) -> Answer[bytes]:
        """Hand a partition over, if we lead it and the heir is in sync. Yes too if that is under way.
        Raises ProtocolError."""
        if len(body) != _BODY.size:
            raise ProtocolError(f"{len(body)} bytes name no partition")
        raw, index, heir = _BODY.unpack(body)
        local = self._replicas.by_id.get(UUID(bytes=raw))
        partition = None if local is None else local.partitions.get(index)
        if partition is None or not partition.is_leader:
            return Answer.of(_NO)
        replica, now = partition.replica, self.now()
        if (next_one := replica.core.heir) is not None and next_one.node == heir:
            return Answer.of(_YES)
        voters = [voter for voter in replica.in_sync(now) if voter.node == heir]
        is_begun = bool(voters) and replica.transfer(voters[0], now)
        return Answer.of(_YES if is_begun else _NO)


class _Rescue:
    """An unclean election under way."""

    def __init__(
        self,
        electing: Electing,
        result: Elected,
        key: tuple[UUID, int],
        placed: PartitionState,
        timeout_ms: int,
    ) -> None:
        self.answer: Answer[Elected] = Answer()
        self._electing = electing
        self._result = result
        self._key = key
        self._placed = placed
        self._timeout_ms = timeout_ms
        self._deadline = electing.now() + timeout_ms
        self._lead_by = electing.now() + LEADER_MS

    def begin(self) -> None:
        asked = self._survey(self._placed.members, is_held=False)
        when_all(asked.values(), partial(self._told, asked))

    def _survey(self, nodes: Iterable[int], *, is_held: bool) -> dict[int, Answer[bytes]]:
        return self._electing.survey(nodes, self._key, self._timeout_ms, is_held=is_held)

    def _told(self, asked: dict[int, Answer[bytes]]) -> None:
        found = _accounts(asked)
        unheard = self._electing.unheard(self._placed.members)
        try:
            choose(found, self._placed)
            _check_told(asked)
            if unheard:
                raise self._untold(unheard[0])
        except KafkaError as error:
            if unheard and self._may_wait(error.code):
                self._electing.later(self.begin)
            else:
                self._fail(error)
            return
        held = self._survey([one.me.node for one in found], is_held=True)
        when_all(held.values(), partial(self._held, len(found), held))

    def _may_wait(self, code: ErrorCode) -> bool:
        """Who is up may have more than those that can be asked: it is waited for, until it can be asked
        or is known to be down."""
        now = self._electing.now()
        is_in_time = now + LOOK_AGAIN_MS < self._deadline
        has_word = now < self._lead_by or self._electing.has_controller()
        return code is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE and is_in_time and has_word

    def _untold(self, node: int) -> KafkaError:
        if self._electing.now() >= self._lead_by and not self._electing.has_controller():
            text = (
                "Nobody leads the metadata: no order can be taken, and nobody can tell who is up."
            )
            return KafkaError(ErrorCode.NOT_CONTROLLER, text)
        return KafkaError(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            f"Broker {node} counts as up and can't be asked what it has: try again. Brokers that "
            "stopped count as up for some seconds; one that only broker "
            f"{self._electing.node_id} can't reach may be asked by another one.",
        )

    def _held(self, count: int, asked: dict[int, Answer[bytes]]) -> None:
        found = _accounts(asked)
        try:
            if len(found) < count:
                text = "A replica can't be reached any more: try again."
                raise KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, text)
            best = choose(found, self._placed)
        except KafkaError as error:
            self._fail(error)
            return
        epoch = epoch_seen(found, self._placed) + EPOCH_LEAP
        order = RecoverPartition(*self._key, best.me, epoch)
        self._electing.give_order(order).on_done(partial(self._ordered, best))

    def _ordered(self, best: Account, done: Answer[Done]) -> None:
        try:
            done.get()
        except DmqError as error:
            self._fail(error)
            return
        heir = best.me.node
        log.warning(
            "%s-%d goes on with what broker %d has, up to offset %d, by an operator's order",
            self._result.topic,
            self._result.partition,
            heir,
            best.end.offset,
        )
        left_ms = self._deadline - self._electing.now()
        waiting = self._electing.await_heir(self._key, heir, self._result, left_ms)
        waiting.on_done(partial(self._obeyed, heir))

    def _obeyed(self, heir: int, waiting: Answer[Elected]) -> None:
        elected = waiting.get()
        if elected.code is not ErrorCode.NONE:
            self.answer.resolve(elected)
            return
        asked = self._survey([heir], is_held=False)
        when_all(asked.values(), partial(self._tell_gaps, asked))

    def _tell_gaps(self, asked: dict[int, Answer[bytes]]) -> None:
        """What bad bytes cost, if the log was damaged."""
        gaps = [gap for one in _accounts(asked) for gap in one.gaps]
        if not gaps:
            self.answer.resolve(self._result)
            return
        spans = ", ".join(f"{start} to {stop - 1}" for start, stop in gaps)
        text = f"Offsets that were in damaged files are lost: {spans}."
        log.warning("%s-%d: %s", self._result.topic, self._result.partition, text)
        self.answer.resolve(self._result._replace(message=text))

    def _fail(self, error: DmqError) -> None:
        self.answer.resolve(self._result._replace(code=error.code, message=str(error)))


def _accounts(asked: dict[int, Answer[bytes]]) -> list[Account]:
    """Those that were given."""
    found: list[Account] = []
    for answer in asked.values():
        try:
            said = answer.get()
            if said:
                found.append(decode(said))
        except DmqError:
            continue
    return found


def _check_told(asked: dict[int, Answer[bytes]]) -> None:
    """Who is up and has not told what it has may have more than all others. Raises KafkaError."""
    for node, answer in asked.items():
        try:
            answer.get()
        except DmqError as error:
            raise KafkaError(
                ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
                f"Broker {node} is up and did not tell what it has ({error}): try again; to go on "
                "without what it has, stop it first.",
            ) from error


class _Handover:
    """A leadership on its way to an heir; `late` is said if it does not get there."""

    def __init__(
        self,
        leadership: Leadership,
        key: tuple[UUID, int],
        heir: int,
        success: Elected,
        late: tuple[ErrorCode, str],
    ) -> None:
        self.answer: Answer[Elected] = Answer()
        self._leadership = leadership
        self._key = key
        self._heir = heir
        self._success = success
        self._late = late

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
            code, text = self._late
            self.answer.resolve(self._success._replace(code=code, message=text))


def _refused(topic: str, index: int, code: ErrorCode, text: str | None) -> Answer[Elected]:
    return Answer.of(Elected(topic, index, code, text))
