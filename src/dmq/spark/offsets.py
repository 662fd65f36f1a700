"""Which partitions there are, and where they begin and end: what the driver asks before it plans.

Owns the questions (Metadata, ListOffsets) and the words for answers that a user must act on. Offsets
are kept as {(topic, partition): offset} here; `to_json` and `from_json` are Spark's checkpoint form,
which is the Kafka source's too, so that a checkpoint moves along with its job.
"""

import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from dmq.errors import ErrorCode, KafkaError
from dmq.spark.cluster import START_PATIENCE_S, Cluster
from dmq.spark.connection import LIST_OFFSETS
from dmq.spark.decisions import TOPIC as DECISIONS
from dmq.spark.failures import SparkSourceError, check
from dmq.spark.options import EARLIEST, LATEST, Bound, SourceOptions
from dmq.wire.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from dmq.wire.messages.k03_metadata import MetadataResponseTopic

Partition = tuple[str, int]
Offsets = dict[Partition, int]

READ_COMMITTED = 1
READ_UNCOMMITTED = 0
CONSUMER = -1
"""The replica id of somebody who is none."""
UNKNOWN_TOPIC_PATIENCE_S = 3.0
"""A topic made a moment ago may not be known everywhere yet. Brokers that are away have longer."""


def to_json(offsets: Mapping[Partition, int]) -> dict[str, dict[str, int]]:
    """Spark's form: topic → partition → offset."""
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def from_json(offsets: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Back from Spark's form."""
    return {
        (topic, int(partition)): offset
        for topic, partitions in offsets.items()
        for partition, offset in partitions.items()
    }


class OffsetFinder:
    """Answers for one source, from a cluster."""

    def __init__(self, cluster: Cluster, options: SourceOptions) -> None:
        self._cluster = cluster
        self._options = options

    # --- partitions

    def partitions(self) -> list[Partition]:
        """All partitions that are subscribed to, as they are now. Raises SparkSourceError."""
        subscription = self._options.subscription
        if subscription.pattern is not None:
            return self._matching(subscription.pattern)
        if not subscription.partitions:
            return [found for topic in subscription.topics for found in self._of(topic)]
        for topic in dict.fromkeys(topic for topic, _ in subscription.partitions):
            there = self._of(topic)
            missing = [p for p in subscription.partitions if p[0] == topic and p not in there]
            if missing:
                raise SparkSourceError(
                    f"assign: {_names(missing)} is not there; {topic} has {len(there)} partitions"
                )
        return list(subscription.partitions)

    def _of(self, topic: str) -> list[Partition]:
        unknown_since: list[float] = []

        def ask() -> list[Partition]:
            found = self._cluster.refresh([topic]).topics[0]
            if found.error_code == ErrorCode.LEADER_NOT_AVAILABLE and found.partitions:
                return _partitions_of(found)
            try:
                check(found.error_code, topic)
            except KafkaError as error:
                if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    unknown_since.append(time.monotonic())
                    if unknown_since[-1] - unknown_since[0] > UNKNOWN_TOPIC_PATIENCE_S:
                        raise SparkSourceError(str(error)) from error
                raise
            return _partitions_of(found)

        try:
            return self._cluster.retry("find topics", ask)
        except (SparkSourceError, KafkaError) as error:
            cause = error if isinstance(error, KafkaError) else error.__cause__
            raise _about_topic(topic, cause, error) from error

    def _matching(self, pattern: str) -> list[Partition]:
        wanted = re.compile(pattern)
        found = self._cluster.retry("list topics", lambda: self._cluster.refresh(None).topics)
        return [
            partition
            for topic in sorted(found, key=lambda topic: str(topic.name))
            if not topic.is_internal and topic.name != DECISIONS  # Neither is anybody's data.
            if wanted.fullmatch(str(topic.name))
            for partition in _partitions_of(topic)
        ]

    # --- offsets

    def earliest(self, partitions: Iterable[Partition]) -> Offsets:
        """The first offset that is kept."""
        return self._list(dict.fromkeys(partitions, EARLIEST))

    def latest(self, partitions: Iterable[Partition]) -> Offsets:
        """The end: with read_committed, the last stable offset."""
        return self._list(dict.fromkeys(partitions, LATEST))

    def at_times(self, times: Mapping[Partition, int]) -> Offsets:
        """The first offset whose record is not older; -1 where there is none."""
        return self._list(times)

    def resolve(self, bound: Bound, partitions: list[Partition], *, is_start: bool) -> Offsets:
        """A bound as offsets of all these partitions. Raises SparkSourceError."""
        wanted = self._positions(bound, partitions)
        if bound.is_time:
            return self._resolve_times(bound, wanted, is_start)
        asked = {p: offset for p, offset in wanted.items() if offset in (EARLIEST, LATEST)}
        return wanted | (self._list(asked) if asked else {})

    def _positions(self, bound: Bound, partitions: list[Partition]) -> Offsets:
        if bound.everywhere is not None:
            return dict.fromkeys(partitions, bound.everywhere)
        each = bound.each or {}
        wanted = {(t, p): position for t, of in each.items() for p, position in of.items()}
        missing, strange = set(partitions) - set(wanted), set(wanted) - set(partitions)
        if missing or strange:
            words = [f"{_names(missing)} is missing"] if missing else []
            words += [f"{_names(strange)} is not read or does not exist"] if strange else []
            hint = "" if bound.is_time else " (-2 for the earliest, -1 for the latest)"
            raise SparkSourceError(
                f"{bound.option} must name every partition that is read{hint}: {'; '.join(words)}"
            )
        return wanted

    def _resolve_times(self, bound: Bound, wanted: Offsets, is_start: bool) -> Offsets:
        found = self.at_times(wanted)
        unmatched = [partition for partition, offset in found.items() if offset < 0]
        if unmatched and is_start and not self._options.latest_when_no_match:
            partition = unmatched[0]
            raise SparkSourceError(
                f"{bound.option}: {_names([partition])} has no record at or after"
                f" {wanted[partition]}; set startingOffsetsByTimestampStrategy=latest to begin at the"
                " end of such partitions"
            )
        return found | (self.latest(unmatched) if unmatched else {})

    def _list(self, wanted: Mapping[Partition, int]) -> Offsets:
        """ListOffsets for all of them, one request to each leader."""
        found: Offsets = {}

        def ask() -> Offsets:
            left = {p: when for p, when in wanted.items() if p not in found}
            for leader, of_leader in self._by_leader(left).items():
                found.update(self._list_at(leader, of_leader))
            return found

        self._cluster.retry("look offsets up", ask)
        return {partition: found[partition] for partition in wanted}

    def _by_leader(self, wanted: Mapping[Partition, int]) -> dict[int, Offsets]:
        by_leader: dict[int, Offsets] = {}
        for (topic, partition), when in wanted.items():
            leader = self._cluster.leader(topic, partition)
            by_leader.setdefault(leader, {})[topic, partition] = when
        return by_leader

    def _list_at(self, leader: int, wanted: Offsets) -> Offsets:
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for (topic, partition), when in wanted.items():
            asked = ListOffsetsPartition(partition_index=partition, timestamp=when)
            topics.setdefault(topic, []).append(asked)
        request = ListOffsetsRequest(
            replica_id=CONSUMER,
            isolation_level=READ_COMMITTED if self._options.reads_committed else READ_UNCOMMITTED,
            topics=[ListOffsetsTopic(name=t, partitions=asked) for t, asked in topics.items()],
            timeout_ms=int(self._cluster.settings.request_timeout_s * 1000),
        )
        answer: Any = self._cluster.connection(leader).ask(LIST_OFFSETS, request)
        found: Offsets = {}
        for topic in answer.topics:
            for partition in topic.partitions:
                name = f"{topic.name}-{partition.partition_index}"
                check(partition.error_code, f"offsets of {name}")
                found[topic.name, partition.partition_index] = partition.offset
        return found


def wait_for_brokers(cluster: Cluster) -> None:
    """A first contact, before anything is planned. Raises SparkSourceError that says what to do."""
    refresh: Callable[[], object] = cluster.refresh
    cluster.retry("reach the cluster", refresh, START_PATIENCE_S)


def _partitions_of(topic: MetadataResponseTopic) -> list[Partition]:
    return [
        (str(topic.name), index) for index in sorted(p.partition_index for p in topic.partitions)
    ]


def _about_topic(topic: str, cause: BaseException | None, error: Exception) -> SparkSourceError:
    code = cause.code if isinstance(cause, KafkaError) else None
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return SparkSourceError(
            f"topic {topic!r} does not exist. Create it (dmq topic create {topic}), or check its"
            " spelling in subscribe; dmq topic list shows what is there."
        )
    if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return SparkSourceError(
            f"this user may not read topic {topic!r}: ask for the right to read and describe it"
        )
    if code == ErrorCode.INVALID_TOPIC_EXCEPTION:
        return SparkSourceError(
            f"{topic!r} can't be a topic's name: letters, digits, '.', '_' and '-' only; for a"
            " pattern use subscribePattern"
        )
    return SparkSourceError(str(error))


def _names(partitions: Iterable[Partition]) -> str:
    names = [f"{topic}-{partition}" for topic, partition in sorted(partitions)]
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
