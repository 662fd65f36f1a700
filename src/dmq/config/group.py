"""Configs of groups and of client metrics subscriptions.

Names, types, defaults and bounds are Kafka 4.3's. A group's value that is not set comes from the
broker setting named by `synonym`. Coordinators read `GroupConfig`; telemetry reads
`ClientMetricsConfig`.
"""

import dataclasses
import re

from dmq.config.broker import BrokerConfig
from dmq.config.checks import AtLeast, Between, OffsetReset, OneOf
from dmq.config.definitions import (
    BOOLEAN,
    INT,
    LIST,
    STRING,
    ConfigDef,
    definitions_of,
    setting,
)
from dmq.errors import ConfigError, ErrorCode, KafkaError


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """The configs of one group, resolved."""

    consumer_session_timeout_ms: int = setting(
        INT,
        45_000,
        "How long a member of the consumer protocol may be silent before it is out.",
        check=AtLeast(1),
        unit="ms",
        synonym="group.consumer.session.timeout.ms",
    )
    consumer_heartbeat_interval_ms: int = setting(
        INT,
        5000,
        "How often members of the consumer protocol are told to heartbeat.",
        check=AtLeast(1),
        unit="ms",
        synonym="group.consumer.heartbeat.interval.ms",
    )
    consumer_assignment_interval_ms: int = setting(
        INT,
        1000,
        "The least time between two assignments.",
        check=AtLeast(0),
        unit="ms",
        synonym="group.consumer.assignment.interval.ms",
    )
    share_session_timeout_ms: int = setting(
        INT,
        45_000,
        "How long a share member may be silent before it is out.",
        check=AtLeast(1),
        unit="ms",
        synonym="group.share.session.timeout.ms",
    )
    share_heartbeat_interval_ms: int = setting(
        INT,
        5000,
        "How often share members are told to heartbeat.",
        check=AtLeast(1),
        unit="ms",
        synonym="group.share.heartbeat.interval.ms",
    )
    share_assignment_interval_ms: int = setting(
        INT,
        1000,
        "The least time between two assignments.",
        check=AtLeast(0),
        unit="ms",
        synonym="group.share.assignment.interval.ms",
    )
    share_record_lock_duration_ms: int = setting(
        INT,
        30_000,
        "How long a delivered record is held for its consumer.",
        check=AtLeast(1000),
        unit="ms",
        synonym="group.share.record.lock.duration.ms",
    )
    share_delivery_count_limit: int = setting(
        INT,
        5,
        "How often a record is delivered before it is given up.",
        check=AtLeast(2),
        synonym="group.share.delivery.count.limit",
    )
    share_partition_max_record_locks: int = setting(
        INT,
        2000,
        "How many records of a partition can be out at once.",
        check=AtLeast(100),
        synonym="group.share.partition.max.record.locks",
    )
    share_auto_offset_reset: str = setting(
        STRING,
        "latest",
        "Where a share group begins in a partition that it has not read.",
        check=OffsetReset(),
    )
    share_isolation_level: str = setting(
        STRING,
        "read_uncommitted",
        "Whether a share group sees records of transactions before their end.",
        check=OneOf("read_committed", "read_uncommitted"),
    )
    share_renew_acknowledge_enable: bool = setting(
        BOOLEAN,
        True,
        "Whether a consumer can hold a record for longer.",
    )
    streams_session_timeout_ms: int = setting(
        INT,
        45_000,
        "How long a streams member may be silent before it is out.",
        check=AtLeast(1),
        unit="ms",
        synonym="group.streams.session.timeout.ms",
    )
    streams_heartbeat_interval_ms: int = setting(
        INT,
        5000,
        "How often streams members are told to heartbeat.",
        check=AtLeast(1),
        unit="ms",
        synonym="group.streams.heartbeat.interval.ms",
    )
    streams_assignment_interval_ms: int = setting(
        INT,
        1000,
        "The least time between two assignments.",
        check=AtLeast(0),
        unit="ms",
        synonym="group.streams.assignment.interval.ms",
    )
    streams_num_standby_replicas: int = setting(
        INT,
        0,
        "Standby copies of each stateful task.",
        check=AtLeast(0),
        synonym="group.streams.num.standby.replicas",
    )
    streams_initial_rebalance_delay_ms: int = setting(
        INT,
        3000,
        "How long the first assignment of an empty group waits for more members.",
        check=AtLeast(0),
        unit="ms",
        synonym="group.streams.initial.rebalance.delay.ms",
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ClientMetricsConfig:
    """One subscription to clients' metrics."""

    interval_ms: int = setting(
        INT, 300_000, "How often clients push.", check=Between(100, 3_600_000), unit="ms"
    )
    match: tuple[str, ...] = setting(
        LIST, (), "Which clients: key=regular expression pairs; empty: all of them."
    )
    metrics: tuple[str, ...] = setting(LIST, (), "Which metrics, by prefix; empty: none; `*`: all.")


GROUP: dict[str, ConfigDef] = definitions_of(GroupConfig)
CLIENT_METRICS: dict[str, ConfigDef] = definitions_of(ClientMetricsConfig)

CLIENT_MATCH_KEYS = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)


def check_group_bounds(config: GroupConfig, broker: BrokerConfig) -> None:
    """Holds a group's values against the broker's least and most. Raises ConfigError."""
    for name, definition in GROUP.items():
        kind, _, what = name.partition(".")
        value = getattr(config, definition.field)
        high = f"group.{kind}.max.{what.removeprefix('num.')}"
        _check_bound(name, value, broker, f"group.{kind}.min.{what}", high)
    for kind in ("consumer", "share", "streams"):
        heartbeat = getattr(config, f"{kind}_heartbeat_interval_ms")
        if heartbeat >= getattr(config, f"{kind}_session_timeout_ms"):
            raise ConfigError(
                [f"{kind}.heartbeat.interval.ms must be less than {kind}.session.timeout.ms"]
            )


def _check_bound(name: str, value: int, broker: BrokerConfig, low: str, high: str) -> None:
    least = getattr(broker, low.replace(".", "_"), None)
    most = getattr(broker, high.replace(".", "_"), None)
    if least is not None and value < least:
        raise ConfigError([f"{name} is less than {low} ({least})"])
    if most is not None and value > most:
        raise ConfigError([f"{name} is more than {high} ({most})"])


def check_client_match(patterns: tuple[str, ...]) -> None:
    """Raises KafkaError for a selector of clients that can't be one."""
    for pattern in patterns:
        key, equals, expression = pattern.partition("=")
        sound = bool(equals) and key.strip() in CLIENT_MATCH_KEYS
        if sound:
            try:
                re.compile(expression.strip())
            except re.error:
                sound = False
        if not sound:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"This selects no clients: {pattern}")
