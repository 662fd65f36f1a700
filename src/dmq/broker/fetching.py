"""The verb `fetch`: read what is there, or wait until enough is.

Owns the long poll. A fetch reads all its partitions at once; if that gives too little, it parks a
waiter at each of them and reads again when enough bytes were committed or its patience ends. So does
one that asks for more than the log has while it is not known whether another broker leads by now. It
copies no record bytes: results are slices of files.
"""

import logging
from collections.abc import Callable
from typing import NamedTuple, Protocol
from uuid import UUID

from dmq.broker.multiraft.replica import UnsureError
from dmq.broker.multiraft.waiting import FetchWaiter
from dmq.broker.partition import Partition
from dmq.broker.timers import Timer, Timers
from dmq.errors import DmqError, ErrorCode
from dmq.machines.producers.aborted import AbortedTxn
from dmq.storage.reading import FileSlice

log = logging.getLogger("dmq.broker")

NOT_KNOWN = -1
"""A last stable offset that a follower is just reading up to; clients take it for none."""


class Slices:
    """Record bytes of one partition, still in their files; `wire` takes anything with a length."""

    __slots__ = ("_size", "slices")

    def __init__(self, slices: list[FileSlice]) -> None:
        self.slices = slices
        self._size = sum(map(len, slices))

    def __len__(self) -> int:
        return self._size


class FetchSpec(NamedTuple):
    """What is wanted of one partition."""

    topic: str
    topic_id: UUID
    partition: int
    offset: int
    bytes_max: int
    leader_epoch: int = -1
    """The epoch in which the client believes; -1: it does not say."""
    last_fetched_epoch: int = -1


class FetchResult(NamedTuple):
    """What one partition gave."""

    spec: FetchSpec
    code: ErrorCode
    high_watermark: int = -1
    log_start_offset: int = -1
    records: Slices | None = None
    diverging: tuple[int, int] | None = None
    """(epoch, end offset) where the reader's log parts from ours (KIP-595)."""
    last_stable_offset: int | None = None
    """For readers of committed transactions; -1: not known yet. None: the high watermark."""
    aborted: list[AbortedTxn] | None = None
    """Transactions in what was read whose records are to be skipped."""
    preferred: int = -1
    """The broker that this reader should rather ask (KIP-392)."""


OnFetched = Callable[[list[FetchResult]], None]


def code_of(error: DmqError | OSError) -> ErrorCode:
    """What a reader is told; a file that can't be opened or read concerns one partition only."""
    if isinstance(error, DmqError):
        return error.code
    log.warning("a log can't be read: %s", error)
    return ErrorCode.KAFKA_STORAGE_ERROR


class FindPartition(Protocol):
    def __call__(self, topic: str, topic_id: UUID, index: int) -> Partition: ...


Prefer = Callable[[Partition, str, int], int]


class How(NamedTuple):
    """Who reads, and what of it."""

    rack: str | None
    committed_only: bool
    asked_at: int | None = None
    """Since when it waits; None: it was asked just now."""


