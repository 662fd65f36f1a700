"""Why offsets hold no record: asked of the brokers, batch header by batch header.

Offsets without a record are the rule where transactions end (their markers take offsets), where
transactions are aborted and where logs are compacted. What none of these explains is missing.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from dmq import records
from dmq.spark.cluster import Cluster, Settings
from dmq.spark.connection import FETCH
from dmq.spark.failures import only_partition
from dmq.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData

MARKER = "transaction markers"
ABORTED = "aborted transactions"
COMPACTED = "compaction"
MISSING = "missing"

_FETCH_BYTES = 1 << 20
_BY_NAME = 12
"""The last version of Fetch that names topics instead of numbering them."""


class Gap(NamedTuple):
    """Offsets from `start` to before `end` that no record was read from."""

    topic: str
    partition: int
    start: int
    end: int


def explain(
    options: Mapping[str, str], gaps: Iterable[Gap], compacted: frozenset[str]
) -> tuple[Counter[str], list[Gap]]:
    """How many offsets have which reason, and the gaps with offsets that have none."""
    reasons: Counter[str] = Counter()
    missing: list[Gap] = []
    cluster = Cluster(Settings.of(options))
    try:
        for gap in gaps:
            found = _reasons_of(cluster, gap, is_compacted=gap.topic in compacted)
            reasons += found
            if found[MISSING]:
                missing.append(gap)
    finally:
        cluster.close()
    return reasons, missing


def _reasons_of(cluster: Cluster, gap: Gap, *, is_compacted: bool) -> Counter[str]:
    """Each offset of a gap goes to the batch that spans it."""
    reasons: Counter[str] = Counter()
    uncovered = COMPACTED if is_compacted else MISSING
    at = gap.start
    while at < gap.end:
        answer = _fetch(cluster, gap.topic, gap.partition, at)
        headers = [header for _, header in records.scan(memoryview(answer.records or b""))]  # type: ignore[arg-type]
        if not headers:
            reasons[uncovered] += gap.end - at
            break
        for header in headers:
            if at >= gap.end or header.next_offset <= at:
                continue
            before = min(header.base_offset, gap.end)
            if before > at:
                reasons[uncovered] += before - at
                at = before
            inside = min(header.next_offset, gap.end) - at
            if inside > 0:
                reasons[_reason(header)] += inside
                at += inside
    return reasons


def _reason(header: records.BatchHeader) -> str:
    if header.is_control:
        return MARKER
    # The batch is there, and a reader of committed records was not given this offset.
    if header.is_transactional and header.record_count == header.last_offset_delta + 1:
        return ABORTED
    return COMPACTED if header.record_count < header.last_offset_delta + 1 else MISSING


def _fetch(cluster: Cluster, topic: str, partition: int, offset: int) -> PartitionData:
    asked = FetchTopic(
        topic=topic,
        partitions=[
            FetchPartition(
                partition=partition, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES
            )
        ],
    )
    request = FetchRequest(max_wait_ms=1000, min_bytes=1, max_bytes=_FETCH_BYTES, topics=[asked])

    def attempt() -> PartitionData:
        connection = cluster.leader_connection(topic, partition)
        answer = connection.ask(FETCH, request, highest=_BY_NAME)
        data: PartitionData = only_partition(answer, f"Fetch of {topic} partition {partition}")
        return data

    return cluster.retry(f"look at {topic} partition {partition}", attempt)
