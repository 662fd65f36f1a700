"""A transaction coordinator as its host runs it: records are applied at once, producer ids come when
they are asked for."""

import dataclasses
from typing import Any

from dmq.broker.transaction_records import TransactionRecords
from dmq.errors import ErrorCode
from dmq.machines.machine import Command, Record
from dmq.machines.transactions.commands import (
    AddPartitions,
    Ended,
    Ending,
    EndTransaction,
    Initialised,
    InitProducerId,
    MarkersWritten,
    NeedsProducerIdError,
)
from dmq.machines.transactions.facts import Transaction
from dmq.machines.transactions.machine import TransactionLimits, TransactionMachine
from dmq.types import Millis, TopicPartition

MINUTE = 60_000
TV1, TV2 = 1, 2


def at(*partitions: int, topic: str = "t") -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, partition) for partition in partitions)


class Coordinator:
    def __init__(self, **limits: int) -> None:
        self.machine = TransactionMachine(TransactionRecords(), TransactionLimits(**limits))
        self.machine.coordinator_epoch = 1
        self.records: list[Record] = []
        self.now = 1_000_000
        self.next_producer_id = 100

    def ask(self, command: Command[Any]) -> Any:
        """The answer. Raises KafkaError."""
        try:
            outcome = self.machine.handle(command, Millis(self.now))
        except NeedsProducerIdError:
            self.next_producer_id += 1
            again = dataclasses.replace(command, spare_producer_id=self.next_producer_id - 1)  # type: ignore[type-var]
            outcome = self.machine.handle(again, Millis(self.now))
        for record in outcome.records:
            self.machine.apply(record)
        self.records += outcome.records
        return outcome.response

    def successor(self, *, compacted: bool = False) -> "Coordinator":
        """Another coordinator that has read the log, in the next epoch."""
        new = Coordinator(**self.machine.limits._asdict())
        new.now, new.next_producer_id = self.now, self.next_producer_id
        new.records = list(self.records)
        if compacted:
            new.records = list({record.key: record for record in self.records}.values())
        for record in new.records:
            new.machine.apply(record)
        new.machine.coordinator_epoch = self.machine.coordinator_epoch + 1
        return new

    def find(self, name: str = "x") -> Transaction:
        found = self.machine.state.find(name)
        assert found is not None
        return found

    # ---- short forms

    def init(self, name: str = "x", timeout_ms: int = MINUTE, **had: int) -> tuple[int, int]:
        """(producer id, epoch). Raises KafkaError."""
        answer: Initialised = self.ask(InitProducerId(name, timeout_ms, **had))
        assert answer.code is ErrorCode.NONE
        return answer.producer_id, answer.producer_epoch

    def add(
        self, producer: tuple[int, int], *partitions: int, name: str = "x", version: int = TV1
    ) -> None:
        self.ask(AddPartitions(name, *producer, at(*partitions), version))

    def end(
        self,
        producer: tuple[int, int],
        *,
        is_commit: bool = True,
        name: str = "x",
        version: int = TV1,
    ) -> Ended:
        answer: Ended = self.ask(EndTransaction(name, *producer, is_commit, version))
        return answer

    def written(self, ending: Ending | None) -> bool:
        assert ending is not None
        done: bool = self.ask(MarkersWritten(*ending[:3]))
        return done

    def committed(self, producer: tuple[int, int], *partitions: int, version: int) -> Ended:
        """A whole transaction."""
        self.add(producer, *partitions, version=version)
        ended = self.end(producer, version=version)
        assert self.written(ended.ending)
        return ended
