"""Batches that lie inside: garbage behind a correct checksum, and bombs."""

import gzip
import struct
from collections.abc import Callable

import cramjam
import lz4.frame
import pytest
from compat import batches
from compat.matrix import now_ms
from compat.process import BrokerProcess
from compat.requests import fetch, produce
from compat.wire import NONE, Connection

GOOD = batches.build_spread(now_ms(), 0, 2)
BOMB_BYTES = 512 << 20


@pytest.fixture
def validating(broker: BrokerProcess | None, new_topic: Callable[..., str]) -> str:
    """A topic whose batches are opened and looked into; Apache Kafka always does that."""
    if broker is None:
        return new_topic(max_message_bytes=8 << 20)
    return new_topic(max_message_bytes=8 << 20, record_validation="full")


def with_payload(payload: bytes, *, codec: int = 0, count: int = 2) -> bytes:
    """A batch with this instead of its records, and a header and a checksum that are right."""
    batch = GOOD[: batches.HEADER_BYTES] + payload
    batch = batches.changed(batch, batches.LENGTH, len(batch) - 12, is_sealed=False)
    batch = batches.changed(batch, batches.COUNT, count, is_sealed=False)
    batch = batches.changed(batch, batches.LAST_OFFSET_DELTA, count - 1, is_sealed=False)
    return batches.changed(batch, batches.ATTRIBUTES, codec)


RECORDS = GOOD[batches.HEADER_BYTES :]
INSIDE = {
    "no records at all": with_payload(b""),
    "noise": with_payload(bytes(range(256))),
    "a record too few": with_payload(RECORDS[: RECORDS[0] // 2 + 1]),
    "a record too many": with_payload(RECORDS + RECORDS),
    "length of a record negative": with_payload(b"\x01" + RECORDS[1:]),
    "length of a record huge": with_payload(b"\xfe\xff\xff\xff\x0f" + RECORDS[1:]),
    "endless varint": with_payload(b"\xff" * 40),
    "bytes behind the last record": with_payload(RECORDS + b"\0\0\0"),
    "plain called gzip": with_payload(RECORDS, codec=1),
    "plain called snappy": with_payload(RECORDS, codec=2),
    "plain called lz4": with_payload(RECORDS, codec=3),
    "plain called zstd": with_payload(RECORDS, codec=4),
    "half a gzip": with_payload(gzip.compress(RECORDS)[:-12], codec=1),
    "two thousand million records": with_payload(RECORDS, count=(1 << 31) - 1),
}


@pytest.mark.parametrize("what", INSIDE)
def test_garbage_inside_a_batch_is_refused_where_it_is_looked_for(
    what: str, bootstrap: str, validating: str
) -> None:
    with Connection(bootstrap) as connection:
        assert produce(connection, validating, INSIDE[what]).error_code != NONE
        assert produce(connection, validating, GOOD).base_offset == 0


def bomb_value() -> bytes:
    """One record whose value is half a gigabyte of zeros, as the records section of a batch."""
    head = b"\0" + varint(0) + varint(0) + varint(-1) + varint(BOMB_BYTES)
    body_bytes = len(head) + BOMB_BYTES + 1
    return varint(body_bytes) + head


def varint(value: int) -> bytes:
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _snappy(head: bytes) -> bytes:
    """Raw snappy made by hand: one literal, then copies of up to 64 bytes from one byte back."""
    size = len(head) + BOMB_BYTES + 1
    out = bytearray()
    rest = size
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    literal = head + b"\0"
    out += bytes([(len(literal) - 1) << 2]) + literal
    left = size - len(literal)
    # The ratio of snappy is 21 at best, so its bomb is as small as the limit of a batch allows.
    out += (bytes([(63 << 2) | 2]) + struct.pack("<H", 1)) * (left // 64)
    if left % 64:
        out += bytes([((left % 64 - 1) << 2) | 2]) + struct.pack("<H", 1)
    return bytes(out)


def _stream(compressor: object, head: bytes) -> bytes:
    compressor.compress(head)  # type: ignore[attr-defined]
    zeros = bytes(1 << 20)
    for _ in range(BOMB_BYTES >> 20):
        compressor.compress(zeros)  # type: ignore[attr-defined]
    compressor.compress(b"\0")  # type: ignore[attr-defined]
    return bytes(compressor.finish())  # type: ignore[attr-defined]


def _lz4(head: bytes) -> bytes:
    zeros = bytes(1 << 20)
    compressor = lz4.frame.LZ4FrameCompressor(block_linked=False)
    parts = [compressor.begin(), compressor.compress(head)]
    parts += [compressor.compress(zeros) for _ in range(BOMB_BYTES >> 20)]
    return b"".join([*parts, compressor.compress(b"\0"), compressor.flush()])


BOMBS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "gzip": (1, lambda head: _stream(cramjam.gzip.Compressor(6), head)),
    "lz4": (3, _lz4),
    "zstd": (4, lambda head: _stream(cramjam.zstd.Compressor(1), head)),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_does_not_go_off(
    name: str, bootstrap: str, validating: str, broker: BrokerProcess | None
) -> None:
    """Half a gigabyte in a few hundred kilobytes: refused, or never unpacked as a whole.

    Apache Kafka reads it as a stream and takes it, which is as good: the fixture watches memory.
    """
    codec, compress = BOMBS[name]
    batch = with_payload(compress(bomb_value()), codec=codec, count=1)
    assert len(batch) < 8 << 20
    with Connection(bootstrap, timeout_s=60) as connection:
        answer = produce(connection, validating, batch)
        assert broker is None or answer.error_code != NONE


def test_a_bomb_that_is_only_passed_on_is_never_opened(
    bootstrap: str, new_topic: Callable[..., str]
) -> None:
    """By default batches are kept as they came, and a time is looked up without unpacking them."""
    topic = new_topic(max_message_bytes=8 << 20)
    batch = with_payload(BOMBS["zstd"][1](bomb_value()), codec=4, count=1)
    with Connection(bootstrap, timeout_s=60) as connection:
        assert produce(connection, topic, batch).error_code == NONE
        (kept,) = batches.batches_in(fetch(connection, topic, offset=0).records)
    assert kept[16:] == batch[16:]
