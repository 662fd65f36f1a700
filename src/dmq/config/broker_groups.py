"""Settings of coordinators: consumer, share and streams groups, offsets, producers, transactions.

Fields only; `broker.py` puts the groups of settings together. Names and defaults are Kafka 4.3's.
"""

import dataclasses

from dmq.config.checks import AtLeast, Between, EachOf, OneOf
from dmq.config.definitions import (
    BOOLEAN,
    CLUSTER_WIDE,
    INT,
    INT_MAX,
    LIST,
    LONG,
    LOW,
    SHORT,
    STRING,
    setting,
)

MIB = 1 << 20
DAY_MS = 24 * 3600 * 1000


@dataclasses.dataclass(frozen=True, kw_only=True)
class OffsetsSettings:
    """Committed offsets."""

    offsets_topic_num_partitions: int = setting(
        INT,
        50,
        "Partitions of `__consumer_offsets`. Fixed once the topic is there.",
        check=AtLeast(1),
    )
    offsets_topic_replication_factor: int = setting(
        SHORT,
        -1,
        "Replicas of `__consumer_offsets`; -1: as `default.replication.factor`.",
        check=Between(1, 32767, -1),
    )
    offsets_topic_segment_bytes: int = setting(
        INT,
        100 * MIB,
        "Segment size of `__consumer_offsets`.",
        check=AtLeast(1),
        importance=LOW,
        unit="bytes",
    )
    offsets_retention_minutes: int = setting(
        INT,
        10_080,
        "How long the offsets of a group without members are kept.",
        check=AtLeast(1),
        unit="minutes",
    )
    offsets_retention_check_interval_ms: int = setting(
        LONG,
        600_000,
        "How often offsets are looked through for expired ones.",
        check=AtLeast(1),
        unit="ms",
    )
    offset_metadata_max_bytes: int = setting(
        INT,
        4096,
        "The longest text that can be committed with an offset.",
        unit="bytes",
    )
    offsets_commit_timeout_ms: int = setting(
        INT,
        5000,
        "How long a commit waits to be committed itself.",
        check=AtLeast(1),
        unit="ms",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class GroupSettings:
    """Groups that consume."""

    group_coordinator_rebalance_protocols: tuple[str, ...] = setting(
        LIST,
        ("classic", "consumer", "streams"),
        "Which group protocols are served.",
        check=EachOf("classic", "consumer", "share", "streams", empty=False),
    )
    group_min_session_timeout_ms: int = setting(
        INT, 6000, "The shortest session of a classic member.", unit="ms"
    )
    group_max_session_timeout_ms: int = setting(
        INT, 1_800_000, "The longest session of a classic member.", unit="ms"
    )
    group_initial_rebalance_delay_ms: int = setting(
        INT,
        3000,
        "How long the first rebalance of an empty classic group waits for more members.",
        unit="ms",
    )
    group_max_size: int = setting(
        INT, INT_MAX, "The most members of a classic group.", check=AtLeast(1)
    )
    group_coordinator_max_groups: int = setting(
        INT,
        100_000,
        "The most groups of one coordinator: of one partition of __consumer_offsets. Groups with "
        "members and groups with offsets are counted apart. One more is refused with POLICY_VIOLATION.",
        check=AtLeast(1),
    )
    group_max_offsets: int = setting(
        INT,
        100_000,
        "The most partitions that a group can have offsets of. One more is refused with "
        "INVALID_COMMIT_OFFSET_SIZE.",
        check=AtLeast(1),
    )
    group_member_metadata_max_bytes: int = setting(
        INT,
        1_048_576,
        "The most bytes that a member can say of itself when it joins (subscriptions, regular "
        "expressions, data of assignors). More is refused with POLICY_VIOLATION.",
        check=AtLeast(1),
        unit="bytes",
    )
    group_consumer_session_timeout_ms: int = setting(
        INT,
        45_000,
        "Session of a member of the consumer protocol.",
        check=AtLeast(1),
        unit="ms",
    )
    group_consumer_min_session_timeout_ms: int = setting(
        INT, 45_000, "The least a group can set for it.", check=AtLeast(1), unit="ms"
    )
    group_consumer_max_session_timeout_ms: int = setting(
        INT, 60_000, "The most a group can set for it.", check=AtLeast(1), unit="ms"
    )
    group_consumer_heartbeat_interval_ms: int = setting(
        INT,
        5000,
        "Heartbeat of a member of the consumer protocol.",
        check=AtLeast(1),
        unit="ms",
    )
    group_consumer_min_heartbeat_interval_ms: int = setting(
        INT, 5000, "The least a group can set for it.", check=AtLeast(1), unit="ms"
    )
    group_consumer_max_heartbeat_interval_ms: int = setting(
        INT, 15_000, "The most a group can set for it.", check=AtLeast(1), unit="ms"
    )
    group_consumer_max_size: int = setting(
        INT, INT_MAX, "The most members of a group of the consumer protocol.", check=AtLeast(1)
    )
    group_consumer_assignors: tuple[str, ...] = setting(
        LIST,
        ("uniform", "range"),
        "The assignors of the consumer protocol; the first is the default. A member may ask for sticky "
        "in any case: it is uniform by the name that classic clients know.",
        check=EachOf("uniform", "range", "sticky", empty=False),
    )
    group_consumer_migration_policy: str = setting(
        STRING,
        "bidirectional",
        "Whether a group moves between the classic and the consumer protocol by its members.",
        check=OneOf("bidirectional", "upgrade", "downgrade", "disabled", ignore_case=True),
    )
    group_consumer_assignment_interval_ms: int = setting(
        INT,
        1000,
        "The least time between two assignments of a group of the consumer protocol.",
        check=AtLeast(0),
        unit="ms",
        scope=CLUSTER_WIDE,
    )
    group_consumer_min_assignment_interval_ms: int = setting(
        INT, 0, "The least a group can set for it.", check=AtLeast(0), unit="ms"
    )
    group_consumer_max_assignment_interval_ms: int = setting(
        INT, 15_000, "The most a group can set for it.", check=AtLeast(0), unit="ms"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShareSettings:
    """Groups that share records, each acknowledged by itself."""

    group_share_session_timeout_ms: int = setting(
        INT, 45_000, "Session of a share member.", check=AtLeast(1), unit="ms"
    )
    group_share_min_session_timeout_ms: int = setting(
        INT, 45_000, "The least a group can set for it.", check=AtLeast(1), unit="ms"
    )
    group_share_max_session_timeout_ms: int = setting(
        INT, 60_000, "The most a group can set for it.", check=AtLeast(1), unit="ms"
    )
    group_share_heartbeat_interval_ms: int = setting(
        INT, 5000, "Heartbeat of a share member.", check=AtLeast(1), unit="ms"
    )
    group_share_min_heartbeat_interval_ms: int = setting(
        INT, 5000, "The least a group can set for it.", check=AtLeast(1), unit="ms"
    )
    group_share_max_heartbeat_interval_ms: int = setting(
        INT, 15_000, "The most a group can set for it.", check=AtLeast(1), unit="ms"
    )
    group_share_record_lock_duration_ms: int = setting(
        INT,
        30_000,
        "How long a delivered record is held for its consumer before others may have it.",
        check=Between(1000, 3_600_000),
        unit="ms",
    )
    group_share_min_record_lock_duration_ms: int = setting(
        INT, 15_000, "The least a group can set for it.", check=Between(1000, 30_000), unit="ms"
    )
    group_share_max_record_lock_duration_ms: int = setting(
        INT, 60_000, "The most a group can set for it.", check=Between(30_000, 3_600_000), unit="ms"
    )
    group_share_delivery_count_limit: int = setting(
        INT, 5, "How often a record is delivered before it is given up.", check=Between(2, 10)
    )
    group_share_min_delivery_count_limit: int = setting(
        INT, 2, "The least a group can set for it.", check=Between(2, 5)
    )
    group_share_max_delivery_count_limit: int = setting(
        INT, 10, "The most a group can set for it.", check=Between(5, 25)
    )
    group_share_partition_max_record_locks: int = setting(
        INT, 2000, "How many records of a partition can be out at once.", check=Between(100, 10_000)
    )
    group_share_min_partition_max_record_locks: int = setting(
        INT, 100, "The least a group can set for it.", check=Between(100, 2000)
    )
    group_share_max_partition_max_record_locks: int = setting(
        INT, 4000, "The most a group can set for it.", check=Between(2000, 20_000)
    )
    group_share_max_size: int = setting(
        INT, 200, "The most members of a share group.", check=Between(1, 1000)
    )
    group_share_max_share_sessions: int = setting(
        INT, 2000, "How many share sessions a broker keeps.", check=AtLeast(1)
    )
    group_share_assignors: tuple[str, ...] = setting(
        LIST,
        ("simple",),
        "The assignor of share groups.",
        check=EachOf("simple", empty=False),
        importance=LOW,
    )
    group_share_assignment_interval_ms: int = setting(
        INT,
        1000,
        "The least time between two assignments of a share group.",
        check=AtLeast(0),
        unit="ms",
        scope=CLUSTER_WIDE,
    )
    group_share_min_assignment_interval_ms: int = setting(
        INT, 0, "The least a group can set for it.", check=AtLeast(0), unit="ms"
    )
    group_share_max_assignment_interval_ms: int = setting(
        INT, 15_000, "The most a group can set for it.", check=AtLeast(0), unit="ms"
    )
    share_coordinator_state_topic_num_partitions: int = setting(
        INT, 50, "Partitions of `__share_group_state`.", check=AtLeast(1)
    )
    share_coordinator_state_topic_replication_factor: int = setting(
        SHORT,
        -1,
        "Replicas of `__share_group_state`; -1: as `default.replication.factor`.",
        check=Between(1, 32767, -1),
    )
    share_coordinator_state_topic_segment_bytes: int = setting(
        INT,
        100 * MIB,
        "Segment size of `__share_group_state`.",
        check=AtLeast(1),
        importance=LOW,
        unit="bytes",
    )
    share_coordinator_snapshot_update_records_per_snapshot: int = setting(
        INT,
        500,
        "How many deltas follow a snapshot of a share partition's state.",
        check=AtLeast(0),
    )
    share_coordinator_write_timeout_ms: int = setting(
        INT, 5000, "How long such a write waits.", check=AtLeast(1), unit="ms"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class StreamsSettings:
    """Groups of Kafka Streams (KIP-1071)."""

    group_streams_session_timeout_ms: int = setting(
        INT, 45_000, "Session of a streams member.", check=AtLeast(1), unit="ms"
    )
    group_streams_min_session_timeout_ms: int = setting(
        INT, 45_000, "The least a group can set for it.", check=AtLeast(1), unit="ms"
    )
    group_streams_max_session_timeout_ms: int = setting(
        INT, 60_000, "The most a group can set for it.", check=AtLeast(1), unit="ms"
    )
    group_streams_heartbeat_interval_ms: int = setting(
        INT, 5000, "Heartbeat of a streams member.", check=AtLeast(1), unit="ms"
    )
    group_streams_min_heartbeat_interval_ms: int = setting(
        INT, 5000, "The least a group can set for it.", check=AtLeast(1), unit="ms"
    )
    group_streams_max_heartbeat_interval_ms: int = setting(
        INT, 15_000, "The most a group can set for it.", check=AtLeast(1), unit="ms"
    )
    group_streams_max_size: int = setting(
        INT, INT_MAX, "The most members of a streams group.", check=AtLeast(1)
    )
    group_streams_num_standby_replicas: int = setting(
        INT, 0, "Standby copies of each stateful task.", check=AtLeast(0)
    )
    group_streams_max_standby_replicas: int = setting(
        INT, 2, "The most a group can set for it.", check=AtLeast(0)
    )
    group_streams_initial_rebalance_delay_ms: int = setting(
        INT,
        3000,
        "How long the first assignment of an empty streams group waits for more members.",
        check=AtLeast(0),
        unit="ms",
    )
    group_streams_assignment_interval_ms: int = setting(
        INT,
        1000,
        "The least time between two assignments of a streams group.",
        check=AtLeast(0),
        unit="ms",
        scope=CLUSTER_WIDE,
    )
    group_streams_min_assignment_interval_ms: int = setting(
        INT, 0, "The least a group can set for it.", check=AtLeast(0), unit="ms"
    )
    group_streams_max_assignment_interval_ms: int = setting(
        INT, 15_000, "The most a group can set for it.", check=AtLeast(0), unit="ms"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransactionSettings:
    """Producers and transactions."""

    producer_id_expiration_ms: int = setting(
        INT,
        DAY_MS,
        "How long an idle producer's sequence numbers are remembered.",
        check=AtLeast(1),
        unit="ms",
        scope=CLUSTER_WIDE,
    )
    transactional_id_expiration_ms: int = setting(
        INT,
        7 * DAY_MS,
        "How long an idle transactional id is remembered.",
        check=AtLeast(1),
        unit="ms",
    )
    transaction_max_timeout_ms: int = setting(
        INT,
        900_000,
        "The longest that a producer may keep a transaction open.",
        check=AtLeast(1),
        unit="ms",
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = setting(
        INT,
        10_000,
        "How often transactions that are open too long are looked for.",
        check=AtLeast(1),
        importance=LOW,
        unit="ms",
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(
        INT,
        3_600_000,
        "How often transactional ids are looked through for expired ones.",
        check=AtLeast(1),
        importance=LOW,
        unit="ms",
    )
    transaction_partition_verification_enable: bool = setting(
        BOOLEAN,
        True,
        "Whether the leader asks the coordinator before the first batch of a transaction. Always "
        "so.",
        importance=LOW,
        scope=CLUSTER_WIDE,
        inert=True,
    )
    transaction_two_phase_commit_enable: bool = setting(
        BOOLEAN,
        False,
        "Whether an outside coordinator may hold transactions open without limit.",
        importance=LOW,
    )
    transaction_state_log_num_partitions: int = setting(
        INT,
        50,
        "Partitions of `__transaction_state`. Fixed once the topic is there.",
        check=AtLeast(1),
    )
    transaction_state_log_replication_factor: int = setting(
        SHORT,
        -1,
        "Replicas of `__transaction_state`; -1: as `default.replication.factor`.",
        check=Between(1, 32767, -1),
    )
    transaction_state_log_min_isr: int = setting(
        INT,
        2,
        "`min.insync.replicas` of `__transaction_state`.",
        check=AtLeast(1),
    )
    transaction_state_log_segment_bytes: int = setting(
        INT,
        100 * MIB,
        "Segment size of `__transaction_state`.",
        check=AtLeast(1),
        importance=LOW,
        unit="bytes",
    )
