"""The partitions that the metadata places on this broker, and the logs that hold them.

Owns the way from committed metadata to local partitions: a new topic gets logs and leaders, a
deleted one loses them, changed settings reach intake and log. Deletion happens only on a committed
record that says so: a log that the metadata merely does not know is kept and reported (DESIGN §6).
"""

import dataclasses
import logging
from collections.abc import Callable
from uuid import UUID

from dmq.broker.backlog import Backlog
from dmq.broker.intake import Intake
from dmq.broker.multiraft.driven import GroupSettings
from dmq.broker.multiraft.node import GroupNode
from dmq.broker.multiraft.replica import NotLeaderError, Replica
from dmq.broker.partition import Partition, unknown_partition
from dmq.broker.producing import Aside, ProducerBook, Snapshots
from dmq.config.settings import Settings
from dmq.config.topic import TopicConfig
from dmq.errors import ErrorCode, KafkaError
from dmq.machines.state import PartitionState, TopicState
from dmq.storage.log import LogSettings
from dmq.types import METADATA_TOPIC, METADATA_TOPIC_ID, NIL_UUID, TopicPartition, Voter

log = logging.getLogger("dmq.broker")

AWAY_MAX_DAYS = 30
"""So long a broker may be down and still hear of each deletion when it is back: by then compaction has
taken what says so out of the metadata log, and it would keep topics that nobody else has."""

METADATA_OVERRIDES = {
    "cleanup.policy": "compact",
    "delete.retention.ms": str(AWAY_MAX_DAYS * 86_400_000),
    "durability": "sync",
    "segment.bytes": str(64 * 1024 * 1024),
    "compression.type": "producer",
}
"""The metadata log's settings; not open to change."""


OPENED_MAX = 50
"""Partitions opened per pass of the loop: some dozen milliseconds."""


class LocalTopic:
    """A topic as far as it lives here."""

    __slots__ = ("config", "count", "intake", "name", "partitions", "topic_id", "wanted")

    def __init__(self, name: str, topic_id: UUID, config: TopicConfig) -> None:
        self.name = name
        self.topic_id = topic_id
        self.config = config
        self.intake = Intake(config)
        self.partitions: dict[int, Partition] = {}
        """Those that have a replica here."""
        self.count = 0
        """Of all its partitions, wherever they live."""
        self.wanted: dict[int, PartitionState] = {}
        """Those that are to have a replica here, and have none yet."""


