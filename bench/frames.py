"""Kafka frames built by hand: the few requests that the bare loop and the raw clients speak.

Owns the bytes of Produce v7, Fetch v4, Metadata v4, ApiVersions v0 and of record batches v2.
Never used to judge correctness: it is a load generator's idea of the protocol, written apart from
the product's own codec so that a benchmark does not share its bugs. Called by the raw loads, by
`bench.bare` and by the readiness probe.
"""

import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from crc32c import crc32c

PRODUCE, FETCH, METADATA, API_VERSIONS = 0, 1, 3, 18
PRODUCE_VERSION, FETCH_VERSION, METADATA_VERSION = 7, 4, 4
CLIENT_ID = b"bench"

_HEADER = struct.Struct(">ihhih")  # size, api key, version, correlation id, client id length
_BATCH_CRC_PART = struct.Struct(">hiqqqhii")
_BATCH_HEAD = struct.Struct(">qiibI")
BATCH_HEADER_BYTES = 61


def varint(value: int) -> bytes:
    """A zigzag varint, as in record fields."""
    zigzag = (value << 1) ^ (value >> 63)
    out = bytearray()
    while zigzag > 0x7F:
        out.append((zigzag & 0x7F) | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def record_batch(values: Sequence[bytes], base_offset: int = 0, timestamp_ms: int = 0) -> bytes:
    """An uncompressed batch v2 of records without key or headers."""
    records = bytearray()
    for delta, value in enumerate(values):
        body = b"\0\0" + varint(delta) + b"\x01" + varint(len(value)) + value + b"\0"
        records += varint(len(body)) + body
    last = len(values) - 1
    crc_part = _BATCH_CRC_PART.pack(
        0, last, timestamp_ms, timestamp_ms, -1, -1, -1, len(values)
    ) + bytes(records)
    length = BATCH_HEADER_BYTES - 12 + len(records)
    return _BATCH_HEAD.pack(base_offset, length, -1, 2, crc32c(crc_part)) + crc_part


def at_offset(batch: bytes, base_offset: int) -> bytes:
    """The same batch at another base offset (which the CRC does not cover)."""
    return struct.pack(">q", base_offset) + batch[8:]


def request(api_key: int, version: int, correlation_id: int, body: bytes) -> bytes:
    """A whole frame with a request header v1."""
    size = _HEADER.size - 4 + len(CLIENT_ID) + len(body)
    head = _HEADER.pack(size, api_key, version, correlation_id, len(CLIENT_ID))
    return head + CLIENT_ID + body


def string(text: str) -> bytes:
    """A classic string: 16-bit length and UTF-8."""
    raw = text.encode()
    return struct.pack(">h", len(raw)) + raw


def produce_request(
    topic: str, batches: Sequence[tuple[int, bytes]], correlation_id: int, acks: int = -1
) -> bytes:
    """One Produce request with one batch for each (partition, batch)."""
    parts = [struct.pack(">hhi", -1, acks, 30_000), struct.pack(">i", 1), string(topic)]
    parts.append(struct.pack(">i", len(batches)))
    for partition, batch in batches:
        parts += [struct.pack(">ii", partition, len(batch)), batch]
    return request(PRODUCE, PRODUCE_VERSION, correlation_id, b"".join(parts))


def fetch_request(
    topic: str,
    positions: Sequence[tuple[int, int]],
    correlation_id: int,
    max_bytes: int,
    partition_max_bytes: int,
) -> bytes:
    """One sessionless Fetch request for each (partition, offset)."""
    head = struct.pack(">iiiib", -1, 500, 1, max_bytes, 0)
    parts = [head, struct.pack(">i", 1), string(topic), struct.pack(">i", len(positions))]
    parts += [
        struct.pack(">iqi", index, offset, partition_max_bytes) for index, offset in positions
    ]
    return request(FETCH, FETCH_VERSION, correlation_id, b"".join(parts))


def receive_exactly(sock: socket.socket, target: memoryview) -> None:
    """Fill `target` from the socket. Raises ConnectionError when the peer closes."""
    at = 0
    while at < len(target):
        got = sock.recv_into(target[at:])
        if got == 0:
            raise ConnectionError("closed by the peer")
        at += got


def receive_frame(sock: socket.socket) -> bytes:
    """One response frame without its size."""
    head = bytearray(4)
    receive_exactly(sock, memoryview(head))
    body = bytearray(int.from_bytes(head, "big"))
    receive_exactly(sock, memoryview(body))
    return bytes(body)


@dataclass(slots=True)
class FetchedPartition:
    """Where one partition's records lie in a Fetch v4 response."""

    index: int
    error: int
    start: int
    end: int


def fetched_partitions(frame: memoryview) -> list[FetchedPartition]:
    """The partitions of a Fetch v4 response for one topic (frame without its size)."""
    at = 8  # correlation id, throttle time
    (topics,) = struct.unpack_from(">i", frame, at)
    at += 4
    found: list[FetchedPartition] = []
    for _ in range(topics):
        (name_bytes,) = struct.unpack_from(">h", frame, at)
        at += 2 + name_bytes
        (count,) = struct.unpack_from(">i", frame, at)
        at += 4
        for _ in range(count):
            index, error, _, _, aborted = struct.unpack_from(">ihqqi", frame, at)
            at += 26 + max(aborted, 0) * 16
            (size,) = struct.unpack_from(">i", frame, at)
            at += 4
            found.append(FetchedPartition(index, error, at, at + max(size, 0)))
            at += max(size, 0)
    return found


def walk_batches(frame: memoryview, start: int, end: int) -> tuple[int, int, int]:
    """(records, bytes, next offset) of the whole batches between start and end; -1: none."""
    records = 0
    next_offset = -1
    at = start
    while at + BATCH_HEADER_BYTES <= end:
        base, length = struct.unpack_from(">qi", frame, at)
        if at + 12 + length > end:
            break
        (last_delta,) = struct.unpack_from(">i", frame, at + 23)
        records += last_delta + 1
        next_offset = base + last_delta + 1
        at += 12 + length
    return records, at - start, next_offset


def connect(address: str, timeout_s: float = 30.0) -> socket.socket:
    """A blocking TCP connection to host:port without Nagle's delay."""
    host, _, port = address.rpartition(":")
    sock = socket.create_connection((host, int(port)), timeout=timeout_s)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def answers_metadata(address: str, timeout_s: float = 1.0) -> bool:
    """Whether the broker answers a Metadata request with at least one broker."""
    try:
        with connect(address, timeout_s) as sock:
            body = struct.pack(">ib", 0, 0)
            sock.sendall(request(METADATA, METADATA_VERSION, 1, body))
            frame = receive_frame(sock)
    except OSError:
        return False
    return int(struct.unpack_from(">i", frame, 8)[0]) > 0
