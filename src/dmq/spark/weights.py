"""How many bytes an offset weighs, for `maxBytesPerTrigger`: measured on what would be read next.

A small fetch from each partition's position says how many bytes its next batches have and how many
offsets they cover. No records are decoded. Bytes are those on the wire: compressed, if they are.
"""

from functools import partial

from dmq import records
from dmq.spark.cluster import Cluster
from dmq.spark.connection import FETCH
from dmq.spark.failures import only_partition
from dmq.spark.fetching import FETCH_VERSION_MAX
from dmq.spark.offsets import CONSUMER, Offsets, Partition
from dmq.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic

SAMPLE_BYTES = 256 << 10


def bytes_per_offset(cluster: Cluster, starts: Offsets) -> dict[Partition, float]:
    """For each partition, at its position. Raises SparkSourceError when brokers stay away."""
    return {
        partition: cluster.retry(
            "look at the size of records", partial(_sample, cluster, partition, start)
        )
        for partition, start in starts.items()
    }


def _sample(cluster: Cluster, partition: Partition, start: int) -> float:
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
    size = next_offset = 0
    for _, header in records.scan(answer.records or b""):
        size += header.size
        next_offset = header.next_offset
    return size / (next_offset - start) if next_offset > start else 1.0
