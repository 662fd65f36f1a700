"""The partitions that the metadata places on this broker, and the logs that hold them.

Owns the way from committed metadata to local partitions: a new topic gets logs and leaders, a
deleted one loses them, changed settings reach intake and log. Deletion happens only on a committed
record that says so: a log that the metadata merely does not know is kept and reported (DESIGN §6).
"""

import dataclasses
import logging
from uuid import UUID

from dmq.broker.intake import Intake
from dmq.broker.node import Node
from dmq.broker.partition import Partition
from dmq.config.settings import Settings
from dmq.config.topic import TopicConfig
from dmq.errors import ErrorCode, KafkaError
from dmq.machines.state import TopicState
from dmq.storage.log import Log, LogSettings
from dmq.types import METADATA_TOPIC, METADATA_TOPIC_ID, NIL_UUID, TopicPartition, Voter

log = logging.getLogger("dmq.broker")

METADATA_OVERRIDES = {
    "cleanup.policy": "compact",
    "durability": "sync",
    "segment.bytes": str(64 * 1024 * 1024),
    "compression.type": "producer",
}
"""The metadata log's settings; not open to change."""


class LocalTopic:
    """A topic as far as it lives here."""

    __slots__ = ("config", "intake", "name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: UUID, config: TopicConfig) -> None:
        self.name = name
        self.topic_id = topic_id
        self.config = config
        self.intake = Intake(config)
        self.partitions: dict[int, Partition] = {}


class Replicas:
    """All local topics. `settings` is replaced when dynamic settings of the broker change."""

    def __init__(self, node: Node, voter: Voter, settings: Settings) -> None:
        self._node = node
        self._voter = voter
        self.settings = settings
        self.topics: dict[str, LocalTopic] = {}
        self.by_id: dict[UUID, LocalTopic] = {}
        self._logs: dict[tuple[UUID, int], Log] = {  # Found at start, not yet claimed.
            (found.topic_id, found.partition): found for found in node.store.logs.values()
        }

    # --- finding -----------------------------------------------------------------------------

    def find(self, topic: str, topic_id: UUID, index: int) -> Partition:
        """The partition by the topic's name or, where given, its id. Raises KafkaError."""
        if topic_id != NIL_UUID:
            local = self.by_id.get(topic_id)
            if local is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {topic_id}")
        else:
            local = self.topics.get(topic)
        partition = None if local is None else local.partitions.get(index)
        if partition is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic}-{index}"
            )
        return partition

    def intake(self, topic: str, topic_id: UUID) -> Intake | None:
        """The rules of a topic by name or, where given, id; None if it is not here."""
        local = self.topics.get(topic) if topic_id == NIL_UUID else self.by_id.get(topic_id)
        return None if local is None else local.intake

    # --- changing ----------------------------------------------------------------------------

    def open_metadata(self) -> Partition:
        """The partition of the metadata log, which exists before there is metadata."""
        config = self.settings.topic(METADATA_OVERRIDES, internal=True)
        local = LocalTopic(METADATA_TOPIC, METADATA_TOPIC_ID, config)
        settings = dataclasses.replace(log_settings(config), may_use_reserve=True)
        return self._open(local, 0, settings)

    def bring_in(self, topic: TopicState) -> None:
        """Make the local partitions what the metadata says of this topic."""
        config = self.settings.topic(topic.config, internal=topic.name.startswith("__"))
        local = self.by_id.get(topic.topic_id)
        if local is None:
            local = LocalTopic(topic.name, topic.topic_id, config)
            self.topics[topic.name] = self.by_id[topic.topic_id] = local
        elif local.config != config:
            self._configure(local, config)
        for index, placed in enumerate(topic.partitions):
            if index not in local.partitions and self._voter.node in placed.replicas:
                local.partitions[index] = self._open(local, index, log_settings(config))

    def _configure(self, local: LocalTopic, config: TopicConfig) -> None:
        local.config, local.intake = config, Intake(config)
        for partition in local.partitions.values():
            partition.intake = local.intake
            partition.log.configure(log_settings(config))

    def _open(self, local: LocalTopic, index: int, settings: LogSettings) -> Partition:
        found = self._logs.pop((local.topic_id, index), None)
        if found is None:
            found = self._node.store.create(
                local.topic_id, index, voters=(self._voter,), settings=settings
            )
        else:
            found.configure(settings)
        tp = TopicPartition(local.name, index)
        partition = Partition(
            tp, local.topic_id, found, local.intake, self._node.touched, self._node.backlog
        )
        self._node.adopt(partition)
        partition.lead(self._voter)
        return partition

    def remove(self, topic_id: UUID) -> None:
        """A committed record says that the topic is deleted."""
        local = self.by_id.pop(topic_id, None)
        if local is not None:
            if self.topics.get(local.name) is local:
                del self.topics[local.name]
            for partition in local.partitions.values():
                partition.retire()
                self._node.release(partition)
                self._node.store.drop(partition.log)
        for key in [key for key in self._logs if key[0] == topic_id]:
            self._node.store.drop(self._logs.pop(key))
        self._node.wake()

    def report_orphans(self) -> None:
        """After the start: logs that no topic claims. They are kept; a person decides."""
        for topic_id, index in self._logs:
            log.warning(
                "partition %d of unknown topic id %s is on disk; it is kept and not served",
                index,
                topic_id,
            )


def log_settings(config: TopicConfig) -> LogSettings:
    """What storage needs to know of a topic's settings."""
    return LogSettings(
        segment_bytes=config.segment_max_bytes,
        segment_ms=_segment_ms(config),
        segment_jitter_ms=config.segment_jitter_ms,
        index_interval_bytes=config.index_interval_bytes,
        index_bytes_max=config.segment_index_bytes,
        is_async=not config.is_sync,
        flush_ms=config.flush_ms,
    )


def _segment_ms(config: TopicConfig) -> int:
    """The active segment is never compacted, so it must not stay active for longer than a record may
    wait for that."""
    if config.compacts:
        return min(config.segment_ms, config.max_compaction_lag_ms)
    return config.segment_ms
