"""What a producer and a consumer can be told, and the same in librdkafka's words.

Frozen; every problem is reported at once, as a ConfigError, when one is made. Defaults are those of
Kafka's own clients where they have one, and the safe choice where librdkafka differs. `options`
takes any other property of librdkafka (TLS, SASL, timeouts) and wins over the fields. No broker is
asked here.
"""

import enum
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from dmq.client.serializers import BYTES, Serializer, serializer_of
from dmq.errors import ConfigError


class AckMode(enum.Enum):
    """Who must have a record before it counts as sent."""

    NONE = 0
    """Nobody: sent is enough. Records can be lost without a word."""
    LEADER = 1
    """The leader. Lost with it, if it dies before the others have the record."""
    ALL = -1
    """A majority, on disk, and at least min.insync.replicas."""


class CompressionType(enum.Enum):
    """How batches are compressed; brokers keep them so."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class OffsetResetPolicy(enum.Enum):
    """Where a consumer begins that has no committed offset, or one that is gone."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"
    """Nowhere: `poll` raises OffsetError."""


class GroupProtocol(enum.Enum):
    """How members of a group agree on who reads what."""

    CLASSIC = "classic"
    """A member assigns, all of them join in rounds. Works with every broker."""
    CONSUMER = "consumer"
    """The broker assigns, member by member (KIP-848). Nobody waits for the slowest."""


class IsolationLevel(enum.Enum):
    """Which records of transactions are read."""

    READ_UNCOMMITTED = "read_uncommitted"
    """All, also of aborted ones."""
    READ_COMMITTED = "read_committed"
    """Those of committed ones, up to the first transaction that is still open."""


