"""The lag of a Spark query, where everyone looks for it: as a consumer group's, and in its progress.

Progress is committed to the group of the option `groupId` after each micro-batch, for others to see;
Spark's checkpoint stays the truth, and nothing here is ever read back. So a failure is only a warning.

`lag(progress)` reads the lag out of a query's progress: Spark has no place for a Python source's
own metrics, but it shows the source's `endOffset` and `latestOffset`.
"""

import logging
from collections.abc import Mapping
from typing import Any

from dmq.errors import ErrorCode, KafkaError
from dmq.spark.cluster import GROUP, Cluster
from dmq.spark.connection import OFFSET_COMMIT
from dmq.spark.failures import SparkSourceError, check
from dmq.spark.offsets import Offsets, from_json
from dmq.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

COMMIT_VERSION_MAX = 9
"""The last version that calls topics by their names."""
PATIENCE_S = 5.0
"""A batch must not wait for long for something that is only shown."""

log = logging.getLogger(__name__)


class GroupProgress:
    """Shows a query's progress as the committed offsets of a consumer group without members."""

    def __init__(self, cluster: Cluster, group_id: str) -> None:
        self._cluster = cluster
        self._group_id = group_id
        self._shown: Offsets = {}

    def show(self, offsets: Offsets) -> None:
        """Commit what is new. Never raises for what the cluster says."""
        if offsets == self._shown:
            return
        changed = {p: offset for p, offset in offsets.items() if self._shown.get(p) != offset}
        try:
            self._cluster.retry("commit offsets", lambda: self._commit(changed), PATIENCE_S)
        except (SparkSourceError, KafkaError) as error:
            log.warning("lag of group %s is not up to date: %s", self._group_id, _why(error))
            return
        self._shown = dict(offsets)

    def _commit(self, offsets: Offsets) -> None:
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for (topic, partition), offset in offsets.items():
            entry = OffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=offset,
                committed_metadata="spark",
            )
            topics.setdefault(topic, []).append(entry)
        request = OffsetCommitRequest(
            group_id=self._group_id,
            topics=[OffsetCommitRequestTopic(name=t, partitions=of) for t, of in topics.items()],
        )
        connection = self._cluster.coordinator_connection(self._group_id, GROUP)
        answer = connection.ask(OFFSET_COMMIT, request, highest=COMMIT_VERSION_MAX)
        for topic in answer.topics:
            for partition in topic.partitions:
                check(partition.error_code, f"{topic.name}-{partition.partition_index}")


def _why(error: Exception) -> str:
    if isinstance(error, KafkaError) and error.code == ErrorCode.UNKNOWN_MEMBER_ID:
        return "other consumers are members of it; give the query a groupId of its own"
    return str(error)


def lag(progress: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """Topic → partition → offsets behind, of a query's progress (`query.lastProgress`, as a dict).

    All sources of the query that are ours or Kafka's are taken together.
    """
    found: dict[str, dict[str, int]] = {}
    for source in progress.get("sources", ()):
        end, latest = source.get("endOffset"), source.get("latestOffset")
        if not isinstance(end, dict) or not isinstance(latest, dict):
            continue
        done = from_json(end)
        for (topic, partition), newest in from_json(latest).items():
            behind = max(0, newest - done.get((topic, partition), 0))
            found.setdefault(topic, {})[str(partition)] = behind
    return found
