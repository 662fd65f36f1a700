"""Values to bytes and back: as they are, text, JSON, or the application's own.

A `Serializer` goes both ways, so that a producer and a consumer of one topic can share one object.
None is never given to it: a key or value of None is a null on the wire (as a value, a tombstone).
"""

import json
from collections.abc import Callable
from typing import Any, Protocol


class Serializer(Protocol):
    """The hook for formats of one's own, e.g. Avro or Protobuf. May raise anything: a client tells it
    as a SerializationError that names topic, partition and offset."""

    def to_bytes(self, value: Any, topic: str) -> bytes: ...

    def from_bytes(self, data: bytes, topic: str) -> Any: ...


class _Bytes:
    """Bytes as they are. Text is taken too, and written as UTF-8."""

    def to_bytes(self, value: Any, topic: str) -> bytes:
        if type(value) is bytes:
            return value
        if isinstance(value, str):
            return value.encode()
        if isinstance(value, bytes | bytearray | memoryview):
            return bytes(value)
        raise TypeError(
            f"bytes or text is wanted, not {type(value).__name__}; "
            "set a serializer, e.g. value_serializer=JSON"
        )

    def from_bytes(self, data: bytes, topic: str) -> bytes:
        return data


class _Text:
    """Text as UTF-8."""

    def to_bytes(self, value: Any, topic: str) -> bytes:
        if not isinstance(value, str):
            raise TypeError(f"text is wanted, not {type(value).__name__}")
        return value.encode()

    def from_bytes(self, data: bytes, topic: str) -> str:
        return data.decode()


class _Json:
    """JSON without spaces, as UTF-8. NaN and infinities are no JSON and are refused."""

    def to_bytes(self, value: Any, topic: str) -> bytes:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return text.encode()

    def from_bytes(self, data: bytes, topic: str) -> Any:
        return json.loads(data)


class _Functions:
    """Two functions of the value alone."""

    def __init__(
        self, to_bytes: Callable[[Any], bytes], from_bytes: Callable[[bytes], Any]
    ) -> None:
        self._to_bytes = to_bytes
        self._from_bytes = from_bytes

    def to_bytes(self, value: Any, topic: str) -> bytes:
        return self._to_bytes(value)

    def from_bytes(self, data: bytes, topic: str) -> Any:
        return self._from_bytes(data)


BYTES: Serializer = _Bytes()
TEXT: Serializer = _Text()
JSON: Serializer = _Json()


def serializer_of(
    to_bytes: Callable[[Any], bytes], from_bytes: Callable[[bytes], Any]
) -> Serializer:
    """A serializer of two plain functions, e.g. of `Order.SerializeToString` and `Order.FromString`."""
    return _Functions(to_bytes, from_bytes)
