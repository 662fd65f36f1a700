"""A coordinator and a partition's leader with their logs, as a cluster would run them.

Both lose what is not committed when they crash, and are built anew from their records. Answers leave
when what they rest on is committed. `World` decides when that is, and carries the messages.
"""

import dataclasses
from collections.abc import Callable
from random import Random
from typing import Any

from unit.machines.producers.partition_log import Logged, header_of

from dmq.broker.transaction_records import TransactionRecords
from dmq.errors import ErrorCode, KafkaError
from dmq.machines.machine import Command, Record
from dmq.machines.producers.admission import Admission, Leave
from dmq.machines.producers.entries import Marker
from dmq.machines.producers.guards import VerificationGuards
from dmq.machines.producers.snapshot import ProducerSnapshot
from dmq.machines.producers.state import Duplicate, ProducerState
from dmq.machines.transactions.commands import (
    AbortTimedOut,
    Ending,
    MarkersWritten,
    NeedsProducerIdError,
    ResumeEndings,
    TxnMarker,
)
from dmq.machines.transactions.machine import TransactionLimits, TransactionMachine
from dmq.records import CONTROL, TRANSACTIONAL, BatchHeader
from dmq.types import Millis, Position

OnAnswer = Callable[[Any], None]
SendMarker = Callable[[TxnMarker, OnAnswer], None]


class CoordinatorHost:
    """The machine, its log, and the markers that are on their way."""

    def __init__(self, dice: Random, send_marker: SendMarker) -> None:
        self.dice = dice
        self.send_marker = send_marker
        self.records: list[Record] = []
        self.committed = 0
        self.epoch = 0
        self.now = 1_000
        self.next_producer_id = 100
        self.begin_to_lead()

    def begin_to_lead(self) -> None:
        self.machine = TransactionMachine(TransactionRecords(), TransactionLimits())
        self.epoch += 1
        self.machine.coordinator_epoch = self.epoch
        known = self.records
        if self.dice.random() < 0.5:
            known = list({record.key: record for record in known}.values())
        for record in known:
            self.machine.apply(record)
        self.leading_since = self.now
        self.waiting: list[tuple[int, Callable[[], None]]] = []
        self.endings: dict[Ending, set[TxnMarker]] = {}
        self.submit(ResumeEndings(), self.begin_all)

    def submit(self, command: Command[Any], on_answer: OnAnswer) -> None:
        """`on_answer` gets the response, or the KafkaError, when it may be told."""
        answer: Any
        try:
            answer, records = self.handle(command)
        except KafkaError as refused:
            answer, records = refused, []
        for record in records:
            self.machine.apply(record)
        self.records += records
        self.waiting.append((len(self.records), lambda: on_answer(answer)))

    def handle(self, command: Command[Any]) -> tuple[Any, list[Record]]:
        try:
            outcome = self.machine.handle(command, Millis(self.now))
        except NeedsProducerIdError:
            self.next_producer_id += 1
            again = dataclasses.replace(command, spare_producer_id=self.next_producer_id)  # type: ignore[type-var]
            outcome = self.machine.handle(again, Millis(self.now))
        return outcome.response, outcome.records

    def commit(self, to: int | None = None) -> None:
        self.committed = len(self.records) if to is None else to
        ready = [tell for end, tell in self.waiting if end <= self.committed]
        self.waiting = [entry for entry in self.waiting if entry[0] > self.committed]
        for tell in ready:
            tell()

    def crash(self) -> None:
        """Another replica leads: it has all that is committed, and perhaps more."""
        del self.records[self.dice.randint(self.committed, len(self.records)) :]
        self.begin_to_lead()

    def abort_timed_out(self) -> None:
        self.submit(AbortTimedOut(self.leading_since), self.begin_all)

    # ---- markers

    def begin_all(self, endings: list[Ending]) -> None:
        for ending in endings:
            self.begin(ending)

    def begin(self, ending: Ending | None) -> None:
        if ending is not None:
            self.endings[ending] = set(ending.markers)
            self.send(ending)

    def send_again(self) -> None:
        for ending in list(self.endings):
            self.send(ending)

    def send(self, ending: Ending) -> None:
        epoch = self.epoch
        for marker in ending.markers:
            if marker in self.endings[ending]:
                self.send_marker(
                    marker, lambda code, m=marker: self.written(epoch, ending, m, code)
                )

    def written(self, epoch: int, ending: Ending, marker: TxnMarker, code: ErrorCode) -> None:
        lacking = self.endings.get(ending)
        if epoch != self.epoch or lacking is None or code is not ErrorCode.NONE:
            return
        lacking.discard(marker)
        if not lacking:
            del self.endings[ending]
            self.submit(MarkersWritten(*ending[:3]), lambda answer: None)


