"""Rounds of compaction: which log is next, and what becomes of what the compactor made.

    resting    until `log.cleaner.backoff.ms` is over, or a result comes
    looking    through all compacted logs, a slice per tick; the dirtiest is taken
    working    the compactor has the job
    swapping   its files take the places of the old ones, one after the other, each when the one
               before is durable, however long that takes and whatever the clock says

Deterministic: `tick` gets the time. Never opens a record, never waits. The oldest segments are
swapped first: a tombstone goes in the same swap as what it deletes, or in a later one, whenever a
crash comes. A log that was dropped, reset or damaged since keeps what it has. Bad bytes that the
compactor meets are told to the partition, which has them repaired. Called by housekeeping.
"""

import enum
import logging
from collections.abc import Callable
from typing import NamedTuple

from dmq.broker.compactor import Compactor
from dmq.broker.multiraft.cargo import Sight
from dmq.broker.partition import Partition
from dmq.config.broker import BrokerConfig
from dmq.config.topic import TopicConfig
from dmq.errors import StorageError
from dmq.storage import compaction_points
from dmq.storage.compaction import Candidate, Lag, choose
from dmq.storage.compaction_job import Job, Outcome, Result, Source, Swap
from dmq.storage.compaction_run import KEY_BYTES
from dmq.storage.log import Log
from dmq.storage.store import Store

log = logging.getLogger("dmq.broker")

SLICE = 200
"""Partitions looked at per tick: a millisecond or so."""
RETRY_MS = 60_000
"""How long a log rests that could not be compacted; the reason does not go away by itself, or only
when a transaction ends."""

Kept = tuple[Partition, TopicConfig]


class Stage(enum.Enum):
    """See the module."""

    RESTING = enum.auto()
    LOOKING = enum.auto()
    WORKING = enum.auto()
    SWAPPING = enum.auto()


class Best(NamedTuple):
    """The dirtiest log so far."""

    partition: Partition
    config: TopicConfig
    candidate: Candidate


