"""Every config of a topic, and its values once resolved.

Names, types, defaults and bounds are Kafka 4.3's; `durability` and `record.validation` are dmq's
own. A value that a topic does not set comes from the broker setting named by `synonym`.
`TopicConfig` holds final values: `settings.Settings.topic` makes one; partition, log and cleaner
read it.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from dmq.config.checks import (
    AtLeast,
    Between,
    EachOf,
    Exactly,
    OneOf,
    ThrottledReplicas,
)
from dmq.config.definitions import (
    BOOLEAN,
    DOUBLE,
    HIGH,
    INT,
    LIST,
    LONG,
    LONG_MAX,
    LOW,
    MEDIUM,
    STRING,
    ConfigDef,
    definitions_of,
    setting,
)
from dmq.errors import ConfigError

DAY_MS = 24 * 3600 * 1000

COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
NO_REMOTE = "Tiered storage does not exist here; a topic can't be configured with remote storage"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """The configs of one topic, resolved. Shared between topics that set nothing themselves."""

    cleanup_policy: tuple[str, ...] = setting(
        LIST,
        ("delete",),
        "What happens to old records: `delete` drops whole segments by age and size, `compact` "
        "keeps the last record of each key, both do both, and the empty list keeps everything.",
        check=EachOf("compact", "delete"),
        importance=HIGH,
        synonym="log.cleanup.policy",
    )
    compression_type: str = setting(
        STRING,
        "producer",
        "How batches are compressed on disk. `producer` keeps them as the producer sent them; any "
        "other value makes the leader compress batches that arrive differently.",
        check=OneOf(*COMPRESSION_TYPES),
        synonym="compression.type",
    )
    compression_gzip_level: int = setting(
        INT,
        -1,
        "Effort of gzip when the leader compresses; -1 is the library's default.",
        check=Between(1, 9, -1),
        importance=LOW,
        synonym="compression.gzip.level",
    )
    compression_lz4_level: int = setting(
        INT,
        9,
        "Effort of lz4 when the leader compresses.",
        check=Between(1, 17),
        importance=LOW,
        synonym="compression.lz4.level",
    )
    compression_zstd_level: int = setting(
        INT,
        3,
        "Effort of zstd when the leader compresses.",
        check=Between(-131072, 22),
        importance=LOW,
        synonym="compression.zstd.level",
    )
    delete_retention_ms: int = setting(
        LONG,
        DAY_MS,
        "How long a compacted topic keeps tombstones, so that a reader that started before sees "
        "the deletion.",
        check=AtLeast(0),
        unit="ms",
        synonym="log.cleaner.delete.retention.ms",
    )
    durability: str = setting(
        STRING,
        "sync",
        "`sync`: a record is on the disks of a majority before it is acknowledged. `async`: it is "
        "in their page caches, and synced every `flush.ms`; a power loss of a majority at once "
        "may lose that much of acknowledged data. Internal topics are always sync.",
        check=OneOf("sync", "async"),
        importance=HIGH,
        synonym="durability",
    )
    file_delete_delay_ms: int = setting(
        LONG,
        60_000,
        "How long the file of a removed segment stays on disk for readers that are in it.",
        check=AtLeast(0),
        importance=LOW,
        unit="ms",
        synonym="log.segment.delete.delay.ms",
    )
    flush_messages: int = setting(
        LONG,
        LONG_MAX,
        "1 makes the topic `sync` whatever `durability` says, as it does in Kafka. Other values "
        "change nothing: the journal syncs by turns, not by counts.",
        check=AtLeast(1),
        importance=LOW,
        synonym="log.flush.interval.messages",
    )
    flush_ms: int = setting(
        LONG,
        1000,
        "How often the records of an `async` topic are synced; the most that a power loss can "
        "take. No effect on `sync` topics.",
        check=AtLeast(0),
        unit="ms",
        synonym="log.flush.interval.ms",
    )
    follower_replication_throttled_replicas: tuple[str, ...] = setting(
        LIST,
        (),
        "Kafka's list of replicas with throttled followers. Catch-up here has its own limits.",
        check=ThrottledReplicas(),
        importance=LOW,
        inert=True,
    )
    index_interval_bytes: int = setting(
        INT,
        4096,
        "How many bytes of records lie between two entries of the offset index.",
        check=AtLeast(0),
        importance=LOW,
        unit="bytes",
        synonym="log.index.interval.bytes",
    )
    internal_segment_bytes: int | None = setting(
        INT,
        None,
        "Size of a segment without the floor of `segment.bytes`: for tests.",
        check=AtLeast(0),
        importance=LOW,
        unit="bytes",
        hidden=True,
    )
    leader_replication_throttled_replicas: tuple[str, ...] = setting(
        LIST,
        (),
        "Kafka's list of replicas with throttled leaders. Catch-up here has its own limits.",
        check=ThrottledReplicas(),
        importance=LOW,
        inert=True,
    )
    local_retention_bytes: int = setting(
        LONG,
        -2,
        "How much a topic with tiered storage keeps locally; -2 means `retention.bytes`.",
        check=AtLeast(-2),
        importance=LOW,
        unit="bytes",
        synonym="log.local.retention.bytes",
        inert=True,
    )
    local_retention_ms: int = setting(
        LONG,
        -2,
        "How long a topic with tiered storage keeps records locally; -2 means `retention.ms`.",
        check=AtLeast(-2),
        importance=LOW,
        unit="ms",
        synonym="log.local.retention.ms",
        inert=True,
    )
    max_compaction_lag_ms: int = setting(
        LONG,
        LONG_MAX,
        "How long a record can stay out of reach of compaction, however clean the log is.",
        check=AtLeast(1),
        unit="ms",
        synonym="log.cleaner.max.compaction.lag.ms",
    )
    max_message_bytes: int = setting(
        INT,
        1_048_588,
        "The largest batch that is taken, after compression.",
        check=AtLeast(0),
        importance=HIGH,
        unit="bytes",
        synonym="message.max.bytes",
    )
    message_timestamp_after_max_ms: int = setting(
        LONG,
        3_600_000,
        "How far a record's timestamp may lie ahead of the broker's clock (CreateTime only).",
        check=AtLeast(0),
        unit="ms",
        synonym="log.message.timestamp.after.max.ms",
    )
    message_timestamp_before_max_ms: int = setting(
        LONG,
        LONG_MAX,
        "How far a record's timestamp may lie behind the broker's clock (CreateTime only).",
        check=AtLeast(0),
        unit="ms",
        synonym="log.message.timestamp.before.max.ms",
    )
    message_timestamp_type: str = setting(
        STRING,
        "CreateTime",
        "Whose clock a record's timestamp is from: the producer's, or the leader's at the append.",
        check=OneOf("CreateTime", "LogAppendTime"),
        synonym="log.message.timestamp.type",
    )
    min_cleanable_dirty_ratio: float = setting(
        DOUBLE,
        0.5,
        "The share of a log that must be uncompacted before compaction begins.",
        check=Between(0, 1),
        synonym="log.cleaner.min.cleanable.ratio",
    )
    min_compaction_lag_ms: int = setting(
        LONG,
        0,
        "How long a record stays out of reach of compaction.",
        check=AtLeast(0),
        unit="ms",
        synonym="log.cleaner.min.compaction.lag.ms",
    )
    min_insync_replicas: int = setting(
        INT,
        1,
        "How many replicas must have a record before acks=all is answered. A majority always "
        "must; more than the replication factor counts as the replication factor.",
        check=AtLeast(1),
        importance=HIGH,
        synonym="min.insync.replicas",
    )
    preallocate: bool = setting(
        BOOLEAN,
        False,
        "Whether Kafka reserves a segment's space when it creates the file. Files grow here.",
        importance=LOW,
        synonym="log.preallocate",
        inert=True,
    )
    record_validation: str = setting(
        STRING,
        "header",
        "How closely batches are checked: `header` reads the batch header and its CRC, `full` "
        "opens every record as well.",
        check=OneOf("header", "full"),
        synonym="record.validation",
    )
    remote_log_copy_disable: bool = setting(
        BOOLEAN,
        False,
        "Whether tiered storage stops copying. There is none.",
        check=Exactly(False, NO_REMOTE),
        importance=LOW,
        inert=True,
    )
    remote_log_delete_on_disable: bool = setting(
        BOOLEAN,
        False,
        "Whether tiered data goes when tiered storage is turned off. There is none.",
        check=Exactly(False, NO_REMOTE),
        importance=LOW,
        inert=True,
    )
    remote_storage_enable: bool = setting(
        BOOLEAN,
        False,
        "Whether old segments move to tiered storage. There is none.",
        check=Exactly(False, NO_REMOTE),
        importance=LOW,
        inert=True,
    )
    retention_bytes: int = setting(
        LONG,
        -1,
        "How many bytes a partition may have before `delete` drops its oldest segments; negative: "
        "no limit.",
        importance=HIGH,
        unit="bytes",
        synonym="log.retention.bytes",
    )
    retention_ms: int = setting(
        LONG,
        7 * DAY_MS,
        "How old a segment's newest record may be before `delete` drops the segment; -1: no limit.",
        check=AtLeast(-1),
        importance=HIGH,
        unit="ms",
        synonym="log.retention.ms",
    )
    segment_bytes: int = setting(
        INT,
        1 << 30,
        "The size at which a segment is closed and the next one begun.",
        check=AtLeast(1 << 20),
        unit="bytes",
        synonym="log.segment.bytes",
    )
    segment_index_bytes: int = setting(
        INT,
        10 << 20,
        "The size that an index may have before its segment is closed.",
        check=AtLeast(4),
        importance=LOW,
        unit="bytes",
        synonym="log.index.size.max.bytes",
    )
    segment_jitter_ms: int = setting(
        LONG,
        0,
        "The most that is taken off `segment.ms` at random, so that segments don't all close at "
        "once.",
        check=AtLeast(0),
        importance=LOW,
        unit="ms",
        synonym="log.roll.jitter.ms",
    )
    segment_ms: int = setting(
        LONG,
        7 * DAY_MS,
        "The age at which a segment is closed even if it is small, so that retention and "
        "compaction can take it.",
        check=AtLeast(1),
        importance=MEDIUM,
        unit="ms",
        synonym="log.roll.ms",
    )
    unclean_leader_election_enable: bool = setting(
        BOOLEAN,
        False,
        "For `async` topics: whether a majority of replicas that may have lost records in a power "
        "cut elects a leader after 30 s instead of waiting for all of them.",
        synonym="unclean.leader.election.enable",
    )

    @property
    def compacts(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def is_sync(self) -> bool:
        """Whether a batch is synced before it is acknowledged."""
        return self.durability == "sync" or self.flush_messages == 1

    @property
    def segment_max_bytes(self) -> int:
        """The size at which a segment is really closed."""
        return (
            self.segment_bytes
            if self.internal_segment_bytes is None
            else self.internal_segment_bytes
        )


TOPIC: dict[str, ConfigDef] = definitions_of(TopicConfig)
"""Every topic config by name."""


def parse_topic(overrides: Mapping[str, str]) -> dict[str, Any]:
    """Field values of what a topic sets itself. Names and values must have been checked before."""
    return {TOPIC[name].field: TOPIC[name].parse(text) for name, text in overrides.items()}


def check_together(config: TopicConfig) -> None:
    """The rules that span several configs. Raises ConfigError."""
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        raise ConfigError(
            [
                f"min.compaction.lag.ms ({config.min_compaction_lag_ms}) is greater than "
                f"max.compaction.lag.ms ({config.max_compaction_lag_ms})"
            ]
        )