class PartitionHost:
    """A partition's leader: producer state, guards, log, and who waits for its commit."""

    def __init__(self, index: int, dice: Random) -> None:
        self.index = index
        self.dice = dice
        self.log: list[Logged] = []
        self.values: dict[Position, str] = {}
        self.leader_epoch = 1
        self.commit_position = Position(0, 0, 0)
        self.state = ProducerState()
        self.guards = VerificationGuards()
        self.snapshot: bytes | None = None
        self.waiting: list[tuple[Position, Callable[[], None]]] = []
        self.read_before: list[str] = []

    @property
    def end(self) -> int:
        return self.log[-1].position.offset if self.log else 0

    @property
    def admission(self) -> Admission:
        return Admission(self.state, self.guards)

    # ---- writing

    def header(self, producer_id: int, epoch: int, sequence: int) -> BatchHeader:
        return header_of(
            producer_id, sequence, epoch=epoch, offset=self.end, attributes=TRANSACTIONAL
        )

    def append(
        self, header: BatchHeader, value: str, on_answer: OnAnswer, now: int
    ) -> ErrorCode | Leave:
        """NONE, and `on_answer` comes with the commit; or why not; or the coordinator is asked."""
        try:
            verdict = self.admission.check(header, now)
        except KafkaError as refused:
            return refused.code
        if isinstance(verdict, Leave):
            return verdict
        if isinstance(verdict, Duplicate):
            self.when_committed(verdict.position, on_answer)
            return ErrorCode.NONE
        position = Position(self.leader_epoch, 0, header.next_offset)
        self.log.append(Logged(header, position, None))
        self.values[position] = value
        self.admission.appended(header, position)
        self.when_committed(position, on_answer)
        return ErrorCode.NONE

    def write_marker(self, marker: TxnMarker, on_answer: OnAnswer) -> None:
        _, _, producer_id, epoch, is_commit, coordinator_epoch, version = marker
        try:
            self.state.check_marker(producer_id, epoch, coordinator_epoch, version)
        except KafkaError as refused:
            done = refused.code is ErrorCode.INVALID_PRODUCER_EPOCH  # It was here before.
            on_answer(ErrorCode.NONE if done else refused.code)
            return
        header = header_of(
            producer_id, -1, epoch=epoch, offset=self.end, attributes=TRANSACTIONAL | CONTROL
        )
        position = Position(self.leader_epoch, 0, header.next_offset)
        self.log.append(Logged(header, position, Marker(is_commit, coordinator_epoch)))
        self.admission.appended(header, position, Marker(is_commit, coordinator_epoch))
        self.when_committed(position, on_answer)

    def when_committed(self, position: Position | None, on_answer: OnAnswer) -> None:
        if position is None or position <= self.commit_position:
            on_answer(ErrorCode.NONE)
        else:
            self.waiting.append((position, lambda: on_answer(ErrorCode.NONE)))

    # ---- the log

    def commit(self, position: Position) -> None:
        self.commit_position = position
        self.state.committed(position)
        ready = [tell for at, tell in self.waiting if at <= position]
        self.waiting = [entry for entry in self.waiting if entry[0] > position]
        for tell in ready:
            tell()
        self.check_reading()

    def crash(self) -> None:
        """The log is cut somewhere above the commit point; the next leader may be this replica
        again, or one that builds its state from the log."""
        ends = [logged.position for logged in self.log if logged.position > self.commit_position]
        cut = self.dice.choice([self.commit_position, *ends])
        self.log = [logged for logged in self.log if logged.position <= cut]
        self.leader_epoch += 1
        self.waiting = []
        self.guards = VerificationGuards()
        if self.dice.random() < 0.5:
            self.state.cut(cut)
            return
        self.state = ProducerState()
        if self.snapshot is not None and self.dice.random() < 0.5:
            self.state.restore(ProducerSnapshot.decode(self.snapshot))
        for header, position, marker in self.log:
            self.state.appended(header, position, marker)
        self.state.committed(self.commit_position)

    def take_snapshot(self) -> None:
        self.snapshot = self.state.snapshot(self.commit_position).encode()

    # ---- reading

    def last_stable_offset(self) -> int:
        return self.state.last_stable_offset(self.commit_position.offset)

    def read_committed(self) -> list[str]:
        """As a consumer does: up to the last stable offset, without what it is told was aborted."""
        stable = self.last_stable_offset()
        aborted = sorted(self.state.aborted(0, stable), key=lambda a: a.first_offset, reverse=True)
        skipped: set[int] = set()
        values = []
        for header, position, marker in self.log:
            if header.base_offset >= stable:
                break
            while aborted and aborted[-1].first_offset <= header.base_offset:
                skipped.add(aborted.pop().producer_id)
            if marker is not None:
                if not marker.is_commit:
                    skipped.discard(header.producer_id)
            elif header.producer_id not in skipped:
                values.append(self.values[position])
        return values

    def read_by_markers(self) -> list[str]:
        """The same by the log alone: a batch counts if the next marker of its producer commits."""
        stable = self.last_stable_offset()
        found = []
        for n, (header, position, marker) in enumerate(self.log):
            if marker is not None or header.base_offset >= stable:
                continue
            ends = [
                later.marker
                for later in self.log[n:]
                if later.marker is not None
                and later.header.producer_id == header.producer_id
                and later.position <= self.commit_position
            ]
            assert ends, "below the last stable offset everything is decided"
            if ends[0].is_commit:
                found.append(self.values[position])
        return found

    def check_reading(self) -> None:
        now = self.read_committed()
        assert now == self.read_by_markers(), "an aborted record is read, or a committed one is not"
        before = self.read_before
        assert now[: len(before)] == before, "what was read as committed has changed"
        self.read_before = now