Options = Mapping[str, Any]
_DAY_MS = 86_400_000
_FOREVER_RETRIES = 2_147_483_647
_RECONNECT_MAX_MS = 500
"""librdkafka's own 10 s keep it from a broker that is back and leads again: writes stood for seconds
when one broker after the other was killed, though the cluster went on within a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Common:
    client_id: str = "dmq"
    """How brokers name this client in logs, metrics and quotas."""

    options: Options = field(default_factory=dict)
    """Other properties of librdkafka, by their names: {"security.protocol": "SSL", ...}."""

    request_timeout_ms: int = 30_000
    """How long calls that ask a broker wait (commits, lag, transactions). Too low: they fail while a
    leader changes, which takes about a second. Too high: a dead cluster is noticed late."""


@dataclass(frozen=True, slots=True)
class ProducerConfig(_Common):
    """How a producer sends."""

    bootstrap_servers: str | Sequence[str] = "127.0.0.1:9092"
    """Some brokers of the cluster, "host:port,host:port" or a list; the others are found from there."""

    acks: AckMode | str | int = AckMode.ALL

    batch_size: int = 1_000_000
    """Bytes of records in a batch at most. Too low: a request per record. Too high: nothing, until it
    meets max.message.bytes of the topic."""

    linger_ms: float = 5.0
    """How long a record waits for company. 0: sent at once, and slowly in sum. Too high: latency."""

    retries: int = _FOREVER_RETRIES
    """How often a batch is sent again; `delivery_timeout_ms` is the better limit. 0: never."""

    delivery_timeout_ms: int = 120_000
    """When a record that is not acknowledged fails. Too low: a failover fails records that would have
    arrived."""

    compression_type: CompressionType | str = CompressionType.NONE

    enable_idempotence: bool | None = None
    """Each record once and in order, whatever is sent again. Without a word: yes with AckMode.ALL."""

    max_in_flight: int = 5
    """Requests under way per broker. 5 is the most that idempotence allows; 1 is slow."""

    max_record_bytes: int = 1 << 20
    """The largest record, as the topic's max.message.bytes allows it."""

    buffer_records: int = 100_000
    """Records that wait or are under way; then `send` waits. Too low: small batches."""

    buffer_bytes: int = 64 << 20
    """The same in bytes, keys and values."""

    max_block_ms: int = 60_000
    """How long `send` waits for room in the buffer before it raises BufferFullError; 0: not at all."""

    transactional_id: str | None = None
    """The name under which this producer's transactions are known. A second producer of the same name
    fences the first."""

    transaction_timeout_ms: int = 60_000
    """When the broker aborts a transaction that its producer has left open."""

    key_serializer: Serializer | Callable[[Any], bytes] = BYTES
    value_serializer: Serializer | Callable[[Any], bytes] = BYTES
    """A serializer, or a function from a value to its bytes."""

    def __post_init__(self) -> None:
        problems: list[str] = []
        _coerce(self, "acks", AckMode, problems, {"0": 0, "1": 1, "all": -1, "-1": -1})
        _coerce(self, "compression_type", CompressionType, problems, {None: "none"})
        _coerce_serializers(self, problems, "key_serializer", "value_serializer")
        problems += self._problems()
        if problems:
            raise ConfigError(problems)

    @property
    def is_idempotent(self) -> bool:
        if self.enable_idempotence is not None:
            return self.enable_idempotence
        return self.transactional_id is not None or (
            self.acks is AckMode.ALL and self.retries > 0 and self.max_in_flight <= 5
        )

    def _problems(self) -> list[str]:
        problems = _common_problems(self)
        problems += _no_bool(self, "enable_idempotence", None)
        problems += _out_of_range(self, "batch_size", 1, 2_147_483_647)
        problems += _out_of_range(self, "linger_ms", 0, 900_000)
        problems += _out_of_range(self, "retries", 0, _FOREVER_RETRIES)
        problems += _out_of_range(self, "delivery_timeout_ms", 1, _FOREVER_RETRIES)
        problems += _out_of_range(self, "max_in_flight", 1, 1_000_000)
        problems += _out_of_range(self, "max_record_bytes", 1_000, 1_000_000_000)
        problems += _out_of_range(self, "buffer_records", 1, 10_000_000)
        problems += _out_of_range(self, "buffer_bytes", 1024, 2_147_483_647 << 10)
        problems += _out_of_range(self, "max_block_ms", 0, _DAY_MS)
        problems += _out_of_range(self, "transaction_timeout_ms", 1_000, _FOREVER_RETRIES)
        if problems or not self.is_idempotent:
            if self.transactional_id is not None and self.enable_idempotence is False:
                problems.append("transactional_id needs enable_idempotence")
            return problems
        if self.acks is not AckMode.ALL:
            problems.append("enable_idempotence needs acks=AckMode.ALL")
        if self.retries == 0:
            problems.append("enable_idempotence needs retries above 0")
        if self.max_in_flight > 5:
            problems.append("enable_idempotence needs max_in_flight of 5 or less")
        return problems

    def librdkafka(self) -> dict[str, Any]:
        """The same as librdkafka's properties."""
        assert isinstance(self.acks, AckMode)
        assert isinstance(self.compression_type, CompressionType)
        properties: dict[str, Any] = {
            "bootstrap.servers": _servers(self.bootstrap_servers),
            "reconnect.backoff.max.ms": _RECONNECT_MAX_MS,
            "client.id": self.client_id,
            "acks": self.acks.value,
            "batch.size": self.batch_size,
            "batch.num.messages": 1_000_000,  # Bytes are the limit, as with Kafka's own client.
            "linger.ms": self.linger_ms,
            "retries": self.retries,
            # A linger longer than the timeout would fail every record.
            "message.timeout.ms": max(self.delivery_timeout_ms, math.ceil(self.linger_ms) + 1),
            "compression.type": self.compression_type.value,
            "enable.idempotence": self.is_idempotent,
            "max.in.flight.requests.per.connection": self.max_in_flight,
            "message.max.bytes": self.max_record_bytes,
            "queue.buffering.max.messages": self.buffer_records,
            "queue.buffering.max.kbytes": math.ceil(self.buffer_bytes / 1024),
            # As Kafka's own client: records of a key go where its other producers send them.
            "partitioner": "murmur2_random",
        }
        if self.transactional_id is not None:
            properties["transactional.id"] = self.transactional_id
            properties["transaction.timeout.ms"] = self.transaction_timeout_ms
            # librdkafka wants it below the transaction's time.
            properties["message.timeout.ms"] = min(
                properties["message.timeout.ms"], self.transaction_timeout_ms
            )
        return properties | dict(self.options)