class Compaction:
    """One round after the other, one log at a time."""

    def __init__(self, store: Store, compactor: Compactor) -> None:
        self._store = store
        self._files = store.pool.files
        self._compactor = compactor
        points = compaction_points.load(self._files) if store.recovery.is_clean else {}
        self._points = {uid: (0, point) for uid, point in points.items()}
        """uid -> the life of the log that is clean, and up to where."""
        self.stage = Stage.RESTING
        self._rests_until: int | None = None
        self._queue: list[Kept] = []
        self._best: Best | None = None
        self._failed: dict[int, int] = {}
        """uid -> when it may be tried again."""
        self._partition: Partition | None = None
        self._job: Job | None = None
        self._life = 0
        self._seen: Sight | None = None
        """What the compactor reads."""
        self._outcome: Outcome = None
        self._has_answer = False
        self._swaps: list[Swap] = []
        """To be done, the next one last."""
        self._swapping: Swap | None = None
        self._swap_count = 0
        """Of the log, before that one."""

    def tick(self, now: int, settings: BrokerConfig, everything: Callable[[], list[Kept]]) -> None:
        """One step; bounded work."""
        backoff_ms = settings.log_cleaner_backoff_ms
        if self.stage is Stage.RESTING and self._is_rested(now, backoff_ms):
            if settings.log_cleaner_enable and not self._store.is_full:
                self._queue = everything()
                self._queue.reverse()
                self.stage = Stage.LOOKING
            else:
                self._rest(now + backoff_ms)
        elif self.stage is Stage.LOOKING:
            self._look(now, settings)
        elif self.stage is Stage.WORKING and self._has_answer:
            self._take_answer(now)
        elif self.stage is Stage.SWAPPING:
            self._swap_on(now)

    def _is_rested(self, now: int, backoff_ms: int) -> bool:
        if self._rests_until is None:
            self._rests_until = now + backoff_ms
        return not 0 < self._rests_until - now <= backoff_ms

    def _rest(self, until: int) -> None:
        self.stage = Stage.RESTING
        self._rests_until = until

    # ---- looking

    def _look(self, now: int, settings: BrokerConfig) -> None:
        for _ in range(min(SLICE, len(self._queue))):
            partition, config = self._queue.pop()
            if config.compacts and self._is_open_to(partition, now):
                try:
                    self._consider(partition, config, now)
                except (StorageError, OSError) as error:
                    self._put_off(partition, error, now)
        if self._queue:
            return
        best, self._best = self._best, None
        if best is not None:
            try:
                self._start(best, settings, now)
            except (StorageError, OSError) as error:
                self._put_off(best.partition, error, now)  # Else it would be the best for ever.
            return
        self._compactor.rest()
        self._rest(now + settings.log_cleaner_backoff_ms)

    def _put_off(self, partition: Partition, error: Exception, now: int) -> None:
        """Its bytes are bad, or there are no descriptors: others first, this one again later."""
        self._failed[partition.log.uid] = now + RETRY_MS
        log.warning("%s can't be compacted: %s", partition, error)

    def _is_open_to(self, partition: Partition, now: int) -> bool:
        found = partition.log
        if partition.is_retired or found.is_dropped or found.is_damaged or found.is_recovering:
            return False
        if found.is_swapping:
            return False  # The file of a swap must not be taken for one that nobody needs.
        until = self._failed.get(found.uid, now)
        if 0 < until - now <= RETRY_MS:
            return False
        self._failed.pop(found.uid, None)
        return True

    def _consider(self, partition: Partition, config: TopicConfig, now: int) -> None:
        flushed = partition.log.flushed_base
        limit = partition.high_watermark
        found = self._choose(partition, config, min(limit, flushed), now)
        if found is None:
            if flushed < limit and self._choose(partition, config, limit, now) is not None:
                self._store.request_flush(partition.log)
            return
        best = self._best
        rank = (found.dirty_ratio, found.is_overdue)
        if best is None or rank > (best.candidate.dirty_ratio, best.candidate.is_overdue):
            self._best = Best(partition, config, found)

    def _choose(
        self, partition: Partition, config: TopicConfig, limit: int, now: int
    ) -> Candidate | None:
        found = partition.log
        return choose(
            found.segments(),
            log_start=found.log_start,
            clean_point=self._clean_point(found),
            limit=limit,
            lag=Lag(
                config.min_cleanable_dirty_ratio,
                config.min_compaction_lag_ms,
                config.max_compaction_lag_ms,
            ),
            now=now,
            first_timestamp=lambda at: found.reader(found.segments_list[at]).first_timestamp(),
        )

    def _clean_point(self, found: Log) -> int:
        life, point = self._points.get(found.uid, (found.life, -1))
        return point if life == found.life else -1

    # ---- working

    def _start(self, best: Best, settings: BrokerConfig, now: int) -> None:
        found, config, candidate = best.partition.log, best.config, best.candidate
        self._remove_forgotten(found)
        sources = [
            Source(segment.base, segment.size, segment.max_timestamp)
            for segment in found.segments()[: candidate.taken]
        ]
        self._partition, self._life = best.partition, found.life
        self._job = job = Job(
            uid=found.uid,
            directory=found.directory,
            segments=tuple(sources),
            end=candidate.end,
            log_start=found.log_start,
            first_dirty=candidate.first_dirty,
            now=now,
            delete_retention_ms=config.delete_retention_ms,
            producer_expiration_ms=settings.producer_id_expiration_ms,
            segment_bytes=found.settings.segment_bytes,
            index_interval_bytes=found.settings.index_interval_bytes,
            keys_max=settings.log_cleaner_dedupe_buffer_size // KEY_BYTES,
            bytes_per_second=settings.log_cleaner_io_max_bytes_per_second,
            edges=tuple(mark.offset for mark in found.marks if mark.offset < candidate.end),
        )
        self._seen = Sight.of(found)
        self._has_answer = False
        self.stage = Stage.WORKING
        self._compactor.start(job, self._answered)

    def _remove_forgotten(self, found: Log) -> None:
        """Files of swaps that came to nothing when a broker stopped."""
        for name in self._files.list(found.directory):
            token = name.partition(".")[2].removesuffix(".swap")
            if token.isdigit():
                self._files.unlink(f"{found.directory}/{name}")

    def _answered(self, outcome: Outcome) -> None:
        self._outcome, self._has_answer = outcome, True

    def _take_answer(self, now: int) -> None:
        partition, outcome = self._partition, self._outcome
        assert self._job is not None
        assert partition is not None
        if isinstance(outcome, Result):
            self._begin_swaps(now, outcome)
            return
        self._failed[self._job.uid] = now + RETRY_MS
        if outcome is not None and self._seen is not None and self._is_whole(partition):
            partition.found_bad(outcome, self._seen)
        self._look_on(now)

    def _look_on(self, now: int) -> None:
        """There may be another log to clean."""
        self._job = self._partition = self._seen = self._outcome = self._swapping = None
        self._rest(now)

    # ---- swapping

    def _begin_swaps(self, now: int, result: Result) -> None:
        log.info(
            "compacted %s up to %d: %d of %d records, %d of %d bytes kept",
            self._partition,
            result.clean_point,
            result.records_kept,
            result.records_read,
            result.bytes_kept,
            result.bytes_read,
        )
        self._swaps = list(reversed(result.swaps))
        self._swapping = None
        self.stage = Stage.SWAPPING
        self._swap_on(now)

    def _swap_on(self, now: int) -> None:
        """The next swap, if the one before is done; the clean point after the last."""
        partition, job, result = self._partition, self._job, self._outcome
        assert partition is not None
        assert job is not None
        assert isinstance(result, Result)
        found = partition.log
        if not self._is_whole(partition):
            self._discard(found, job)
            self._look_on(now)
        elif found.is_swapping:
            return
        elif self._came_to_nothing(found):
            # Nothing that follows may count either.
            self._discard(found, job)
            self._look_on(now)
        elif self._swaps:
            self._swap(found, job, now)
        else:
            # Not earlier: a point that runs ahead of the files would let tombstones go before
            # what they delete.
            self._points[found.uid] = (self._life, result.clean_point)
            self._save_points()
            if result.clean_point <= job.first_dirty:
                # A transaction is open there: the next round would come just as far.
                self._failed[found.uid] = now + RETRY_MS
            self._look_on(now)

    def _is_whole(self, partition: Partition) -> bool:
        found = partition.log
        is_another = self._job is None or found.uid != self._job.uid or found.life != self._life
        return not (is_another or partition.is_retired or found.is_dropped or found.is_damaged)

    def _came_to_nothing(self, found: Log) -> bool:
        """Whether the log did not take the last file, though it has what that was to replace."""
        swap = self._swapping
        return (
            swap is not None
            and found.swap_count == self._swap_count
            and swap.bases[-1] >= _first_kept(found)
        )

    def _swap(self, found: Log, job: Job, now: int) -> None:
        swap = self._swaps[-1]
        kept = _first_kept(found)
        if swap.bases[-1] < kept:
            self._discard_file(job, self._swaps.pop())  # Trimmed meanwhile.
            return
        sizes = {segment.base: segment.size for segment in found.segments_list}
        read = {source.base: source.size for source in job.segments}
        if swap.bases[0] < kept or any(sizes.get(base) != read[base] for base in swap.bases):
            # Some of it is trimmed. Nothing that follows may count either.
            self._discard(found, job)
            self._look_on(now)
            return
        self._swaps.pop()
        self._swapping, self._swap_count = swap, found.swap_count
        found.replace_segments(swap.bases, swap.size, swap.max_timestamp)

    def _save_points(self) -> None:
        logs = self._store.logs
        self._points = {
            uid: (life, point)
            for uid, (life, point) in self._points.items()
            if uid in logs and logs[uid].life == life
        }
        try:
            compaction_points.save(
                self._files, {u: point for u, (_, point) in self._points.items()}
            )
        except OSError as error:
            log.warning(
                "clean points can't be saved; after a restart logs are cleaned anew: %s", error
            )

    def _discard(self, found: Log, job: Job) -> None:
        """Files that will not be used; those of a dropped log go with its folder."""
        if not found.is_dropped:
            for swap in self._swaps:
                self._discard_file(job, swap)
        self._swaps = []

    def _discard_file(self, job: Job, swap: Swap) -> None:
        for kind in ("", "index", "timeindex"):
            name = job.swap_name(swap.bases[0], kind)
            if self._files.exists(name):
                self._files.unlink(name)


def _first_kept(found: Log) -> int:
    """Base of the first segment that the log will have when its start, as staged, is trimmed."""
    bases = [segment.base for segment in found.segments_list]
    return max((base for base in bases if base <= found.log_start), default=bases[0])
