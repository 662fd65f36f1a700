"""The bytes that consumers put into the classic protocol: subscriptions and assignments.

To the coordinator they are opaque, with three exceptions: which topics a group reads (for expiry and
OffsetDelete), and the two ways between classic and consumer groups. Bytes that are no subscription
are no error: another kind of client may call itself "consumer".
"""

from collections.abc import Iterable, Mapping
from struct import Struct
from struct import error as StructError  # noqa: N812 (it is a class)
from typing import NamedTuple

PROTOCOL_TYPE = "consumer"
VERSION_MAX = 3

_INT16 = Struct(">h")
_INT32 = Struct(">i")


class Subscription(NamedTuple):
    """What a consumer says when it joins."""

    version: int
    topics: tuple[str, ...]
    user_data: bytes | None
    owned: tuple[tuple[str, tuple[int, ...]], ...] = ()
    generation: int = -1
    rack_id: str | None = None


class _Reader:
    """A place in bytes. Raises ValueError at their end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def _take(self, kind: Struct) -> int:
        try:
            (value,) = kind.unpack_from(self._data, self._at)
        except StructError:
            raise ValueError("the bytes end too early") from None
        self._at += kind.size
        return int(value)

    def int16(self) -> int:
        return self._take(_INT16)

    def int32(self) -> int:
        return self._take(_INT32)

    def bytes_of(self, length: int) -> bytes:
        if length < 0 or self._at + length > len(self._data):
            raise ValueError("a length that can't be")
        found = self._data[self._at : self._at + length]
        self._at += length
        return found

    def string(self) -> str:
        return self.bytes_of(self.int16()).decode()

    def nullable_string(self) -> str | None:
        length = self.int16()
        return None if length < 0 else self.bytes_of(length).decode()

    def nullable_bytes(self) -> bytes | None:
        length = self.int32()
        return None if length < 0 else self.bytes_of(length)

    def count(self) -> int:
        count = self.int32()
        if not 0 <= count <= len(self._data) - self._at:  # Each takes a byte at least.
            raise ValueError("a count that can't be")
        return count

    def partitions(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        return tuple(
            (self.string(), tuple(self.int32() for _ in range(self.count())))
            for _ in range(self.count())
        )


def read_subscription(data: bytes) -> Subscription:
    """A consumer's subscription. Raises ValueError for bytes that are none.

    A version that we don't know is read as the highest that we do: fields are only ever added.
    """
    reader = _Reader(data)
    version = min(reader.int16(), VERSION_MAX)
    if version < 0:
        raise ValueError("a negative version")
    topics = tuple(reader.string() for _ in range(reader.count()))
    subscription = Subscription(version, topics, reader.nullable_bytes())
    if version >= 1:
        subscription = subscription._replace(owned=reader.partitions())
    if version >= 2:
        subscription = subscription._replace(generation=reader.int32())
    if version >= 3:
        subscription = subscription._replace(rack_id=reader.nullable_string())
    return subscription


def read_topics(data: bytes) -> tuple[str, ...]:
    """The topics of a subscription: what all versions have in common. Raises ValueError."""
    reader = _Reader(data)
    reader.int16()
    return tuple(reader.string() for _ in range(reader.count()))


def write_assignment(version: int, partitions: Mapping[str, Iterable[int]]) -> bytes:
    """An assignment as classic consumers read it; versions 0 to 3 look the same."""
    parts = [_INT16.pack(min(version, VERSION_MAX)), _INT32.pack(len(partitions))]
    for topic, indexes in partitions.items():
        name, found = topic.encode(), list(indexes)
        parts += [_INT16.pack(len(name)), name, _INT32.pack(len(found))]
        parts += [_INT32.pack(index) for index in found]
    parts.append(_INT32.pack(-1))  # No user data.
    return b"".join(parts)


def read_assignment(data: bytes) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """The partitions of an assignment, by topic. Raises ValueError for bytes that are none."""
    reader = _Reader(data)
    reader.int16()
    return reader.partitions()
