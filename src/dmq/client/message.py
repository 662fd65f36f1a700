"""What goes out and what comes in: RecordMetadata, Message and headers.

A message's key and value are decoded when they are first read, so that bytes which are no such
value hurt who reads them, and lose nothing of the poll that brought them. Values only; no calls to
a broker.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, TIMESTAMP_NOT_AVAILABLE
from confluent_kafka import Message as RawMessage

from dmq.client.errors import SerializationError
from dmq.client.serializers import Serializer
from dmq.types import TopicPartition

Headers = Mapping[str, str | bytes | None] | Sequence[tuple[str, str | bytes | None]]
"""Header names may come more than once: then as pairs."""

NO_OFFSET = -1
"""The offset of a record that nobody acknowledged (AckMode.NONE), as Kafka's clients say it."""


class RecordMetadata(NamedTuple):
    """Where a record was written."""

    topic: str
    partition: int
    offset: int
    """-1 with AckMode.NONE: the broker does not say."""
    timestamp: int
    """Milliseconds since 1970: the record's own, or the broker's where the topic says so; -1: none."""


class Decoders(NamedTuple):
    """How a consumer reads keys and values."""

    key: Serializer
    value: Serializer


_UNREAD: Any = object()
_FIELDS = (
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestamp_type",
    "key",
    "value",
    "headers",
    "leader_epoch",
)


class Message(Mapping[str, Any]):
    """A record that was read. `message.topic` and `message["topic"]` are the same; so for all fields.

    key, value        decoded; None for null. Raise SerializationError for bytes that can't be.
    raw_key, raw_value  the bytes themselves (not part of the mapping)
    headers           pairs of name and bytes, in their order
    timestamp         milliseconds since 1970, or -1; `timestamp_type` is "create", "append" or "none"
    """

    __slots__ = ("_decoders", "_key", "_raw", "_value", "offset", "partition", "topic")

    topic: str
    partition: int
    offset: int

    def __init__(self, raw: "RawMessage[Any, Any]", decoders: Decoders) -> None:
        self._raw = raw
        self._decoders = decoders
        self._key = self._value = _UNREAD
        topic, partition, offset = raw.topic(), raw.partition(), raw.offset()
        assert topic is not None
        assert partition is not None
        assert offset is not None, "only records have offsets, and only records become messages"
        self.topic = topic
        self.partition = partition
        self.offset = offset

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def raw_key(self) -> bytes | None:
        return self._raw.key()

    @property
    def raw_value(self) -> bytes | None:
        return self._raw.value()

    @property
    def key(self) -> Any:
        if self._key is _UNREAD:
            self._key = self._decode(self._raw.key(), self._decoders.key, "key")
        return self._key

    @property
    def value(self) -> Any:
        if self._value is _UNREAD:
            self._value = self._decode(self._raw.value(), self._decoders.value, "value")
        return self._value

    def _decode(self, data: bytes | None, serializer: Serializer, what: str) -> Any:
        if data is None:
            return None
        try:
            return serializer.from_bytes(data, self.topic)
        except Exception as error:
            raise SerializationError(
                f"the {what} at {self.topic_partition} offset {self.offset} is not what the "
                f"deserializer reads: {error}. `raw_{what}` has its bytes; skip the message or fix the "
                "deserializer."
            ) from error

    @property
    def headers(self) -> list[tuple[str, bytes | None]]:
        return list(self._raw.headers() or ())  # type: ignore[arg-type]

    def header(self, name: str) -> bytes | None:
        """The last value of that name, which is the one that counts in Kafka; None without."""
        return next((value for key, value in reversed(self.headers) if key == name), None)

    @property
    def timestamp(self) -> int:
        kind, moment_ms = self._raw.timestamp()
        return -1 if kind == TIMESTAMP_NOT_AVAILABLE else moment_ms

    @property
    def timestamp_type(self) -> str:
        kind, _ = self._raw.timestamp()
        if kind == TIMESTAMP_NOT_AVAILABLE:
            return "none"
        return "append" if kind == TIMESTAMP_LOG_APPEND_TIME else "create"

    @property
    def leader_epoch(self) -> int:
        """The epoch of the leader that wrote it; -1 where the broker does not say."""
        epoch = self._raw.leader_epoch()
        return -1 if epoch is None else epoch

    # --- as a mapping

    def __getitem__(self, name: str) -> Any:
        if name not in _FIELDS:
            raise KeyError(name)
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        return iter(_FIELDS)

    def __len__(self) -> int:
        return len(_FIELDS)

    def __hash__(self) -> int:
        return hash((self.topic, self.partition, self.offset))

    def __repr__(self) -> str:
        return (
            f"Message({self.topic_partition} offset {self.offset}, key={self.raw_key!r}, "
            f"value={self.raw_value!r})"
        )


def wire_headers(headers: Headers | None) -> list[tuple[str, str | bytes | None]] | None:
    """Headers as librdkafka takes them. Raises SerializationError."""
    if not headers:
        return None
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return [(name, _header_value(name, value)) for name, value in pairs]


def _header_value(name: str, value: object) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    raise SerializationError(
        f"header {name!r} is {type(value).__name__}; headers are text, bytes or None"
    )
