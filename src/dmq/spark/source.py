"""Batch reads: `spark.read.format("dmq")`. Plans on the driver, reads in the tasks.

Two classes, since Spark refuses a reader that can push filters down while that is turned off
(`spark.sql.python.filterPushdown.enabled`, off by default): the plain one, and the one for it.
"""

import sys
from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from dmq.spark.cluster import Cluster
from dmq.spark.failures import SparkSourceError
from dmq.spark.filters import Narrowing, narrow
from dmq.spark.offsets import OffsetFinder, Offsets, wait_for_brokers
from dmq.spark.options import EARLIEST, LATEST, Bound, SourceOptions
from dmq.spark.planning import Range, ranges_between, split
from dmq.spark.reader import RangePartition, read_partition
from dmq.spark.schema import check_schema
from dmq.spark.shipping import Shipped

_PUSHING = "pyspark.sql.worker.data_source_pushdown_filters"


class BatchReader(Shipped, DataSourceReader):
    """Reads what lies between two sets of offsets, once."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        check_schema(schema, options.includes_headers)
        options.check_batch()
        self._options = options
        self._schema = schema
        self._narrowing = Narrowing()

    def partitions(self) -> list[InputPartition]:
        """One or more tasks for each partition with records. Raises SparkSourceError."""
        cluster = Cluster(self._options.settings)
        try:
            wait_for_brokers(cluster)
            return list(self._plan(OffsetFinder(cluster, self._options)))
        finally:
            cluster.close()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The records of one task, as Arrow record batches."""
        return read_partition(self._options, self._schema, partition)

    def _plan(self, finder: OffsetFinder) -> Iterable[InputPartition]:
        options, narrowing = self._options, self._narrowing
        there = finder.partitions()
        starting = options.starting or Bound(everywhere=EARLIEST)
        ending = options.ending or Bound(everywhere=LATEST)
        start = finder.resolve(starting, there, is_start=True)
        end = finder.resolve(ending, there, is_start=False)
        _check_order(start, end)
        start = {p: offset for p, offset in start.items() if narrowing.has(*p)}
        end = {p: end[p] for p in start}
        self._narrow_offsets(finder, start, end)
        ranges = split(
            ranges_between(start, end), options.min_partitions, options.max_records_per_partition
        )
        return [self._task(range_) for range_ in ranges]

    def _narrow_offsets(self, finder: OffsetFinder, start: Offsets, end: Offsets) -> None:
        """Conditions on offsets and times, as far as offsets can say it, in place."""
        narrowing = self._narrowing
        for partition in start:
            if narrowing.offset_min is not None:
                start[partition] = max(start[partition], narrowing.offset_min)
            if narrowing.offset_max is not None:
                end[partition] = min(end[partition], narrowing.offset_max + 1)
        if narrowing.time_min is None:
            return
        # Before the first record that is not older, all are older; behind it there may be both.
        times = dict.fromkeys(start, max(0, narrowing.time_min))
        for partition, first in finder.at_times(times).items():
            start[partition] = max(start[partition], end[partition] if first < 0 else first)

    def _task(self, range_: Range) -> InputPartition:
        narrowing = self._narrowing
        return RangePartition(range_, narrowing.time_min, narrowing.time_max)


class FilteringBatchReader(BatchReader):
    """The same, told of the query's conditions first."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Take the conditions that are understood; returns those that are left to Spark."""
        self._narrowing, left = narrow(filters)
        return left


def batch_reader(options: SourceOptions, schema: StructType) -> BatchReader:
    """The reader for the process that asks: with filters only in Spark's worker that pushes them."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    is_pushing = _PUSHING in sys.modules or getattr(main, "name", "") == _PUSHING
    return (FilteringBatchReader if is_pushing else BatchReader)(options, schema)


def _check_order(start: Offsets, end: Offsets) -> None:
    for (topic, partition), first in start.items():
        if first > end[topic, partition]:
            raise SparkSourceError(
                f"{topic}-{partition} would be read from {first} to {end[topic, partition]}: the start"
                " lies behind the end; check startingOffsets and endingOffsets"
            )
