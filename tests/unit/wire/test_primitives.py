"""Varints and number arrays, at the edges of their forms."""

import pytest

from dmq.errors import ProtocolError
from dmq.wire.primitives import (
    UVARINTS,
    VECTOR_CACHE_MAX,
    VectorReaders,
    VectorWriters,
    encode_uvarint,
    read_uvarint,
)

EDGES = [edge + step for bits in (7, 14, 21, 28) for edge in [1 << bits] for step in (-1, 0, 1)]


@pytest.mark.parametrize("value", [*EDGES, 300, 1 << 31, (1 << 32) - 1])
def test_varint_round_trip(value: int) -> None:
    raw = b"." + encode_uvarint(value) + b"."
    assert len(raw) - 2 == max(1, -(-value.bit_length() // 7))
    assert UVARINTS[value] == raw[1:-1]
    if raw[1] > 127:
        assert read_uvarint(raw, 2, raw[1]) == (value, len(raw) - 1)


def test_a_varint_longer_than_it_must_be_is_one() -> None:
    assert read_uvarint(b"\x80\x80\x80\x80\x00", 1, 0x80) == (0, 5)


@pytest.mark.parametrize("raw", ["ffffffff10", "ffffffffff00", "808080808000"])
def test_a_varint_past_32_bits_is_refused(raw: str) -> None:
    with pytest.raises(ProtocolError):
        read_uvarint(bytes.fromhex(raw), 1, bytes.fromhex(raw)[0])


@pytest.mark.parametrize("size", range(1, 5))
def test_a_varint_that_ends_too_early(size: int) -> None:
    with pytest.raises(IndexError):
        read_uvarint(b"\xff" * size, 1, 0xFF)


@pytest.mark.parametrize("count", [0, 1, 125, 126, 127, 128, 20_000])
@pytest.mark.parametrize("compact", [False, True])
def test_number_arrays(count: int, compact: bool) -> None:
    numbers = list(range(-5, count - 5))
    prefix = count + 1 if compact else count
    writers, readers = VectorWriters("i", compact=compact), VectorReaders("i")
    raw = writers[count](prefix, *numbers)
    head = encode_uvarint(prefix) if compact else prefix.to_bytes(4)
    assert raw[: len(head)] == head
    assert list(readers[count](raw, len(head))) == numbers
    assert all(kept < VECTOR_CACHE_MAX for kept in [*writers, *readers])