class Fetcher:
    """All fetches under way on this broker."""

    def __init__(
        self,
        find: FindPartition,
        timers: Timers,
        parked_max: int,
        prefer: Prefer = lambda partition, rack, offset: -1,
    ) -> None:
        """`prefer`: the broker that a reader in a rack should rather ask; -1: this one."""
        self._find = find
        self._prefer = prefer
        self._timers = timers
        self._parked_max = parked_max
        self.parked_count = 0

    def fetch(
        self,
        specs: list[FetchSpec],
        *,
        bytes_min: int,
        bytes_max: int,
        deadline: int | None,
        on_done: OnFetched,
        rack: str | None = None,
        committed_only: bool = False,
    ) -> "Callable[[], None] | None":
        """Read, and call `on_done` with one result per spec: now, or until `deadline` (ms).

        `rack`: where the reader is; then a follower may serve it, and a leader may send it to one
        (KIP-392). None: only leaders.
        At `parked_max` waiting fetches a further one is answered at once with what is there.
        Returns what cancels the wait, if there is one.
        """
        how = How(rack, committed_only)
        results, size, is_final = self.read(specs, bytes_max, how)
        if is_final or size >= bytes_min or deadline is None or not specs:
            on_done(results)
            return None
        if self.parked_count >= self._parked_max:
            on_done(results)
            return None
        parked = _Parked(self, specs, bytes_max, how, on_done)
        parked.park(bytes_min - size, deadline)
        return parked.cancel

    def read(
        self, specs: list[FetchSpec], bytes_max: int, how: "How"
    ) -> tuple[list[FetchResult], int, bool]:
        """(results, bytes, whether there is something that must be told at once)."""
        results: list[FetchResult] = []
        left, total, is_final = bytes_max, 0, False
        for spec in specs:
            try:
                partition = self._find(spec.topic, spec.topic_id, spec.partition)
                result = self._read_one(partition, spec, left, how, is_first=total == 0)
            except (DmqError, OSError) as error:
                results.append(FetchResult(spec, code_of(error)))
                is_final = is_final or not isinstance(error, UnsureError)
                continue
            if result.records is not None:
                left -= len(result.records)
                total += len(result.records)
            elif result.diverging is not None or result.preferred >= 0:
                is_final = True
            results.append(result)
        return results, total, is_final

    def _read_one(
        self, partition: Partition, spec: FetchSpec, left: int, how: How, is_first: bool
    ) -> FetchResult:
        is_leader = partition.is_leader
        if not is_leader and (how.rack is None or (how.committed_only and not how.rack)):
            partition.check_leads()
        if spec.leader_epoch >= 0:
            partition.check_epoch(spec.leader_epoch)
        high_watermark = partition.high_watermark
        start = partition.log.log_start
        if how.rack and is_leader and spec.offset >= start:
            preferred = self._prefer(partition, how.rack, spec.offset)
            if preferred >= 0:
                stable = partition.last_stable_offset() if how.committed_only else None
                return FetchResult(
                    spec,
                    ErrorCode.NONE,
                    high_watermark,
                    start,
                    last_stable_offset=stable,
                    preferred=preferred,
                )
        if spec.last_fetched_epoch >= 0:
            epoch, end = partition.end_of_epoch(spec.last_fetched_epoch)
            if epoch < spec.last_fetched_epoch or end < spec.offset:
                partition.check_newest(how.asked_at)
                return FetchResult(
                    spec, ErrorCode.NONE, high_watermark, start, diverging=(epoch, end)
                )
        if how.committed_only:
            return _read_committed(partition, spec, left, how, is_first)
        if spec.offset == high_watermark:  # The usual case of a reader that keeps up.
            return FetchResult(spec, ErrorCode.NONE, high_watermark, start)
        slices = partition.read(
            spec.offset,
            min(spec.bytes_max, left),
            whole_first_batch=is_first,
            asked_at=how.asked_at,
        )
        return FetchResult(
            spec, ErrorCode.NONE, high_watermark, start, Slices(slices) if slices else None
        )

    def partitions_of(self, specs: list[FetchSpec]) -> list[Partition]:
        return [self._find(spec.topic, spec.topic_id, spec.partition) for spec in specs]

    def at(self, deadline: int, callback: Callable[[], None]) -> Timer:
        return self._timers.at(deadline, callback)


def _read_committed(
    partition: Partition, spec: FetchSpec, left: int, how: How, is_first: bool
) -> FetchResult:
    """Up to the last stable offset, with what was aborted on the way; nothing from a follower that
    does not know that yet, so that the reader waits. Raises DmqError or OSError."""
    high_watermark, start = partition.high_watermark, partition.log.log_start
    bytes_max = min(spec.bytes_max, left)
    read = partition.read_committed(
        spec.offset, bytes_max, whole_first_batch=is_first, asked_at=how.asked_at
    )
    if read is None:
        return FetchResult(
            spec, ErrorCode.NONE, high_watermark, start, last_stable_offset=NOT_KNOWN
        )
    return FetchResult(
        spec,
        ErrorCode.NONE,
        high_watermark,
        start,
        Slices(read.slices) if read.slices else None,
        last_stable_offset=read.last_stable_offset,
        aborted=read.aborted,
    )


class _Parked:
    """One waiting fetch."""

    __slots__ = (
        "_bytes_max",
        "_fetcher",
        "_how",
        "_on_done",
        "_partitions",
        "_specs",
        "_timer",
        "_waiter",
    )

    def __init__(
        self,
        fetcher: Fetcher,
        specs: list[FetchSpec],
        bytes_max: int,
        how: How,
        on_done: OnFetched,
    ) -> None:
        self._fetcher = fetcher
        self._specs = specs
        self._bytes_max = bytes_max
        self._on_done = on_done
        self._partitions = fetcher.partitions_of(specs)
        self._how = how._replace(asked_at=self._partitions[0].now())
        self._waiter: FetchWaiter | None = None
        self._timer: Timer | None = None

    def park(self, missing_bytes: int, deadline: int) -> None:
        waiter = self._waiter = FetchWaiter(missing_bytes, self._finish)
        for partition in self._partitions:
            partition.wait(waiter)
        self._timer = self._fetcher.at(deadline, waiter.wake)
        self._fetcher.parked_count += 1

    def _leave(self) -> None:
        assert self._waiter is not None
        assert self._timer is not None
        self._timer.cancel()
        for partition in self._partitions:
            partition.forget(self._waiter)
        self._fetcher.parked_count -= 1

    def _finish(self) -> None:
        self._leave()
        results, _, _ = self._fetcher.read(self._specs, self._bytes_max, self._how)
        self._on_done(results)

    def cancel(self) -> None:
        """Nobody wants the answer any longer."""
        assert self._waiter is not None
        if self._waiter.callback is not None:
            self._waiter.callback = None
            self._leave()