@dataclass(frozen=True, slots=True)
class ConsumerConfig(_Common):
    """How a consumer reads."""

    bootstrap_servers: str | Sequence[str] = "127.0.0.1:9092"
    """Some brokers of the cluster, "host:port,host:port" or a list; the others are found from there."""

    group_id: str | None = None
    """The group whose members share the partitions, and whose offsets are committed. Without one:
    `assign` partitions; nothing is committed."""

    auto_offset_reset: OffsetResetPolicy | str = OffsetResetPolicy.LATEST

    enable_auto_commit: bool = True
    """Commit, from time to time, what was read before the last `poll`: never what is still in hand."""

    auto_commit_interval_ms: int = 5_000
    """Too low: a commit for every poll. Too high: more is read again after a crash."""

    max_poll_records: int = 500
    """Messages that a `poll` gives at most. Too high: `max_poll_interval_ms` is not enough for them."""

    max_poll_interval_ms: int = 300_000
    """When a member that does not poll loses its partitions. Too low: slow work loses them."""

    group_protocol: GroupProtocol | str = GroupProtocol.CLASSIC

    group_instance_id: str | None = None
    """A name that a member keeps over restarts, so that they move no partitions (static membership)."""

    assignors: Sequence[str] = ("cooperative-sticky",)
    """Classic protocol: how partitions are shared; "range" and "roundrobin" stop all members while they
    do. All members of a group must agree."""

    remote_assignor: str | None = None
    """Consumer protocol: the broker's assignor ("uniform", "range"); without one, the broker's choice."""

    session_timeout_ms: int = 45_000
    """Classic protocol: when a member that is not heard of is dead. Too low: pauses kill members."""

    isolation_level: IsolationLevel | str = IsolationLevel.READ_COMMITTED

    fetch_min_bytes: int = 1
    """What a broker collects before it answers a fetch. Higher: fewer requests, more latency."""

    fetch_max_wait_ms: int = 500
    """How long it collects at most."""

    buffer_bytes: int = 64 << 20
    """Fetched ahead of `poll` at most; then fetching stops until the application has caught up."""

    metadata_refresh_ms: int = 10_000
    """How often new topics (of a pattern, or of a name that did not exist) and partitions are looked
    for. Kafka's own client: 300,000."""

    key_deserializer: Serializer | Callable[[bytes], Any] = BYTES
    value_deserializer: Serializer | Callable[[bytes], Any] = BYTES
    """A serializer, or a function from bytes to their value."""

    def __post_init__(self) -> None:
        problems: list[str] = []
        _coerce(self, "auto_offset_reset", OffsetResetPolicy, problems)
        _coerce(self, "group_protocol", GroupProtocol, problems)
        _coerce(self, "isolation_level", IsolationLevel, problems)
        _coerce_serializers(self, problems, "key_deserializer", "value_deserializer")
        if isinstance(self.assignors, str):
            object.__setattr__(self, "assignors", (self.assignors,))
        problems += self._problems()
        if problems:
            raise ConfigError(problems)

    def _problems(self) -> list[str]:
        problems = _common_problems(self)
        problems += _no_bool(self, "enable_auto_commit")
        problems += _out_of_range(self, "auto_commit_interval_ms", 1, _DAY_MS)
        problems += _out_of_range(self, "max_poll_records", 1, 1_000_000)
        problems += _out_of_range(self, "max_poll_interval_ms", 1, _DAY_MS)
        problems += _out_of_range(self, "session_timeout_ms", 1, 3_600_000)
        problems += _out_of_range(self, "fetch_min_bytes", 1, 100_000_000)
        problems += _out_of_range(self, "fetch_max_wait_ms", 0, 300_000)
        problems += _out_of_range(self, "buffer_bytes", 1024, 2_097_151 << 10)
        problems += _out_of_range(self, "metadata_refresh_ms", 10, 3_600_000)
        if self.group_id == "":
            problems.append("group_id is empty; leave it out for a consumer without a group")
        if (
            self.group_protocol is GroupProtocol.CLASSIC
            and self.max_poll_interval_ms < self.session_timeout_ms
        ):
            problems.append("max_poll_interval_ms must not be below session_timeout_ms")
        return problems

    @property
    def is_incremental(self) -> bool:
        """Whether rebalances add and take single partitions, and leave the others alone."""
        if self.group_protocol is GroupProtocol.CONSUMER:
            return True
        return "cooperative-sticky" in self.assignors

    def librdkafka(self) -> dict[str, Any]:
        """The same as librdkafka's properties."""
        assert isinstance(self.auto_offset_reset, OffsetResetPolicy)
        assert isinstance(self.isolation_level, IsolationLevel)
        is_none = self.auto_offset_reset is OffsetResetPolicy.NONE
        properties: dict[str, Any] = {
            "bootstrap.servers": _servers(self.bootstrap_servers),
            "reconnect.backoff.max.ms": _RECONNECT_MAX_MS,
            "client.id": self.client_id,
            "group.id": self.group_id or f"{self.client_id}-without-a-group",
            "auto.offset.reset": "error" if is_none else self.auto_offset_reset.value,
            "enable.auto.commit": self.enable_auto_commit and self.group_id is not None,
            # We store offsets ourselves, when the application comes back for more.
            "enable.auto.offset.store": False,
            "auto.commit.interval.ms": self.auto_commit_interval_ms,
            "max.poll.interval.ms": self.max_poll_interval_ms,
            "isolation.level": self.isolation_level.value,
            "fetch.min.bytes": self.fetch_min_bytes,
            "fetch.wait.max.ms": self.fetch_max_wait_ms,
            "queued.max.messages.kbytes": math.ceil(self.buffer_bytes / 1024),
            "topic.metadata.refresh.interval.ms": self.metadata_refresh_ms,
        }
        if self.group_instance_id is not None:
            properties["group.instance.id"] = self.group_instance_id
        return properties | self._protocol_properties() | dict(self.options)

    def _protocol_properties(self) -> dict[str, Any]:
        if self.group_protocol is GroupProtocol.CONSUMER:
            remote = {"group.remote.assignor": self.remote_assignor} if self.remote_assignor else {}
            return {"group.protocol": "consumer"} | remote
        return {
            "group.protocol": "classic",
            "session.timeout.ms": self.session_timeout_ms,
            # Three heartbeats in a session, as everywhere.
            "heartbeat.interval.ms": max(1, min(3_000, self.session_timeout_ms // 3)),
            "partition.assignment.strategy": ",".join(self.assignors),
        }


C = TypeVar("C", ProducerConfig, ConsumerConfig)


def checked(config: C | None, kind: type[C]) -> C:
    """What a client was given, or the defaults. Raises ConfigError for anything else."""
    if config is None:
        return kind()
    if isinstance(config, kind):
        return config
    name = kind.__name__
    raise ConfigError([f"{config!r} is no {name}; make one of it: {name}(bootstrap_servers=...)"])


def _servers(servers: str | Sequence[str]) -> str:
    return servers if isinstance(servers, str) else ",".join(servers)


def _coerce(
    config: ProducerConfig | ConsumerConfig,
    name: str,
    kind: type[enum.Enum],
    problems: list[str],
    words: Mapping[Any, Any] | None = None,
) -> None:
    """Take "earliest" for OffsetResetPolicy.EARLIEST, and the like."""
    value = getattr(config, name)
    if isinstance(value, kind):
        return
    known = {member.name.lower(): member.value for member in kind} | dict(words or {})
    try:
        plain = value.lower() if isinstance(value, str) else value
        object.__setattr__(config, name, kind(known.get(plain, plain)))
    except (TypeError, ValueError):
        allowed = ", ".join(f"{kind.__name__}.{member.name}" for member in kind)
        problems.append(f"{name} is {value!r}; it is one of {allowed}")


def _common_problems(config: ProducerConfig | ConsumerConfig) -> list[str]:
    problems = _out_of_range(config, "request_timeout_ms", 1, _DAY_MS)
    servers: Any = config.bootstrap_servers
    each = [servers] if isinstance(servers, str) or not isinstance(servers, Sequence) else servers
    if not all(isinstance(server, str) for server in each):
        problems.append(
            f'bootstrap_servers is {servers!r}; it is like "127.0.0.1:9092", or a list of such'
        )
    elif not _servers(servers).strip(", "):
        problems.append('bootstrap_servers is empty; it is like "127.0.0.1:9092"')
    options: Any = config.options
    if not isinstance(options, Mapping):
        problems.append(f'options is {options!r}; it is like {{"security.protocol": "SSL"}}')
    return problems


def _no_bool(config: ProducerConfig | ConsumerConfig, name: str, *others: object) -> list[str]:
    value = getattr(config, name)
    if isinstance(value, bool) or value in others:
        return []
    return [f"{name} is {value!r}; it is True or False"]


def _coerce_serializers(
    config: ProducerConfig | ConsumerConfig, problems: list[str], *names: str
) -> None:
    """Take a plain function for a serializer that goes one way, and None for bytes as they are."""
    for name in names:
        value = getattr(config, name)
        if hasattr(value, "to_bytes" if isinstance(config, ProducerConfig) else "from_bytes"):
            continue
        if value is None:
            object.__setattr__(config, name, BYTES)
        elif callable(value):
            object.__setattr__(config, name, serializer_of(value, value))
        else:
            problems.append(
                f"{name} is {value!r}; it is BYTES, TEXT, JSON, another serializer or a function"
            )


def _out_of_range(
    config: ProducerConfig | ConsumerConfig, name: str, low: float, high: float
) -> list[str]:
    value = getattr(config, name)
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if name == "linger_ms":
        is_number = is_number or isinstance(value, float)
    if is_number and low <= value <= high:
        return []
    return [f"{name} is {value!r}; it is a number from {low:,} to {high:,}"]
