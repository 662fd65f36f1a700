"""How many bytes an offset weighs, for `maxBytesPerTrigger`: measured on what would be read next.

A small fetch from each partition's position says how many bytes its next batches have and how many
offsets they cover. No records are decoded. Bytes are those on the wire: compressed, if they are.
Never says that offsets are gone: whoever reads them does.
"""

from functools import partial
from typing import NamedTuple

from dmq import records
from dmq.errors import ErrorCode, KafkaError
from dmq.spark.cluster import Cluster
from dmq.spark.connection import FETCH
from dmq.spark.failures import only_partition
from dmq.spark.fetching import FETCH_VERSION_MAX
from dmq.spark.offsets import CONSUMER, OffsetFinder, Offsets, Partition
from dmq.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic

SAMPLE_BYTES = 256 << 10
UNKNOWN = 1.0


class Weight(NamedTuple):
    """What the next offsets of a partition weigh."""

    first: int
    """Offsets before this one weigh nothing: retention or compaction took them."""
    bytes_per_offset: float


def look_ahead(cluster: Cluster, finder: OffsetFinder, starts: Offsets) -> dict[Partition, Weight]:
    """For each partition, at its position. Raises SparkSourceError when brokers stay away."""
    return {
        partition: _weigh(cluster, finder, partition, start) for partition, start in starts.items()
    }


def _weigh(cluster: Cluster, finder: OffsetFinder, partition: Partition, start: int) -> Weight:
    while True:
        sample = partial(_sample, cluster, partition, start)
        try:
            return cluster.retry("look at the size of records", sample)
        except KafkaError as error:
            if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
        earliest = finder.earliest([partition])[partition]
        if earliest <= start:
            return Weight(start, UNKNOWN)  # Behind the end, not before the beginning.
        start = earliest


def _sample(cluster: Cluster, partition: Partition, start: int) -> Weight:
    topic, index = partition
    asked = FetchPartition(partition=index, fetch_offset=start, partition_max_bytes=SAMPLE_BYTES)
    request = FetchRequest(
        replica_id=CONSUMER,
        max_bytes=SAMPLE_BYTES,
        topics=[FetchTopic(topic=topic, partitions=[asked])],
    )
    connection = cluster.leader_connection(topic, index)
    response = connection.ask(FETCH, request, highest=FETCH_VERSION_MAX)
    answer = only_partition(response, f"a look at {topic}-{index}")
    headers = [header for _, header in records.scan(answer.records or b"")]
    if not headers:
        return Weight(start, UNKNOWN)
    # The first batch may begin before the position, or behind a hole that compaction left.
    base = headers[0].base_offset
    size = sum(header.size for header in headers)
    return Weight(max(start, base), size / (headers[-1].next_offset - base))
