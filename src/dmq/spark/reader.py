"""What a task gets and does: a range of a partition, read with connections that outlive the task.

Spark keeps Python workers for many tasks (`spark.python.worker.reuse`), so connections are kept in
the process, by the settings they were made with.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from dmq.spark.cluster import Cluster, Settings
from dmq.spark.decode import Wanted
from dmq.spark.fetching import RangeReader
from dmq.spark.options import SourceOptions
from dmq.spark.planning import Range
from dmq.spark.schema import arrow_schema

_clusters: dict[Settings, Cluster] = {}


@dataclass
class RangePartition(InputPartition):
    """One task: a range, and times outside of which no record is wanted."""

    range: Range
    time_min: int | None = None
    time_max: int | None = None

    def __repr__(self) -> str:
        return f"RangePartition({self.range})"


def read_partition(
    options: SourceOptions, schema: StructType, partition: InputPartition
) -> Iterator[Any]:
    """Arrow record batches of one task. Raises SparkSourceError."""
    if not isinstance(partition, RangePartition):
        return  # Spark makes one of its own where nothing is to be read.
    range_ = partition.range
    wanted = Wanted(
        topic=range_.topic,
        partition=range_.partition,
        start=range_.start,
        end=range_.end,
        time_min=partition.time_min,
        time_max=partition.time_max,
    )
    reader = RangeReader(_cluster(options.settings), options, wanted)
    yield from reader.read(arrow_schema(schema))


def _cluster(settings: Settings) -> Cluster:
    found = _clusters.get(settings)
    if found is None:
        found = _clusters[settings] = Cluster(settings)
    return found
