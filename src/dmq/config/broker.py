"""BrokerConfig: every setting of a broker, checked as a whole.

Made by `load.py` from flags, environment and file, or by `BrokerConfig.of` from values; read by the
runtime, which passes numbers down. Frozen: what changes while the broker runs (dynamic configs)
gives another BrokerConfig by `with_dynamic`.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Self

from dmq.config.broker_cluster import (
    Address,
    ClusterSettings,
    parse_address,
    parse_peers,
    parse_target,
)
from dmq.config.broker_groups import (
    GroupSettings,
    OffsetsSettings,
    ShareSettings,
    StreamsSettings,
    TransactionSettings,
)
from dmq.config.broker_log import CleanerSettings, DiskSettings, LogSettings, TopicSettings
from dmq.config.broker_network import NetworkSettings
from dmq.config.broker_node import NodeSettings
from dmq.config.definitions import DOUBLE, LONG, ConfigDef, definitions_of, write_value
from dmq.config.listeners import (
    ANY_HOST,
    Listener,
    check_advertised,
    check_served,
    parse_listeners,
    parse_protocol_map,
)
from dmq.errors import ConfigError

ALIASES = {"broker.id": "node.id", "log.dir": "log.dirs", "data.dir": "log.dirs"}
"""Other names that a setting may be given by."""

MINUTE_MS = 60 * 1000
HOUR_MS = 60 * MINUTE_MS


@dataclasses.dataclass(frozen=True, kw_only=True)
class BrokerConfig(
    NodeSettings,
    ClusterSettings,
    NetworkSettings,
    TopicSettings,
    LogSettings,
    CleanerSettings,
    DiskSettings,
    OffsetsSettings,
    GroupSettings,
    ShareSettings,
    StreamsSettings,
    TransactionSettings,
):
    """The settings of one broker.

    values    what was set, by name, as text (all else has its default)
    sources   where each of these was set: "flag", "environment DMQ_NODE_ID", "broker.yaml:3"
    warnings  sentences for the log: names that Kafka knows and that mean nothing here
    """

    values: Mapping[str, str] = dataclasses.field(default_factory=dict)
    sources: Mapping[str, str] = dataclasses.field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(cls, values: Mapping[str, Any] | None = None, **fields: Any) -> Self:
        """From values by name (`{"num.partitions": 3}`) or by field (`num_partitions=3`), checked.

        Raises ConfigError with every problem.
        """
        given = dict(values or {}) | {field.replace("_", "."): v for field, v in fields.items()}
        texts = {
            name: text for name, value in given.items() if (text := as_text(value)) is not None
        }
        return cls.from_texts(texts, dict.fromkeys(texts, "given"))

    @classmethod
    def from_texts(
        cls, texts: Mapping[str, str], sources: Mapping[str, str], warnings: tuple[str, ...] = ()
    ) -> Self:
        """From texts and where each came from. Raises ConfigError with every problem."""
        problems: list[str] = []
        parsed: dict[str, Any] = {}
        for name, text in texts.items():
            definition = BROKER.get(name)
            if definition is None:
                problems.append(f"{sources[name]}: Unknown setting {name}")
                continue
            try:
                parsed[definition.field] = definition.parse(text)
            except ConfigError as error:
                problems += [f"{sources[name]}: {problem}" for problem in error.problems]
        config = cls(**parsed, values=dict(texts), sources=dict(sources), warnings=warnings)
        problems += check_whole(config)
        if problems:
            raise ConfigError(problems)
        return config

    def with_dynamic(self, *levels: Mapping[str, str]) -> "BrokerConfig":
        """These settings with dynamic configs laid over them, weakest first."""
        changed = {
            BROKER[name].field: BROKER[name].parse(text)
            for level in levels
            for name, text in level.items()
            if name in BROKER
        }
        return dataclasses.replace(self, **changed) if changed else self

    @property
    def data_dir(self) -> str:
        return self.log_dirs[0]

    @property
    def kafka_listeners(self) -> tuple[Listener, ...]:
        """Where the Kafka door listens."""
        texts = self.listeners or (str(Listener("PLAINTEXT", "PLAINTEXT", self.host, self.port)),)
        return parse_listeners(texts, parse_protocol_map(self.listener_security_protocol_map))

    def advertised(self, listener: Listener, bound_port: int, hostname: str) -> tuple[str, int]:
        """Host and port that clients of this listener are told.

        `bound_port` is what the system gave it; `hostname` is the machine's, for listeners on
        every address.
        """
        protocols = parse_protocol_map(self.listener_security_protocol_map)
        for advertised in parse_listeners(self.advertised_listeners or (), protocols):
            if advertised.name == listener.name:
                return advertised.host, advertised.port or bound_port
        return (hostname if listener.host in ANY_HOST else listener.host), bound_port

    @property
    def peer_address(self) -> Address | None:
        """Where the peer door listens; None: there is none."""
        return parse_address(self.peer_listener) if self.peer_listener else None

    def peer_told(self, bound_port: int, hostname: str) -> Address:
        """Host and port that other brokers are told; arguments as for `advertised`."""
        host, port = parse_address(self.peer_advertised or self.peer_listener)
        return (hostname if host in ANY_HOST else host), port or bound_port

    @property
    def join_addresses(self) -> tuple[Address, ...]:
        return tuple(parse_target(text) for text in self.cluster_join)

    @property
    def peers_by_id(self) -> dict[int, Address]:
        """The fixed set of first brokers, this one among them; empty: there is no such set."""
        return parse_peers(self.cluster_peers)

    @property
    def retention_ms(self) -> int:
        """The default of `retention.ms`, from milliseconds, minutes or hours."""
        if self.log_retention_ms is not None:
            value = self.log_retention_ms
        elif self.log_retention_minutes is not None:
            value = self.log_retention_minutes * MINUTE_MS
        else:
            value = self.log_retention_hours * HOUR_MS
        return -1 if value < 0 else value

    @property
    def roll_ms(self) -> int:
        """The default of `segment.ms`, from milliseconds or hours."""
        return self.log_roll_hours * HOUR_MS if self.log_roll_ms is None else self.log_roll_ms

    @property
    def roll_jitter_ms(self) -> int:
        """The default of `segment.jitter.ms`, from milliseconds or hours."""
        if self.log_roll_jitter_ms is not None:
            return self.log_roll_jitter_ms
        return self.log_roll_jitter_hours * HOUR_MS


BROKER: dict[str, ConfigDef] = definitions_of(BrokerConfig)
"""Every broker setting by name."""


def as_text(value: Any) -> str | None:
    """A Python value as the text a user would have written; None: not set."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list | tuple):
        return ",".join(str(part) for part in value)
    return write_value(DOUBLE if isinstance(value, float) else LONG, value)