class Replicas:
    """All local topics. `settings` is replaced when dynamic settings of the broker change."""

    def __init__(
        self,
        node: GroupNode,
        settings: Settings,
        backlog: Backlog,
        now: Callable[[], int],
        aside: Aside,
        snapshots: Snapshots | None = None,
    ) -> None:
        self._node = node
        self._backlog = backlog
        self._now = now
        self._aside = aside
        self.snapshots = snapshots
        """Of the partitions' producers; None: none are kept."""
        self.settings = settings
        self.topics: dict[str, LocalTopic] = {}
        self.by_id: dict[UUID, LocalTopic] = {}
        self.on_more: Callable[[], None] | None = None
        """Called when partitions are left to be opened: `open_some`, soon. None: all are at once."""
        self.on_opened: Callable[[LocalTopic], None] = lambda local: None
        """Called when all partitions of a topic that had to wait are open."""
        self._unopened: dict[LocalTopic, None] = {}
        self._opened_now = 0
        self.version = 0
        """Grows whenever a topic comes, goes or changes."""

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
            if local is not None and 0 <= index < local.count:
                raise NotLeaderError(None, -1)
            raise unknown_partition(topic, index)
        return partition

    def intake(self, topic: str, topic_id: UUID) -> Intake | None:
        """The rules of a topic by name or, where given, id; None if it is not here."""
        local = self.topics.get(topic) if topic_id == NIL_UUID else self.by_id.get(topic_id)
        return None if local is None else local.intake

    # --- changing ----------------------------------------------------------------------------

    def open_metadata(self, voters: tuple[Voter, ...], *, is_founding: bool) -> Replica:
        """The replica of the metadata log, which exists before there is metadata."""
        config = self.settings.topic(METADATA_OVERRIDES, internal=True)
        settings = dataclasses.replace(log_settings(config), may_use_reserve=True)
        return self._node.create_group(
            self._now(),
            METADATA_TOPIC_ID,
            0,
            voters,
            GroupSettings(log=settings),
            is_founding=is_founding,
        )

    def metadata_partition(self, replica: Replica) -> Partition:
        """The metadata log as a partition among others, for housekeeping and readers."""
        config = self.settings.topic(METADATA_OVERRIDES, internal=True)
        return Partition(
            TopicPartition(METADATA_TOPIC, 0),
            METADATA_TOPIC_ID,
            replica,
            Intake(config),
            self._now,
            self._backlog,
        )

    def bring_in(self, topic: TopicState) -> None:
        """Make the local partitions what the metadata says of this topic."""
        self.version += 1
        config = self.settings.topic(topic.config, internal=topic.name.startswith("__"))
        local = self.by_id.get(topic.topic_id)
        if local is None:
            local = LocalTopic(topic.name, topic.topic_id, config)
            self.topics[topic.name] = self.by_id[topic.topic_id] = local
        elif local.config != config:
            self._configure(local, config)
        local.count = len(topic.partitions)
        for index, placed in enumerate(topic.partitions):
            is_here = index in local.partitions
            if self._node.me.node in placed.members:
                if not is_here:
                    local.wanted[index] = placed
            elif is_here and placed.members:  # Else nothing is known of it.
                del local.partitions[index]
                self._node.leave_group(topic.topic_id, index)
            else:
                local.wanted.pop(index, None)
        if local.wanted:
            self._open_wanted(local)

    def _open_wanted(self, local: LocalTopic) -> None:
        """Open its partitions, now or in the passes of the loop that follow: one costs a fraction of
        a millisecond, and while thousands are opened the links to other brokers must not fall silent."""
        if self.on_more is None:
            self._open_up_to(local, len(local.wanted))
            return
        if not self._unopened and self._opened_now < OPENED_MAX:
            self._open_up_to(local, OPENED_MAX - self._opened_now)
        if local.wanted:
            self._unopened[local] = None
            self.on_more()

    def _open_up_to(self, local: LocalTopic, count: int) -> None:
        for index in list(local.wanted)[:count]:
            local.partitions[index] = self._open(local, index, local.wanted.pop(index))
            self._opened_now += 1

    def open_some(self) -> None:
        """Another pass of the loop: open a few of the partitions that wait for it."""
        self._opened_now = 0
        while self._unopened and self._opened_now < OPENED_MAX:
            local = next(iter(self._unopened))
            if self.by_id.get(local.topic_id) is local:
                self._open_up_to(local, OPENED_MAX - self._opened_now)
            if not local.wanted or self.by_id.get(local.topic_id) is not local:
                del self._unopened[local]
                self.on_opened(local)
        if self._unopened and self.on_more is not None:
            self.on_more()

    @property
    def has_unopened(self) -> bool:
        return bool(self._unopened)

    def _configure(self, local: LocalTopic, config: TopicConfig) -> None:
        local.config, local.intake = config, Intake(config)
        settings = self._group_settings(config)
        for partition in local.partitions.values():
            partition.intake = local.intake
            partition.replica.configure(settings, self._now())

    def _group_settings(self, config: TopicConfig) -> GroupSettings:
        return GroupSettings(
            log=log_settings(config),
            min_insync_replicas=config.min_insync_replicas,
            replica_lag_ms=self.settings.effective.replica_lag_time_max_ms,
            is_unclean_allowed=config.unclean_leader_election_enable,
        )

    def _open(self, local: LocalTopic, index: int, placed: PartitionState) -> Partition:
        replica = self._node.create_group(
            self._now(),
            local.topic_id,
            index,
            placed.founders,
            self._group_settings(local.config),
            is_founding=self._node.me in placed.founders,
        )
        expiration_ms = self.settings.effective.producer_id_expiration_ms
        book = ProducerBook(replica, self._aside, expiration_ms, self.snapshots)
        tp = TopicPartition(local.name, index)
        return Partition(tp, local.topic_id, replica, local.intake, self._now, self._backlog, book)

    def remove(self, topic_id: UUID) -> LocalTopic | None:
        """A committed record says that the topic is deleted; what it was, if it was known."""
        self.version += 1
        local = self.by_id.pop(topic_id, None)
        if local is not None:
            if self.topics.get(local.name) is local:
                del self.topics[local.name]
            for index in local.partitions:
                self._node.drop_group(topic_id, index)
        for key in self._node.unclaimed:
            if key.topic_id == topic_id:
                self._node.drop_group(*key)
        self._node.wake()
        return local

    def report_orphans(self) -> None:
        """After the start: logs that no topic claims. Those that nobody knows are kept; a person
        decides. Others were moved away meanwhile: they go when their leaders say so (leadership.py)."""
        for topic_id, index in self._node.unclaimed:
            known = self.by_id.get(topic_id)
            if known is not None:
                log.info(
                    "partition %d of %s is on disk, and is meant to be on other brokers now",
                    index,
                    known.name,
                )
                continue
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
