"""Runs a machine on a partition: commands make records, the log keeps them, answers wait for it.

Owns the order of things (SPEC §7): `handle` sees the newest state; its records are appended as one
batch and applied at once; every answer, also an empty one, leaves when the position that the state
had is committed. An append that the disk refuses takes its records back: the machine is loaded anew.
Never interprets a command or a record.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from dmq.broker.answer import Answer
from dmq.broker.partition import Partition
from dmq.errors import DmqError, ErrorCode, KafkaError, StorageError
from dmq.machines.machine import Command, Machine
from dmq.machines.machine import Record as MachineRecord
from dmq.records import Record, build_batch, iterate, scan
from dmq.types import Millis

R = TypeVar("R")

log = logging.getLogger("dmq.broker")

LOAD_BYTES = 4 * 1024 * 1024
"""Read from the log in steps of this size while loading."""


class MachineHost:
    """One machine on the partition that is its log."""

    def __init__(
        self,
        machine: Machine,
        partition: Partition,
        *,
        reset: Callable[[], None],
        on_committed: Callable[[list[MachineRecord]], None],
    ) -> None:
        self.machine = machine
        self.partition = partition
        self._reset = reset
        """Makes the machine one that has seen no record."""
        self._on_committed = on_committed
        partition.on_refused = self._load_anew

    def load(self, on_record: Callable[[MachineRecord], None]) -> int:
        """Apply every record of the log; their number. It reads from the loop: at start, mostly."""
        partition, count = self.partition, 0
        offset, end = partition.log.log_start, partition.log.end.offset
        while offset < end:
            slices = partition.log.read(offset, LOAD_BYTES, end, whole_first_batch=True)
            before = offset
            for piece in slices:
                data = piece.pread()
                for position, header in scan(data):
                    offset = header.next_offset
                    if header.is_control:
                        continue
                    for record in iterate(data, position, header):
                        loaded = MachineRecord(record.key or b"", record.value)
                        self.machine.apply(loaded)
                        on_record(loaded)
                        count += 1
            assert offset > before, "the machine's log can't be read to its end"
        return count

    def _load_anew(self) -> None:
        """The disk refused records that were applied already: back to what the log has. Those who
        wait for them, or rest on them, are told afterwards."""
        log.warning("the disk refused records of %s", self.partition)
        self._reset()
        self.load(lambda record: None)

    def submit(self, command: Command[R], now: int) -> Answer[R]:
        """Give a command; the answer comes when what it rests on is committed."""
        answer: Answer[R] = Answer()
        try:
            outcome = self.machine.handle(command, Millis(now))
        except DmqError as error:
            self.partition.when_committed(partial(_refuse, answer, error))
            return answer
        records = outcome.records
        if records:
            try:
                self._append(records, now)
            except StorageError as error:  # Before anything was applied.
                answer.fail(error)
                return answer
        response = outcome.response

        def settled(code: ErrorCode) -> None:
            if code is not ErrorCode.NONE:
                answer.fail(KafkaError(code))
                return
            if records:
                self._on_committed(records)
            answer.resolve(response)

        self.partition.when_committed(settled)
        return answer

    def _append(self, records: list[MachineRecord], now: int) -> None:
        first = self.partition.log_end_offset
        batch = build_batch(
            [Record(first + n, now, record.key, record.value) for n, record in enumerate(records)]
        )
        self.partition.append_own(batch)
        for record in records:
            self.machine.apply(record)


def _refuse(answer: Answer[R], error: DmqError, code: ErrorCode) -> None:
    answer.fail(error if code is ErrorCode.NONE else KafkaError(code))
