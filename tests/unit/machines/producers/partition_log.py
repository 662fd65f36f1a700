"""A partition's log as producer state sees it: batch headers, positions, a commit point.

`Partition` does with `ProducerState` what a leader does. `Naive` answers the same questions by reading
the whole log each time, in the words of the rules.
"""

from typing import NamedTuple

from dmq.errors import ErrorCode, KafkaError
from dmq.machines.producers.decided import DecidedTransactions
from dmq.machines.producers.entries import Marker
from dmq.machines.producers.snapshot import ProducerSnapshot
from dmq.machines.producers.state import Duplicate, ProducerState
from dmq.records import CONTROL, TRANSACTIONAL, BatchHeader
from dmq.types import Position


class Logged(NamedTuple):
    header: BatchHeader
    position: Position
    marker: Marker | None


def header_of(
    producer_id: int,
    sequence: int = 0,
    *,
    epoch: int = 0,
    count: int = 1,
    offset: int = 0,
    attributes: int = 0,
    timestamp: int = 1_000,
) -> BatchHeader:
    return BatchHeader(
        offset, 100, 1, 2, 0, attributes, count - 1, timestamp, timestamp,
        producer_id, epoch, sequence, count,
    )  # fmt: skip


class Partition:
    """A leader; batches get offsets in order, and are committed when told."""

    def __init__(self, **bounds: int) -> None:
        self.state = ProducerState(**bounds)
        self.log: list[Logged] = []
        self.commit = Position(1, 0, 0)
        self.leader_epoch = 1

    @property
    def end(self) -> int:
        return self.log[-1].position.offset if self.log else 0

    @property
    def last_stable_offset(self) -> int:
        return self.state.last_stable_offset(self.commit.offset)

    def produce(
        self,
        producer_id: int,
        sequence: int = 0,
        *,
        epoch: int = 0,
        count: int = 1,
        in_txn: bool = False,
        verified: int = 0,
        timestamp: int = 1_000,
    ) -> int | Duplicate:
        """The base offset of the batch, or of whom it is a duplicate. Raises KafkaError."""
        header = header_of(
            producer_id, sequence, epoch=epoch, count=count, offset=self.end,
            attributes=TRANSACTIONAL if in_txn else 0, timestamp=timestamp,
        )  # fmt: skip
        verdict = self.state.check(header, verified)
        return self.append(header) if verdict is None else verdict

    def end_txn(
        self,
        producer_id: int,
        *,
        epoch: int = 0,
        is_commit: bool = True,
        coordinator_epoch: int = 1,
        version: int = 1,
    ) -> int:
        """The offset of the marker. Raises KafkaError."""
        self.state.check_marker(producer_id, epoch, coordinator_epoch, version)
        header = header_of(
            producer_id, -1, epoch=epoch, offset=self.end, attributes=TRANSACTIONAL | CONTROL
        )
        return self.append(header, Marker(is_commit, coordinator_epoch))

    def append(self, header: BatchHeader, marker: Marker | None = None) -> int:
        position = Position(self.leader_epoch, 0, header.next_offset)
        self.log.append(Logged(header, position, marker))
        self.state.appended(header, position, marker)
        return header.base_offset

    def commit_all(self) -> None:
        if self.log:
            self.commit_to(self.log[-1].position)

    def commit_to(self, position: Position) -> None:
        self.commit = max(self.commit, position)
        self.state.committed(self.commit)

    def cut(self, position: Position) -> None:
        """Back to `position`, and a new leader epoch begins."""
        assert position >= self.commit
        self.log = [logged for logged in self.log if logged.position <= position]
        self.state.cut(position)
        self.leader_epoch += 1

    def reloaded(self, snapshot: bytes | None = None, **bounds: int) -> ProducerState:
        """The state as a restart builds it: from the log, or from a snapshot and the log."""
        state = ProducerState(**bounds)
        if snapshot is not None:
            state.restore(ProducerSnapshot.decode(snapshot))
        for header, position, marker in self.log:
            state.appended(header, position, marker)
        state.committed(self.commit)
        return state

    def followed(self, snapshot: bytes | None = None) -> DecidedTransactions:
        """What a follower knows that reads the same log up to the commit point."""
        saved = None if snapshot is None else ProducerSnapshot.decode(snapshot)
        decided = DecidedTransactions(saved)
        for header, position, marker in self.log:
            if position <= self.commit and (saved is None or position > saved.position):
                decided.committed(header, marker)
        return decided


class Naive:
    """The rules, read from the whole log."""

    def __init__(self, partition: Partition) -> None:
        self.log = partition.log
        self.commit = partition.commit

    def open_txn(self, producer_id: int, until: Position | None = None) -> int | None:
        start = None
        for header, position, marker in self.log:
            if header.producer_id != producer_id or (until is not None and position > until):
                continue
            if marker is not None:
                start = None
            elif start is None and header.is_transactional:
                start = header.base_offset
        return start

    def last_stable_offset(self) -> int:
        ids = {logged.header.producer_id for logged in self.log}
        starts = [self.open_txn(producer_id, self.commit) for producer_id in ids]
        return min([start for start in starts if start is not None] + [self.commit.offset])

    def aborted(self, start: int, end: int) -> set[tuple[int, int]]:
        found, begun = set(), {}
        for header, position, marker in self.log:
            if position > self.commit:
                break
            pid = header.producer_id
            if marker is None:
                if header.is_transactional:
                    begun.setdefault(pid, header.base_offset)
            elif pid in begun:
                first = begun.pop(pid)
                if not marker.is_commit and header.base_offset >= start and first < end:
                    found.add((pid, first))
        return found

    def check(self, header: BatchHeader, verified: int) -> ErrorCode | int | None:
        """A code, or the offset of the original, or None: to be appended."""
        mine = [logged for logged in self.log if logged.header.producer_id == header.producer_id]
        if not mine:
            unverified = header.is_transactional and not verified
            return ErrorCode.INVALID_TXN_STATE if unverified else None
        epoch = mine[-1].header.producer_epoch
        batches = []
        for logged in reversed(mine):
            if logged.header.producer_epoch != epoch:
                break
            if logged.marker is None:
                batches.insert(0, logged.header)
        if header.producer_epoch == epoch:
            for old in batches[-5:]:
                same = (old.base_sequence, old.record_count)
                if same == (header.base_sequence, header.record_count):
                    return old.base_offset
        return self._refusal(header, verified, epoch, batches)

    def _refusal(
        self, header: BatchHeader, verified: int, epoch: int, batches: list[BatchHeader]
    ) -> ErrorCode | None:
        if header.producer_epoch < epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        is_open = self.open_txn(header.producer_id) is not None
        if is_open and not header.is_transactional:
            return ErrorCode.INVALID_TXN_STATE
        same_epoch = header.producer_epoch == epoch
        if header.is_transactional and not (is_open and same_epoch) and not verified:
            return ErrorCode.INVALID_TXN_STATE
        expected = 0
        if same_epoch and batches:
            last = batches[-1]
            expected = (last.base_sequence + last.record_count) % 2**31
        if header.base_sequence != expected:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        return None


def outcome(partition: Partition, header: BatchHeader, verified: int) -> ErrorCode | int | None:
    """What the state says, in the words of `Naive.check`."""
    try:
        verdict = partition.state.check(header, verified)
    except KafkaError as refused:
        return refused.code
    return None if verdict is None else verdict.base_offset