def check_whole(config: BrokerConfig) -> list[str]:
    """What is wrong between settings: every problem, one sentence each."""
    problems = []
    for check in _WHOLE:
        try:
            check(config)
        except ConfigError as error:
            problems += error.problems
        except ValueError as error:
            problems.append(f"{_where(config, *_WHOLE[check])}: {error}")
    return problems


def _where(config: BrokerConfig, *names: str) -> str:
    found = [_named(config.sources[name], name) for name in names if name in config.sources]
    return ", ".join(found) or names[0]


def _named(source: str, name: str) -> str:
    """A place and the setting there; a flag has its name."""
    return source if source == f"flag {name}" else f"{source}: {name}"


def _check_data_dir(config: BrokerConfig) -> None:
    if len(config.log_dirs) > 1:
        raise ValueError("there can be only one data directory; run one broker per disk")


def _check_listeners(config: BrokerConfig) -> None:
    check_served(config.kafka_listeners)


def _check_advertised(config: BrokerConfig) -> None:
    protocols = parse_protocol_map(config.listener_security_protocol_map)
    try:
        listeners = config.kafka_listeners
    except ValueError:
        return  # Told by _check_listeners.
    check_advertised(parse_listeners(config.advertised_listeners or (), protocols), listeners)


def _check_peer_listener(config: BrokerConfig) -> None:
    if config.peer_listener:
        _check_doors_differ(config, *parse_address(config.peer_listener))
    elif config.cluster_join or _is_among_peers(config):
        raise ValueError(
            "must be set for a broker that joins others; `dmq serve --peers` takes it from the list,"
            " if --node-id says which one of them this broker is"
        )


def _check_doors_differ(config: BrokerConfig, host: str, port: int) -> None:
    try:
        listeners = config.kafka_listeners
    except ValueError:
        return  # Told by _check_listeners.
    for each in listeners:
        is_same = each.host == host or each.host in ANY_HOST or host in ANY_HOST
        if port and each.port == port and is_same:
            raise ValueError(
                f"clients are served at port {port} ({each.name}): brokers speak with each other at "
                "another one (`dmq serve --port` and --peer-port)"
            )


def _is_among_peers(config: BrokerConfig) -> bool:
    """If not, that is to be told, and not what follows from it."""
    try:
        return config.node_id in config.peers_by_id
    except ValueError:
        return False


