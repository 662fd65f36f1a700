"""The transaction coordinators of this broker, and its partitions' part in transactions.

A coordinator runs on each partition of `__transaction_state` that this broker leads; a transactional id
belongs to the one that its hash names. Fulfils `transacting.Transactions`: commands go to the coordinator
if it is here; leave to write, and the markers that end a transaction, go to wherever they must, over
the peer link if that is another broker. Called by doors, by the metadata's changes and by the tick.
"""

import json
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeVar

from dmq.broker.answer import Answer, when_all
from dmq.broker.coordinators import partition_of
from dmq.broker.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from dmq.broker.leadership import Leadership
from dmq.broker.markers import write_marker
from dmq.broker.peers import Peers
from dmq.broker.replicas import LocalTopic, Replicas
from dmq.broker.seats import Seat
from dmq.broker.transacting import LEADER_ADDS, ProducerView
from dmq.broker.transaction_coordinator import TransactionCoordinator
from dmq.broker.transaction_records import TransactionRecords
from dmq.errors import DmqError, ErrorCode, KafkaError, ProtocolError
from dmq.machines.machine import Command
from dmq.machines.machine import Record as MachineRecord
from dmq.machines.transactions.commands import (
    AddPartitions,
    ListTransactions,
    TransactionView,
    TxnMarker,
    VerifyPartitions,
)
from dmq.machines.transactions.machine import TransactionLimits, TransactionMachine
from dmq.records import BatchHeader, Record
from dmq.types import NIL_UUID, NO_LEADER, Millis, TopicPartition

R = TypeVar("R")

ENTER, MARK = "txn-enter", "txn-mark"
"""Verbs between brokers."""
ENTER_TRIES = 3
"""How often the coordinator is asked about one batch: each marker in between costs one."""
CALL_MS = 10_000
SEND_AGAIN_MS = 200
_NOT_THE_PRODUCER = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
NO_GROUP_SEAT = "the offsets' coordinator is not here"


class Ended(Protocol):
    def __call__(self, partition: int, producer_id: int, *, commit: bool) -> None: ...


class SeatHost:
    """Runs a machine on a seat: records are appended and applied at once, answers wait for commit, and
    those of mere reads until they are known to be the newest."""

    __slots__ = ("_machine", "_seat")

    def __init__(self, machine: TransactionMachine, seat: Seat) -> None:
        self._machine = machine
        self._seat = seat

    def submit(self, command: Command[R], now: int) -> Answer[R]:
        """Give a command; the answer comes when what it rests on is committed."""
        answer: Answer[R] = Answer()
        try:
            self._check_sits()
        except KafkaError as error:
            answer.fail(error)
            return answer
        try:
            outcome = self._machine.handle(command, Millis(now))
        except DmqError as error:
            self._seat.when_newest(partial(_refuse, answer, error))
            return answer
        if outcome.records:
            try:
                self._seat.append(outcome.records)
            except DmqError as error:
                answer.fail(error)
                return answer
            for record in outcome.records:
                self._machine.apply(record)

        def settled(code: ErrorCode) -> None:
            if code is ErrorCode.NONE:
                answer.resolve(outcome.response)
            else:
                answer.fail(KafkaError(ErrorCode.NOT_COORDINATOR))

        if outcome.records:
            self._seat.when_committed(settled)
        else:
            self._seat.when_newest(settled)
        return answer

    def _check_sits(self) -> None:
        """Raises NOT_COORDINATOR, or COORDINATOR_LOAD_IN_PROGRESS. Whoever waited for something may
        come when another machine has the seat: the records of this one would not be known to it."""
        self._seat.check_leads()
        occupant = self._seat.occupant
        if not isinstance(occupant, TransactionOccupant) or occupant.machine is not self._machine:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)


def _refuse(answer: Answer[R], error: DmqError, code: ErrorCode) -> None:
    """What a refusal rests on must be committed, as with every answer."""
    is_true = code is ErrorCode.NONE
    answer.fail(error if is_true else KafkaError(ErrorCode.NOT_COORDINATOR))


