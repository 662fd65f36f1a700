"""Transactions without a broker: the real coordinator on a log in memory, and partitions in memory.

`TransactionHost` commits at once unless it is held. `TransactionService` is what handlers of transaction
APIs need: one coordinator for all names, every partition led here.
"""

from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

from fakes.coordinators import GroupService
from unit.machines.transactions.hosts import PartitionHost

from dmq.broker.answer import Answer
from dmq.broker.transacting import ProducerView, code_at_partition
from dmq.broker.transaction_coordinator import TransactionCoordinator
from dmq.broker.transaction_records import TransactionRecords
from dmq.errors import DmqError, ErrorCode, KafkaError, StorageError
from dmq.machines.machine import Command, Record
from dmq.machines.producers.admission import Leave
from dmq.machines.transactions.commands import (
    AddPartitions,
    ListTransactions,
    TransactionView,
    TxnMarker,
    VerifyPartitions,
)
from dmq.machines.transactions.machine import TransactionLimits, TransactionMachine
from dmq.types import Millis, TopicPartition

R = TypeVar("R")


class TransactionHost:
    """Records in memory; answers leave when they are committed."""

    def __init__(self, machine: TransactionMachine) -> None:
        self.machine = machine
        self.records: list[Record] = []
        self.is_held = False
        self.refusal: DmqError | None = None
        self._waiting: list[Callable[[], None]] = []

    def submit(self, command: Command[R], now: int) -> Answer[R]:
        answer: Answer[R] = Answer()
        try:
            outcome = self.machine.handle(command, Millis(now))
            if self.refusal is not None:
                raise self.refusal
        except DmqError as error:
            refused = error
            self._waiting.append(lambda: answer.fail(refused))
        else:
            for record in outcome.records:
                self.machine.apply(record)
            self.records += outcome.records
            self._waiting.append(lambda: answer.resolve(outcome.response))
        if not self.is_held:
            self.commit()
        return answer

    def commit(self) -> None:
        waiting, self._waiting = self._waiting, []
        for tell in waiting:
            tell()


class TransactionService(GroupService):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = TransactionMachine(TransactionRecords(), TransactionLimits())
        self.txn_host = TransactionHost(self.machine)
        self.partitions: dict[TopicPartition, PartitionHost] = {}
        self.markers: list[TxnMarker] = []
        self.has_leaders = True
        self.next_id = 100
        self.now = 1_000_000
        self.coordinator = TransactionCoordinator(
            self.machine,
            self.txn_host,
            new_producer_id=self.next_producer_id,
            write_marker=self.write_marker,
            has_partition=lambda where: where.topic in self.cluster.topics,
            now=lambda: self.now,
        )
        self.coordinator.lead(1)
        self.transactions = _Verbs(self)

    def next_producer_id(self) -> Answer[int]:
        self.next_id += 1
        return Answer.of(self.next_id - 1)

    def partition(self, where: TopicPartition) -> PartitionHost:
        if not self.has_leaders:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if where.topic not in self.cluster.topics and not where.topic.startswith("__"):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return self.partitions.setdefault(where, PartitionHost(where.partition, Random(0)))

    def produce(
        self, name: str, producer: tuple[int, int], where: TopicPartition, sequence: int
    ) -> ErrorCode:
        """A batch in a transaction of version 2, committed at once."""
        partition = self.partition(where)
        header = partition.header(*producer, sequence)
        outcome = partition.append(header, "", lambda code: None, self.now)
        if isinstance(outcome, Leave):
            command = AddPartitions(name, *producer, frozenset({where}), 2)
            try:
                self.coordinator.submit(command).get()
            except KafkaError as error:
                return code_at_partition(error.code, knows_abortable=True)
            partition.admission.vouch(outcome, 2)
            outcome = partition.append(header, "", lambda code: None, self.now)
        assert isinstance(outcome, ErrorCode)
        if partition.log:
            partition.commit(partition.log[-1].position)
        return outcome

    def write_marker(self, marker: TxnMarker) -> Answer[None]:
        answer: Answer[None] = Answer()
        try:
            partition = self.partition(TopicPartition(*marker[:2]))
            partition.state.check_marker(*marker[2:4], *marker[5:])
        except KafkaError as error:
            answer.fail(error)
            return answer
        self.markers.append(marker)
        partition.write_marker(marker, lambda code: None)
        partition.commit(partition.log[-1].position)
        answer.resolve(None)
        return answer


class _Verbs:
    """`Transactions`."""

    def __init__(self, service: TransactionService) -> None:
        self._service = service

    def submit(self, transactional_id: str, command: Command[R]) -> Answer[R]:
        return self._service.coordinator.submit(command)

    def list_transactions(self, command: ListTransactions) -> Answer[list[TransactionView]]:
        return self._service.coordinator.submit(command)

    def enter(
        self, name: str, producer_id: int, epoch: int, where: TopicPartition, version: int
    ) -> Answer[None]:
        partition = self._service.partition(where)
        if partition.state.has_open(producer_id, epoch):
            return Answer.of(None)
        token = partition.guards.ask(producer_id, epoch, -1, self._service.now)
        answer: Answer[None] = Answer()

        def vouched(done: Answer[Any]) -> None:
            try:
                codes = done.get()
                if isinstance(codes, dict) and codes[where] is not ErrorCode.NONE:
                    raise KafkaError(codes[where])
            except DmqError as error:
                answer.fail(error)
                return
            assert partition.guards.vouch(producer_id, token, version)
            answer.resolve(None)

        wanted = frozenset({where})
        if version == 1:
            self.submit(name, VerifyPartitions(name, producer_id, epoch, wanted)).on_done(vouched)
        else:
            add = AddPartitions(name, producer_id, epoch, wanted, version)
            self.submit(name, add).on_done(vouched)
        return answer

    def offsets_partition(self, group_id: str) -> TopicPartition:
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        return TopicPartition("__consumer_offsets", 0)

    def write_marker(self, marker: TxnMarker) -> Answer[None]:
        return self._service.write_marker(marker)

    def producers(self, where: TopicPartition) -> Answer[list[ProducerView]]:
        answer: Answer[list[ProducerView]] = Answer()
        try:
            known = self._service.partition(where).state.producers()
        except KafkaError as error:
            answer.fail(error)
            return answer
        answer.resolve([ProducerView(number, *entry[:5]) for number, entry in known])
        return answer


REFUSED = StorageError("the disk is full")
