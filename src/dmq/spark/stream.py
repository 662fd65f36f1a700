"""Streams: `spark.readStream.format("dmq")`. Decides on the driver how far each micro-batch goes.

All methods but `read` run in one Python process that lives as long as the query, so the connections
and what was seen last are kept. Spark makes this object once more for the tasks: making it must not
connect to anything. Offsets are handed over in the form of Spark's Kafka source.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from dmq.spark.cluster import Cluster
from dmq.spark.failures import SparkSourceError
from dmq.spark.fetching import SETTLE_S
from dmq.spark.lag import GroupProgress
from dmq.spark.offsets import (
    OffsetFinder,
    Offsets,
    Partition,
    from_json,
    to_json,
    wait_for_brokers,
)
from dmq.spark.options import LATEST, Bound, SourceOptions, is_latest
from dmq.spark.planning import backlog, limited, limited_by_weight, ranges_between, split
from dmq.spark.reader import RangePartition, read_partition
from dmq.spark.schema import check_schema
from dmq.spark.shipping import Shipped
from dmq.spark.weights import look_ahead

NO_LIMIT = 2**63 - 1
LOOK_AGAIN_S = 0.2

log = logging.getLogger(__name__)


class StreamReader(Shipped, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics in micro-batches, each between two sets of offsets."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._driver: _Driver | None = None

    @property
    def _on_driver(self) -> "_Driver":
        if self._driver is None:
            # Not when this object is made: Spark's worker then hides the sentence behind an error of
            # its own.
            check_schema(self._schema, self._options.includes_headers)
            self._options.check_stream()
            self._driver = _Driver(self._options)
        return self._driver

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a query without a checkpoint begins."""
        return to_json(self._on_driver.initial())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """That there is a limit: which, only `latestOffset` knows. Spark has one kind at a time."""
        options = self._options
        if options.max_bytes_per_trigger or options.min_offsets_per_trigger:
            return ReadMaxRows(options.max_offsets_per_trigger or NO_LIMIT)
        if options.max_offsets_per_trigger:
            return ReadMaxRows(options.max_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """From now on, what is written later is not seen."""
        self._on_driver.freeze()

    def latestOffset(  # noqa: N802
        self, start: dict[str, Any], limit: ReadLimit
    ) -> dict[str, Any]:
        """Where the next micro-batch ends; `start` where there is nothing to read."""
        is_limited = not isinstance(limit, ReadAllAvailable)
        return to_json(self._on_driver.next_end(from_json(start), is_limited))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The end of the topics, for the query's progress: with it the progress shows the lag."""
        return to_json(self._on_driver.seen) or None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a micro-batch."""
        return self._on_driver.tasks(from_json(start), from_json(end))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The records of one task, as Arrow record batches."""
        return read_partition(self._options, self._schema, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """A micro-batch is done: show it."""
        self._on_driver.show(from_json(end))

    def stop(self) -> None:
        """The query ends."""
        if self._driver is not None:
            self._driver.close()
            self._driver = None


class _Driver:
    """What the driver's process knows of one query."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._cluster = Cluster(options.settings)
        self._finder = OffsetFinder(self._cluster, options)
        self._progress = (
            GroupProgress(self._cluster, options.group_id) if options.group_id else None
        )
        self._is_frozen = False
        self._target: Offsets | None = None
        self._new_starts: Offsets = {}
        self._initial: Offsets | None = None
        """What `initial` has said in this process, and where the first batch ends."""
        self._first_end: Offsets | None = None
        self._last_batch_at = float("-inf")
        self.seen: Offsets = {}
        """The end of all partitions when last asked."""

    def close(self) -> None:
        self._cluster.close()

    def show(self, done: Offsets) -> None:
        if self._progress is not None and done:
            self._progress.show(done)

    def initial(self) -> Offsets:
        wait_for_brokers(self._cluster)
        bound = self._options.starting or Bound(everywhere=LATEST)
        self._initial = self._finder.resolve(bound, self._finder.partitions(), is_start=True)
        return self._initial

    # --- how far

    def freeze(self) -> None:
        self._is_frozen = True

    def next_end(self, start: Offsets, is_limited: bool) -> Offsets:
        # All that lies before `start` has been processed; Spark itself says so only one batch later.
        self.show(start)
        end = self._latest(start)
        self.seen = dict(end)
        begins = start | self._begin_new(end.keys() - start.keys())
        end = {p: until for p, until in end.items() if p in begins}
        if is_limited:
            if self._is_too_early(begins, end):
                return start
            end = self._limited(begins, end)
        return end

    def _latest(self, start: Offsets) -> Offsets:
        if self._target is not None:
            return dict(self._target)
        deadline = time.monotonic() + SETTLE_S
        while True:
            end = self._finder.latest(self._finder.partitions())
            behind = [p for p, until in end.items() if until < start.get(p, 0)]
            if not behind or time.monotonic() > deadline:
                break
            # A leader that has just taken over may not know its end yet.
            time.sleep(LOOK_AGAIN_S)
        if self._is_frozen:
            self._target = dict(end)
        return end

    def _begin_new(self, partitions: Any) -> Offsets:
        """Partitions that came while the query ran are read from their first record."""
        unknown = [p for p in partitions if p not in self._new_starts]
        if unknown:
            self._new_starts |= self._finder.earliest(unknown)
            for topic, partition in unknown:
                first = self._new_starts[topic, partition]
                if first:
                    self._lost(f"new partition {topic}-{partition} starts at {first} instead of 0")
        return {p: self._new_starts[p] for p in partitions}

    def _is_too_early(self, start: Offsets, end: Offsets) -> bool:
        """minOffsetsPerTrigger: wait for more, but not for ever, and not when nothing more will come."""
        least = self._options.min_offsets_per_trigger
        now = time.monotonic()
        waited_ms = (now - self._last_batch_at) * 1000
        is_due = waited_ms >= self._options.max_trigger_delay_ms or self._is_frozen
        if least is not None and backlog(start, end) < least and not is_due:
            return True
        self._last_batch_at = now
        return False

    def _limited(self, start: Offsets, end: Offsets) -> Offsets:
        options = self._options
        if options.max_offsets_per_trigger is not None:
            end = limited(start, end, options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            waiting: list[Partition] = [p for p, until in end.items() if until > start[p]]
            found = look_ahead(self._cluster, self._finder, {p: start[p] for p in waiting})
            heavy_from = start | {p: weight.first for p, weight in found.items()}
            weights = {p: weight.bytes_per_offset for p, weight in found.items()}
            end = limited_by_weight(heavy_from, end, options.max_bytes_per_trigger, weights)
        return end

    # --- tasks

    def tasks(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        if start == self._initial and self._first_end in (None, end):
            self._first_end = end
            start = self._first_again(start, end)
        gone = start.keys() - end.keys() | self._deleted(end.keys() - start.keys())
        if gone:
            names = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(gone))
            self._lost(f"{names} is gone: was the topic deleted")
            end = {p: until for p, until in end.items() if p not in gone}
        begins = start | self._begin_new(end.keys() - start.keys())
        for (topic, partition), until in end.items():
            if until < begins[topic, partition]:
                self._lost(
                    f"{topic}-{partition} went back from offset {begins[topic, partition]} to {until}:"
                    " was the topic deleted and made anew"
                )
        options = self._options
        ranges = split(
            ranges_between(begins, end), options.min_partitions, options.max_records_per_partition
        )
        return [RangePartition(range_) for range_ in ranges]

    def _first_again(self, start: Offsets, end: Offsets) -> Offsets:
        """Where a query's first batch begins, which a run before this one may have planned.

        Spark keeps where that batch ends, not where it began, and asks for a beginning again. The end of
        a log has moved on since; partitions that came since are for the next batch.
        """
        bound = self._options.starting or Bound(everywhere=LATEST)
        found = {p: offset for p, offset in start.items() if p in end}
        for partition, offset in found.items():
            if is_latest(bound, partition) or (
                bound.is_time and self._options.latest_when_no_match
            ):
                found[partition] = min(offset, end[partition])
        return found

    def _deleted(self, partitions: Any) -> set[Partition]:
        """Those of them that a batch was planned with and that are no longer there."""
        return set(partitions) - set(self._finder.partitions()) if partitions else set()

    def _lost(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise SparkSourceError(
                f"{what}? Records may be missing. To go on with what is there, set"
                " failOnDataLoss=false; to begin anew, use another checkpoint."
            )
        log.warning("%s? Going on, since failOnDataLoss=false", what)