def _check_peer_advertised(config: BrokerConfig) -> None:
    if config.peer_advertised and parse_address(config.peer_advertised)[0] in ANY_HOST:
        raise ValueError(
            f"{config.peer_advertised} is no address that another broker can connect to"
        )


def _check_join(config: BrokerConfig) -> None:
    for text in config.cluster_join:
        parse_target(text)


def _check_peers(config: BrokerConfig) -> None:
    peers = parse_peers(config.cluster_peers)
    if peers and config.node_id not in peers:
        raise ValueError(f"node.id {config.node_id} is not among them")


def _check_one_way_in(config: BrokerConfig) -> None:
    ways = (config.cluster_bootstrap, bool(config.cluster_join), bool(config.cluster_peers))
    if sum(ways) > 1:
        raise ValueError("only one of cluster.bootstrap, cluster.join and cluster.peers may be set")


def _check_backoff(config: BrokerConfig) -> None:
    if config.peer_reconnect_backoff_ms > config.peer_reconnect_backoff_max_ms:
        raise ValueError("must not be greater than peer.reconnect.backoff.max.ms")


def _check_journal(config: BrokerConfig) -> None:
    if config.journal_max_bytes < 4 * config.journal_file_bytes:
        raise ValueError("the journal needs at least four files of journal.file.bytes")


def _check_request(config: BrokerConfig) -> None:
    if 0 <= config.queued_max_request_bytes < config.socket_request_max_bytes:
        raise ValueError("must be at least socket.request.max.bytes, or -1")


def _check_retention(config: BrokerConfig) -> None:
    units = (config.log_retention_ms, config.log_retention_minutes, config.log_retention_hours)
    if 0 in units:
        raise ValueError("must be -1 or greater than 0")


def _check_overrides(config: BrokerConfig) -> None:
    parse_ip_overrides(config.max_connections_per_ip_overrides)


def _check_lags(config: BrokerConfig) -> None:
    if config.log_cleaner_min_compaction_lag_ms > config.log_cleaner_max_compaction_lag_ms:
        raise ValueError("must not be greater than log.cleaner.max.compaction.lag.ms")


def _check_groups(config: BrokerConfig) -> None:
    for low, value, high in _ORDERED:
        low_value = -1 if low is None else getattr(config, BROKER[low].field)
        name_value, high_value = (getattr(config, BROKER[name].field) for name in (value, high))
        if not low_value <= name_value <= high_value:
            raise ConfigError([f"{_where(config, value)}: must lie between {low} and {high}"])


def parse_ip_overrides(text: str) -> dict[str, int]:
    """address:count pairs. Raises ValueError with the reason."""
    counts: dict[str, int] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        address, _, count = pair.rpartition(":")
        if not address or not count.isdigit():
            raise ValueError(f"{pair!r} is not of the form address:count")
        counts[address] = int(count)
    return counts


_ORDERED: list[tuple[str | None, str, str]] = []
_ORDERED += [
    (f"group.{kind}.min.{what}", f"group.{kind}.{what}", f"group.{kind}.max.{what}")
    for kind in ("consumer", "share", "streams")
    for what in ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")
] + [
    (f"group.share.min.{what}", f"group.share.{what}", f"group.share.max.{what}")
    for what in ("record.lock.duration.ms", "delivery.count.limit", "partition.max.record.locks")
]
_ORDERED += [
    (None, "group.min.session.timeout.ms", "group.max.session.timeout.ms"),
    (None, "group.streams.num.standby.replicas", "group.streams.max.standby.replicas"),
]

_WHOLE: dict[Callable[[BrokerConfig], None], tuple[str, ...]] = {
    _check_data_dir: ("log.dirs",),
    _check_listeners: ("listeners", "host", "port", "listener.security.protocol.map"),
    _check_advertised: ("advertised.listeners",),
    _check_peer_listener: ("peer.listener",),
    _check_peer_advertised: ("peer.advertised",),
    _check_join: ("cluster.join",),
    _check_peers: ("cluster.peers", "node.id"),
    _check_one_way_in: ("cluster.bootstrap", "cluster.join", "cluster.peers"),
    _check_backoff: ("peer.reconnect.backoff.ms",),
    _check_journal: ("journal.max.bytes", "journal.file.bytes"),
    _check_request: ("queued.max.request.bytes", "socket.request.max.bytes"),
    _check_retention: ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    _check_overrides: ("max.connections.per.ip.overrides",),
    _check_lags: ("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
    _check_groups: (),
}
"""Checks that span settings, with the settings that each is about."""