class TransactionOccupant:
    """The transaction machine of one leadership, and its coordinator."""

    __slots__ = ("_seat", "coordinator", "machine")

    def __init__(self, owner: "TransactionCoordinators", seat: Seat) -> None:
        self._seat = seat
        self.machine = owner.new_machine()
        self.coordinator = owner.new_coordinator(self.machine, SeatHost(self.machine, seat))

    def load(self, header: BatchHeader, records: list[Record]) -> None:
        """A batch of the log, in order."""
        if header.is_control:
            return
        for record in records:
            try:
                self.machine.apply(MachineRecord(record.key or b"", record.value))
            except ProtocolError as error:
                self._seat.skipped(record, error)

    def lead(self, now: int) -> None:
        """All of the log was loaded: finish what is decided, and serve."""
        self.coordinator.lead(self._seat.replica.leader_epoch)

    def resign(self) -> None:
        """The leadership is over."""
        self.coordinator.resign()


class TransactionCoordinators:
    """See the module."""

    def __init__(
        self,
        node_id: int,
        replicas: Replicas,
        leadership: Leadership,
        peers: Peers | None,
        now: Callable[[], int],
        wall: Callable[[], int],
        ended: Ended,
    ) -> None:
        """`ended`: a marker was written to a partition of the offsets' topic that we lead."""
        self._node_id = node_id
        self._replicas = replicas
        self._leadership = leadership
        self._peers = peers
        self._now = now
        self._wall = wall
        self._ended = ended
        self._seats: dict[int, Seat] = {}
        self._again_at = self._abort_at = self._forget_at = 0
        self.create_topic: Callable[[str], Answer[None]] = lambda name: Answer.of(None)
        """Makes an internal topic; the service sets it."""
        self.new_producer_id: Callable[[], Answer[int]] = _no_producer_id
        """The service sets it."""
        if peers is not None:
            peers.serve(ENTER, self._serve_enter)
            peers.serve(MARK, self._serve_mark)

    def new_machine(self) -> TransactionMachine:
        config = self._replicas.settings.effective
        limits = TransactionLimits(
            config.transaction_max_timeout_ms, config.transactional_id_expiration_ms
        )
        return TransactionMachine(TransactionRecords(), limits)

    def new_coordinator(
        self, machine: TransactionMachine, host: SeatHost
    ) -> TransactionCoordinator:
        return TransactionCoordinator(
            machine,
            host,
            new_producer_id=self.new_producer_id,
            write_marker=self._write_anywhere,
            has_partition=self._has_partition,
            now=self._wall,
        )

    def _has_partition(self, partition: TopicPartition) -> bool:
        local = self._replicas.topics.get(partition.topic)
        return local is not None and partition.partition < local.count

    # --- where -------------------------------------------------------------------------------

    def topic_changed(self, local: LocalTopic) -> None:
        """The metadata's changes: partitions of our topic may have come here or left."""
        if local.name != TRANSACTIONS_TOPIC:
            return
        for index in [index for index in self._seats if index not in local.partitions]:
            del self._seats[index]
        for index, partition in local.partitions.items():
            seat = self._seats.get(index)
            if seat is None or seat.replica is not partition.replica:
                self._seats[index] = Seat(
                    partition.replica, partial(TransactionOccupant, self), self._now, self._wall
                )

    def topic_deleted(self, name: str) -> None:
        if name == TRANSACTIONS_TOPIC:
            self._seats.clear()

    def coordinator_of(self, transactional_id: str) -> Answer[int]:
        """The broker that coordinates an id; -1: nobody yet. Makes the topic if it must."""
        if TRANSACTIONS_TOPIC in self._replicas.topics:
            return Answer.of(self._leader(transactional_id))
        answer: Answer[int] = Answer()
        self.create_topic(TRANSACTIONS_TOPIC).on_done(
            lambda made: answer.resolve(self._leader(transactional_id))
        )
        return answer

    def _leader(self, transactional_id: str) -> int:
        local = self._replicas.topics.get(TRANSACTIONS_TOPIC)
        if local is None:
            return NO_LEADER
        index = partition_of(transactional_id, local.count)
        return self._leadership.of(local.topic_id, index).leader

    def _leader_of(self, partition: TopicPartition) -> int:
        local = self._replicas.topics.get(partition.topic)
        if local is None:
            return NO_LEADER
        return self._leadership.of(local.topic_id, partition.partition).leader

    # --- commands ------------------------------------------------------------------------------

    def submit(self, transactional_id: str, command: Command[R]) -> Answer[R]:
        """Give the coordinator of a transactional id a command; see `transacting.Transactions`."""
        local = self._replicas.topics.get(TRANSACTIONS_TOPIC)
        seat = None
        if local is not None:
            seat = self._seats.get(partition_of(transactional_id, local.count))
        if seat is None:
            return _failed(KafkaError(ErrorCode.NOT_COORDINATOR))
        try:
            seat.check_leads()
        except KafkaError as error:
            return _failed(error)
        assert isinstance(seat.occupant, TransactionOccupant)
        return seat.occupant.coordinator.submit(command)

    def list_transactions(self, command: ListTransactions) -> Answer[list[TransactionView]]:
        """Those of all coordinators on this broker. Fails if one of them is still loading."""
        answers: list[Answer[list[TransactionView]]] = []
        for seat in self._seats.values():
            if seat.replica.core.can_append:
                if not isinstance(seat.occupant, TransactionOccupant):
                    return _failed(KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
                answers.append(seat.occupant.coordinator.submit(command))
        result: Answer[list[TransactionView]] = Answer()

        def all_done() -> None:
            try:
                result.resolve([view for answer in answers for view in answer.get()])
            except DmqError as error:
                result.fail(error)

        when_all(answers, all_done)
        return result

    # --- leave to write ------------------------------------------------------------------------

    def enter(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partition: TopicPartition,
        version: int,
        sequence: int = 0,
        *,
        tries: int = ENTER_TRIES,
    ) -> Answer[None]:
        """Leave to write into a transaction at a partition that this broker leads.

        The marker of the transaction before may come in while we ask about the next one, and takes our
        token with it. So a yes without a token is asked again, with a new one: what the coordinator
        says then holds, and a transaction that did end is refused by it.
        """
        try:
            found = self._replicas.find(partition.topic, NIL_UUID, partition.partition)
            found.check_leads()
            assert found.book is not None
            book = found.book
            if book.state.has_open(producer_id, producer_epoch):
                return Answer.of(None)
            token = book.guards.ask(producer_id, producer_epoch, sequence, self._now())
        except DmqError as error:
            return _failed(error)
        answer: Answer[None] = Answer()

        def asked(done: Answer[None]) -> None:
            try:
                done.get()
            except DmqError as error:
                if error.code in _NOT_THE_PRODUCER:
                    book.guards.refuse(producer_id, token)
                answer.fail(error)
                return
            if book.guards.vouch(producer_id, token, version) or book.has_open(
                producer_id, producer_epoch
            ):
                answer.resolve(None)
            elif tries > 1:
                again = partial(self.enter, *who)
                again(sequence=sequence, tries=tries - 1).on_done(answer.follow)
            else:
                answer.fail(
                    KafkaError(ErrorCode.INVALID_TXN_STATE, "the transaction ended meanwhile")
                )

        who = transactional_id, producer_id, producer_epoch, partition, version
        leader = self._leader(transactional_id)
        if leader == self._node_id:
            self._ask(*who).on_done(asked)
        elif leader != NO_LEADER and self._peers is not None:
            body = json.dumps(who).encode()
            _verdict(self._peers.call(leader, ENTER, body, CALL_MS)).on_done(asked)
        else:
            answer.fail(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        return answer

    def _ask(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partition: TopicPartition,
        version: int,
    ) -> Answer[None]:
        """At the coordinator: add the partition, or vouch for it."""
        who = transactional_id, producer_id, producer_epoch, frozenset((partition,))
        if version >= LEADER_ADDS:
            return self.submit(transactional_id, AddPartitions(*who, version))
        answer: Answer[None] = Answer()

        def verified(done: Answer[dict[TopicPartition, ErrorCode]]) -> None:
            try:
                code = done.get()[partition]
            except DmqError as error:
                answer.fail(error)
                return
            if code is ErrorCode.NONE:
                answer.resolve(None)
            else:
                answer.fail(KafkaError(code))

        self.submit(transactional_id, VerifyPartitions(*who)).on_done(verified)
        return answer

    def _serve_enter(self, node: int, body: bytes) -> Answer[bytes]:
        """Another broker asks our coordinator. Raises ProtocolError."""
        try:
            name, producer_id, epoch, (topic, index), version = json.loads(body)
            partition = TopicPartition(str(topic), int(index))
        except (ValueError, TypeError) as error:
            raise ProtocolError(f"no question about a transaction: {error!r}") from error
        asked = self._ask(str(name), int(producer_id), int(epoch), partition, int(version))
        return asked.map(lambda _: b"")

    def offsets_partition(self, group_id: str) -> TopicPartition:
        """Where a group's offsets are kept. Raises KafkaError if there is no such topic yet; then it is
        made: whoever commits offsets only in transactions asks nobody else for it."""
        local = self._replicas.topics.get(OFFSETS_TOPIC)
        if local is None:
            self.create_topic(OFFSETS_TOPIC)
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, NO_GROUP_SEAT)
        return TopicPartition(OFFSETS_TOPIC, partition_of(group_id, local.count))

    # --- markers -------------------------------------------------------------------------------

    def write_marker(self, marker: TxnMarker) -> Answer[None]:
        """End a transaction at a partition that this broker leads; done when it is committed."""
        try:
            partition = self._replicas.find(marker.topic, NIL_UUID, marker.partition)
            answer = write_marker(partition, marker, self._now(), self._wall())
        except DmqError as error:
            return _failed(error)
        if marker.topic == OFFSETS_TOPIC:
            self._ended(marker.partition, marker.producer_id, commit=marker.is_commit)
        return answer

    def _write_anywhere(self, marker: TxnMarker) -> Answer[None]:
        leader = self._leader_of(TopicPartition(marker.topic, marker.partition))
        if leader == self._node_id or self._peers is None:
            return self.write_marker(marker)
        if leader == NO_LEADER:
            if not self._has_partition(TopicPartition(marker.topic, marker.partition)):
                return _failed(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            return _failed(KafkaError(ErrorCode.LEADER_NOT_AVAILABLE))
        body = json.dumps(marker).encode()
        return _verdict(self._peers.call(leader, MARK, body, CALL_MS))

    def _serve_mark(self, node: int, body: bytes) -> Answer[bytes]:
        """Another broker's coordinator ends a transaction here. Raises ProtocolError."""
        try:
            topic, index, producer_id, epoch, is_commit, coordinator_epoch, version = json.loads(
                body
            )
            marker = TxnMarker(
                str(topic),
                int(index),
                int(producer_id),
                int(epoch),
                bool(is_commit),
                int(coordinator_epoch),
                int(version),
            )
        except (ValueError, TypeError) as error:
            raise ProtocolError(f"no end of a transaction: {error!r}") from error
        return self.write_marker(marker).map(lambda _: b"")

    def producers(self, partition: TopicPartition) -> Answer[list[ProducerView]]:
        """Who wrote of late to a partition that this broker leads."""
        try:
            found = self._replicas.find(partition.topic, NIL_UUID, partition.partition)
            found.check_leads()
            assert found.book is not None
            known = found.book.state.producers()
        except DmqError as error:
            return _failed(error)
        return Answer.of(
            [
                ProducerView(
                    producer_id,
                    entry.epoch,
                    entry.last_sequence,
                    entry.last_timestamp,
                    entry.coordinator_epoch,
                    entry.txn_start,
                )
                for producer_id, entry in known
            ]
        )

    # --- time ----------------------------------------------------------------------------------

    def tick(self, now: int) -> None:
        """Do what is due."""
        for seat in self._seats.values():
            seat.tick(now)
        if now < self._again_at:
            return
        self._again_at = now + SEND_AGAIN_MS
        coordinators = [
            seat.occupant.coordinator
            for seat in self._seats.values()
            if isinstance(seat.occupant, TransactionOccupant)
        ]
        for coordinator in coordinators:
            coordinator.send_again()
        config = self._replicas.settings.effective
        if now >= self._abort_at:
            self._abort_at = (
                now + config.transaction_abort_timed_out_transaction_cleanup_interval_ms
            )
            for coordinator in coordinators:
                coordinator.abort_timed_out()
        if now >= self._forget_at:
            self._forget_at = (
                now + config.transaction_remove_expired_transaction_cleanup_interval_ms
            )
            for coordinator in coordinators:
                coordinator.forget_idle()


def _verdict(call: Answer[bytes]) -> Answer[None]:
    """A call whose answer says nothing but that it was done."""
    return call.map(lambda _: None)


def _failed(error: DmqError) -> Answer[Any]:
    answer: Answer[Any] = Answer()
    answer.fail(error)
    return answer


def _no_producer_id() -> Answer[int]:
    return _failed(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
