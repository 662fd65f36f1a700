"""The small change of the wire: varints, uuids, runs of numbers, tagged fields.

Called by the functions that `decoder` and `encoder` compile, never by others. Readers take the
buffer and a position and trust neither: a read past the end raises `IndexError` or `struct.error`,
which the compiled function turns into `ProtocolError`.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from struct import Struct
from typing import Any
from uuid import UUID

from dmq.errors import ProtocolError

Buffer = bytes | bytearray | memoryview

FIXED: dict[str, tuple[str, int]] = {
    "bool": ("?", 1),
    "int8": ("b", 1),
    "int16": ("h", 2),
    "uint16": ("H", 2),
    "int32": ("i", 4),
    "int64": ("q", 8),
    "float64": ("d", 8),
}
"""Kinds of fixed width: their struct code and size. A uuid is fixed too, but needs a conversion."""

VECTOR_CACHE_MAX = 128
"""Struct formats are kept for number arrays up to this length; longer ones are rare."""

TagReader = Callable[[Buffer, int, int, int, Any], tuple[int, int]]
"""(buffer, position, end, room, message) -> (position, room): reads one known tagged field."""


def read_uvarint(buf: Buffer, pos: int, first: int) -> tuple[int, int]:
    """Finish an unsigned varint whose first byte (already read) has its high bit set."""
    # Two and three bytes cover strings and most batches: no loop for them. Each byte but the
    # last has its high bit set, which is taken off at the end, all at once.
    second = buf[pos]
    if second < 0x80:
        return first + (second << 7) - 0x80, pos + 1
    third = buf[pos + 1]
    if third < 0x80:
        return first + (second << 7) + (third << 14) - 0x4080, pos + 2
    value = first + (second << 7) + (third << 14) - 0x204080
    fourth = buf[pos + 2]
    if fourth < 0x80:
        return value + (fourth << 21), pos + 3
    fifth = buf[pos + 3]
    if fifth > 0x0F:
        raise ProtocolError("a varint is longer than 32 bits")
    return value + ((fourth & 0x7F) << 21) + (fifth << 28), pos + 4


def encode_uvarint(value: int) -> bytes:
    """An unsigned varint in its shortest form."""
    assert value >= 0, value
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class _Uvarints(dict[int, bytes]):
    """Encoded varints by value: small ones from the table, others made on demand and not kept."""

    def __missing__(self, value: int) -> bytes:
        return encode_uvarint(value)


UVARINTS = _Uvarints({value: encode_uvarint(value) for value in range(1024)})


@lru_cache(maxsize=8192)
def uuid_of(raw: bytes) -> UUID:
    """The uuid of 16 bytes. Topic ids repeat in every request, and making a UUID is slow."""
    return UUID(bytes=raw)


class VectorReaders(dict[int, Callable[[Buffer, int], tuple[Any, ...]]]):
    """Count -> a function that unpacks so many numbers of one kind."""

    def __init__(self, code: str) -> None:
        super().__init__()
        self._code = code

    def __missing__(self, count: int) -> Callable[[Buffer, int], tuple[Any, ...]]:
        unpack = Struct(f">{count}{self._code}").unpack_from
        if count < VECTOR_CACHE_MAX:
            self[count] = unpack
        return unpack


class VectorWriters(dict[int, Callable[..., bytes]]):
    """Count -> a function of (length prefix, *numbers) that packs both.

    The prefix of the compact form is a varint of count + 1: one byte for all lengths in the cache.
    """

    def __init__(self, code: str, *, compact: bool) -> None:
        super().__init__()
        self._code = code
        self._compact = compact

    def __missing__(self, count: int) -> Callable[..., bytes]:
        if self._compact and count + 1 > 0x7F:
            body = Struct(f">{count}{self._code}").pack
            return lambda prefix, *values: UVARINTS[prefix] + body(*values)
        pack = Struct(f">{'B' if self._compact else 'i'}{count}{self._code}").pack
        if count < VECTOR_CACHE_MAX:
            self[count] = pack
        return pack


def skip_tags(buf: Buffer, pos: int, end: int, count: int) -> int:
    """Step over a section of tagged fields that the reader knows none of."""
    return read_tags(buf, pos, end, count, 0, None, {})[0]


def read_tags(
    buf: Buffer,
    pos: int,
    end: int,
    count: int,
    room: int,
    message: object,
    readers: Mapping[int, TagReader],
) -> tuple[int, int]:
    """Read a section of tagged fields: known ones into the message, others are stepped over.

    `count` is the section's first byte, already read. Tags must ascend, as the protocol has it, so
    that a message has one meaning; each field must fill its announced size.
    """
    if count > 0x7F:
        count, pos = read_uvarint(buf, pos, count)
    last = -1
    for _ in range(count):
        tag, pos = _uvarint(buf, pos)
        size, pos = _uvarint(buf, pos)
        if tag <= last:
            raise ProtocolError(f"tag {tag} follows tag {last}")
        last = tag
        stop = pos + size
        if stop > end:
            raise ProtocolError(f"tagged field {tag} ends {stop - end} bytes past the message")
        reader = readers.get(tag)
        if reader is not None:
            read, room = reader(buf, pos, end, room, message)
            if read != stop:
                raise ProtocolError(f"tagged field {tag} says {size} bytes, has {read - pos}")
        pos = stop
    return pos, room


def _uvarint(buf: Buffer, pos: int) -> tuple[int, int]:
    first = buf[pos]
    if first < 0x80:
        return first, pos + 1
    return read_uvarint(buf, pos + 1, first)


def join_tags(fields: list[tuple[int, bytes]]) -> bytes:
    """A section of tagged fields, given in ascending order of tag."""
    pieces = [UVARINTS[len(fields)]]
    for tag, body in fields:
        pieces += (UVARINTS[tag], UVARINTS[len(body)], body)
    return b"".join(pieces)


def bad_count(name: str, count: int, left: int) -> ProtocolError:
    """An array that announces more than the message can hold, or less than nothing."""
    return ProtocolError(f"{name}: {count} elements announced, {left} bytes left")


def null_found(name: str) -> ProtocolError:
    """A null, or a negative length, where the version knows none."""
    return ProtocolError(f"{name}: null or negative length where none may be")


def malformed(name: str, cause: Exception | None = None) -> ProtocolError:
    """Bytes that end too early, or are no text where text must be."""
    return ProtocolError(f"{name}: {cause or 'ends too early'}")
