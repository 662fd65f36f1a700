"""Settings of logs, journal and topics: the broker's defaults for what a topic does not set itself.

Fields only; `broker.py` puts the groups of settings together. The names that topics fall back on
(`synonym` in `topic.py`) are all here.
"""

import dataclasses

from dmq.config.checks import AtLeast, Between, EachOf, Exactly, OneOf
from dmq.config.definitions import (
    BOOLEAN,
    CLUSTER_WIDE,
    DOUBLE,
    HIGH,
    INT,
    LIST,
    LONG,
    LONG_MAX,
    LOW,
    STRING,
    setting,
)
from dmq.config.topic import COMPRESSION_TYPES, DAY_MS

MIB = 1 << 20
DOUBLE_MAX = 1.7976931348623157e308


@dataclasses.dataclass(frozen=True, kw_only=True)
class TopicSettings:
    """How topics come to be."""

    num_partitions: int = setting(
        INT,
        1,
        "Partitions of a topic that is created without a number.",
        check=AtLeast(1),
        importance=HIGH,
    )
    default_replication_factor: int = setting(
        INT,
        -1,
        "Replicas of a topic that is created without a number. -1: three if the cluster has three "
        "or more brokers, else one; never two, because of two both are needed.",
        check=Between(1, 32767, -1),
        importance=HIGH,
    )
    auto_create_topics_enable: bool = setting(
        BOOLEAN,
        True,
        "Whether a client that asks for a topic that is not there creates it.",
        importance=HIGH,
    )
    delete_topic_enable: bool = setting(
        BOOLEAN, True, "Whether topics can be deleted.", importance=HIGH
    )
    auto_leader_rebalance_enable: bool = setting(
        BOOLEAN,
        True,
        "Whether leadership goes back to a partition's first replica when it is well again.",
    )
    leader_imbalance_check_interval_seconds: int = setting(
        LONG,
        300,
        "How often Kafka looks at that. Here a first replica leads again when its broker has been up for "
        "ten seconds.",
        check=AtLeast(1),
        unit="s",
        inert=True,
    )
    min_insync_replicas: int = setting(
        INT,
        1,
        "Default of the topic config of that name.",
        check=AtLeast(1),
        importance=HIGH,
        scope=CLUSTER_WIDE,
    )
    unclean_leader_election_enable: bool = setting(
        BOOLEAN,
        False,
        "Default of the topic config of that name.",
        importance=HIGH,
        scope=CLUSTER_WIDE,
    )
    compression_type: str = setting(
        STRING,
        "producer",
        "Default of the topic config of that name.",
        check=OneOf(*COMPRESSION_TYPES),
        importance=HIGH,
        scope=CLUSTER_WIDE,
    )
    compression_gzip_level: int = setting(
        INT,
        -1,
        "Default of the topic config of that name.",
        check=Between(1, 9, -1),
        scope=CLUSTER_WIDE,
    )
    compression_lz4_level: int = setting(
        INT,
        9,
        "Default of the topic config of that name.",
        check=Between(1, 17),
        scope=CLUSTER_WIDE,
    )
    compression_zstd_level: int = setting(
        INT,
        3,
        "Default of the topic config of that name.",
        check=Between(-131072, 22),
        scope=CLUSTER_WIDE,
    )
    message_max_bytes: int = setting(
        INT,
        1_048_588,
        "Default of `max.message.bytes`: the largest batch that is taken.",
        check=AtLeast(0),
        importance=HIGH,
        unit="bytes",
        scope=CLUSTER_WIDE,
    )
    durability: str = setting(
        STRING,
        "sync",
        "Default of the topic config of that name: `sync` or `async`.",
        check=OneOf("sync", "async"),
        importance=HIGH,
        scope=CLUSTER_WIDE,
    )
    record_validation: str = setting(
        STRING,
        "header",
        "Default of the topic config of that name: `header` or `full`.",
        check=OneOf("header", "full"),
        scope=CLUSTER_WIDE,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogSettings:
    """Segments, retention, compaction."""

    log_cleanup_policy: tuple[str, ...] = setting(
        LIST,
        ("delete",),
        "Default of `cleanup.policy`.",
        check=EachOf("compact", "delete"),
        scope=CLUSTER_WIDE,
    )
    log_segment_bytes: int = setting(
        INT,
        1 << 30,
        "Default of `segment.bytes`.",
        check=AtLeast(MIB),
        importance=HIGH,
        unit="bytes",
        scope=CLUSTER_WIDE,
    )
    log_roll_ms: int | None = setting(
        LONG,
        None,
        "Default of `segment.ms`. If not set, `log.roll.hours` counts.",
        check=AtLeast(1),
        unit="ms",
        scope=CLUSTER_WIDE,
        also=("log.roll.hours",),
    )
    log_roll_hours: int = setting(
        INT, 168, "As `log.roll.ms`, in hours.", check=AtLeast(1), unit="hours"
    )
    log_roll_jitter_ms: int | None = setting(
        LONG,
        None,
        "Default of `segment.jitter.ms`. If not set, `log.roll.jitter.hours` counts.",
        check=AtLeast(0),
        unit="ms",
        scope=CLUSTER_WIDE,
        also=("log.roll.jitter.hours",),
    )
    log_roll_jitter_hours: int = setting(
        INT, 0, "As `log.roll.jitter.ms`, in hours.", check=AtLeast(0), unit="hours"
    )
    log_retention_ms: int | None = setting(
        LONG,
        None,
        "Default of `retention.ms`. If not set, `log.retention.minutes` counts, then "
        "`log.retention.hours`; -1: for ever.",
        importance=HIGH,
        unit="ms",
        scope=CLUSTER_WIDE,
        also=("log.retention.minutes", "log.retention.hours"),
    )
    log_retention_minutes: int | None = setting(
        INT, None, "As `log.retention.ms`, in minutes.", importance=HIGH, unit="minutes"
    )
    log_retention_hours: int = setting(
        INT, 168, "As `log.retention.ms`, in hours.", importance=HIGH, unit="hours"
    )
    log_retention_bytes: int = setting(
        LONG,
        -1,
        "Default of `retention.bytes`.",
        importance=HIGH,
        unit="bytes",
        scope=CLUSTER_WIDE,
    )
    log_retention_check_interval_ms: int = setting(
        LONG,
        300_000,
        "How often logs are looked through for segments that retention can drop.",
        check=AtLeast(1),
        unit="ms",
    )
    log_index_interval_bytes: int = setting(
        INT,
        4096,
        "Default of `index.interval.bytes`.",
        check=AtLeast(0),
        unit="bytes",
        scope=CLUSTER_WIDE,
    )
    log_index_size_max_bytes: int = setting(
        INT,
        10 * MIB,
        "Default of `segment.index.bytes`.",
        check=AtLeast(4),
        unit="bytes",
        scope=CLUSTER_WIDE,
    )
    log_flush_interval_messages: int = setting(
        LONG,
        LONG_MAX,
        "Default of `flush.messages`.",
        check=AtLeast(1),
        scope=CLUSTER_WIDE,
    )
    log_flush_interval_ms: int = setting(
        LONG,
        1000,
        "Default of `flush.ms`.",
        check=AtLeast(0),
        unit="ms",
        scope=CLUSTER_WIDE,
    )
    log_segment_delete_delay_ms: int = setting(
        LONG,
        60_000,
        "Default of `file.delete.delay.ms`.",
        check=AtLeast(0),
        unit="ms",
        scope=CLUSTER_WIDE,
    )
    log_preallocate: bool = setting(
        BOOLEAN,
        False,
        "Default of `preallocate`.",
        scope=CLUSTER_WIDE,
        inert=True,
    )
    log_message_timestamp_type: str = setting(
        STRING,
        "CreateTime",
        "Default of `message.timestamp.type`.",
        check=OneOf("CreateTime", "LogAppendTime"),
        scope=CLUSTER_WIDE,
    )
    log_message_timestamp_before_max_ms: int = setting(
        LONG,
        LONG_MAX,
        "Default of `message.timestamp.before.max.ms`.",
        check=AtLeast(0),
        unit="ms",
        scope=CLUSTER_WIDE,
    )
    log_message_timestamp_after_max_ms: int = setting(
        LONG,
        3_600_000,
        "Default of `message.timestamp.after.max.ms`.",
        check=AtLeast(0),
        unit="ms",
        scope=CLUSTER_WIDE,
    )
    log_local_retention_bytes: int = setting(
        LONG,
        -2,
        "Default of `local.retention.bytes`.",
        check=AtLeast(-2),
        importance=LOW,
        unit="bytes",
        scope=CLUSTER_WIDE,
        inert=True,
    )
    log_local_retention_ms: int = setting(
        LONG,
        -2,
        "Default of `local.retention.ms`.",
        check=AtLeast(-2),
        importance=LOW,
        unit="ms",
        scope=CLUSTER_WIDE,
        inert=True,
    )
    remote_log_storage_system_enable: bool = setting(
        BOOLEAN,
        False,
        "Whether there is tiered storage. There is none.",
        check=Exactly(False, "Tiered storage does not exist here"),
        importance=LOW,
        inert=True,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class CleanerSettings:
    """Compaction."""

    log_cleaner_enable: bool = setting(
        BOOLEAN, True, "Whether topics with `cleanup.policy` compact are compacted."
    )
    log_cleaner_backoff_ms: int = setting(
        LONG,
        15_000,
        "How long the cleaner rests when it found nothing to do.",
        check=AtLeast(0),
        unit="ms",
        scope=CLUSTER_WIDE,
    )
    log_cleaner_dedupe_buffer_size: int = setting(
        LONG,
        128 * MIB,
        "How much memory the cleaner may use for keys. A log with more keys takes several passes.",
        check=AtLeast(MIB),
        unit="bytes",
        scope=CLUSTER_WIDE,
    )
    log_cleaner_io_max_bytes_per_second: float = setting(
        DOUBLE,
        DOUBLE_MAX,
        "How fast the cleaner reads and writes, at most.",
        check=AtLeast(1),
        unit="bytes/s",
        scope=CLUSTER_WIDE,
    )
    log_cleaner_threads: int = setting(
        INT,
        1,
        "Kafka's number of cleaner threads. One worker compacts here.",
        check=AtLeast(0),
        importance=LOW,
        scope=CLUSTER_WIDE,
        inert=True,
    )
    log_cleaner_min_cleanable_ratio: float = setting(
        DOUBLE,
        0.5,
        "Default of `min.cleanable.dirty.ratio`.",
        check=Between(0, 1),
        scope=CLUSTER_WIDE,
    )
    log_cleaner_min_compaction_lag_ms: int = setting(
        LONG,
        0,
        "Default of `min.compaction.lag.ms`.",
        check=AtLeast(0),
        unit="ms",
        scope=CLUSTER_WIDE,
    )
    log_cleaner_max_compaction_lag_ms: int = setting(
        LONG,
        LONG_MAX,
        "Default of `max.compaction.lag.ms`.",
        check=AtLeast(1),
        unit="ms",
        scope=CLUSTER_WIDE,
    )
    log_cleaner_delete_retention_ms: int = setting(
        LONG,
        DAY_MS,
        "Default of `delete.retention.ms`.",
        check=AtLeast(0),
        unit="ms",
        scope=CLUSTER_WIDE,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DiskSettings:
    """The journal and the disk's end."""

    journal_file_bytes: int = setting(
        INT,
        32 * MIB,
        "The size of one journal file.",
        check=AtLeast(4096),
        unit="bytes",
    )
    journal_max_bytes: int = setting(
        LONG,
        512 * MIB,
        "The size of the journal in all: what can be promised before segments are synced. At 7/8 "
        "producers are slowed, full they wait. At least four files.",
        check=AtLeast(4 * 4096),
        unit="bytes",
    )
    disk_reserve_bytes: int = setting(
        LONG,
        256 * MIB,
        "With less free space than this, producing fails with KAFKA_STORAGE_ERROR; reading, "
        "deleting, epochs and votes go on.",
        check=AtLeast(0),
        unit="bytes",
        scope=CLUSTER_WIDE,
    )
    open_segments_max: int = setting(
        INT,
        2000,
        "How many segment files are held open; the least used one is closed for the next.",
        check=AtLeast(8),
        importance=LOW,
    )
