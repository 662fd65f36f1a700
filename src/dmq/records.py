"""The record batch (format v2), the noun of the house: read, checked, stamped, built, iterated.

A batch is 61 bytes of header and then records. Offset and leader epoch lie outside the CRC, so a
broker stamps both in place. Nothing on the produce and fetch path looks behind the header.

    0  base offset      8      21 attributes        2      43 producer id       8
    8  length           4      23 last offset delta 4      51 producer epoch    2
    12 leader epoch     4      27 base timestamp    8      53 base sequence     4
    16 magic            1      35 max timestamp     8      57 record count      4
    17 crc-32c          4      (crc covers 21 …)           61 records

Never does input or output. Raises `BatchError` with the code that a client is to be told.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from crc32c import crc32c

from dmq.codecs import Codec, CodecError, compress, decompress
from dmq.errors import DmqError, ErrorCode

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE = HEADER.size
LENGTH_OVERHEAD = 12
"""Base offset and length field are not counted by the length field."""
CRC_START = 21
MAGIC = 2

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_SEQUENCE = -1

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40
"""Compaction's mark: the base timestamp is the time from which tombstones may go (KIP-534)."""
PRODUCER_ATTRIBUTES = CODEC_MASK | LOG_APPEND_TIME | TRANSACTIONAL | CONTROL
"""Words that a producer's batch may use; that of control batches is refused by its own name."""
KNOWN_ATTRIBUTES = PRODUCER_ATTRIBUTES | DELETE_HORIZON

DECOMPRESSED_BYTES_MAX = 128 * 1024 * 1024
"""A batch that opens to more is refused: clients' largest batch is far below it."""

_STAMP_OFFSET = struct.Struct(">q")
_STAMP_EPOCH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_TIMES = struct.Struct(">hiqq")

Bytes = bytes | bytearray | memoryview


class BatchError(DmqError):
    """A batch that must not enter the log; `code` says why."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class BatchHeader(NamedTuple):
    """The 61 bytes, named; `length` is the field as on the wire (see `size`)."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.length + LENGTH_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def has_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)


class Record(NamedTuple):
    """One record as a reader sees it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def read_header(buf: Bytes, pos: int = 0) -> BatchHeader:
    """The header at `pos`, unchecked; the caller knows that 61 bytes are there."""
    return BatchHeader._make(HEADER.unpack_from(buf, pos))


def check_crc(buf: Bytes, pos: int, header: BatchHeader) -> bool:
    """Whether the bytes of the batch at `pos` are those that its producer sent."""
    return bool(
        crc32c(memoryview(buf)[pos + CRC_START : pos + header.length + LENGTH_OVERHEAD])
        == header.crc
    )


def stamp(buf: bytearray | memoryview, pos: int, base_offset: int, epoch: int) -> None:
    """Give the batch its place in the log; both fields are outside the CRC."""
    _STAMP_OFFSET.pack_into(buf, pos, base_offset)
    _STAMP_EPOCH.pack_into(buf, pos + 12, epoch)


def stamp_append_time(buf: bytearray | memoryview, pos: int, now_ms: int) -> None:
    """Set the broker's time on a whole batch; times are under the CRC, so it is made anew."""
    header = read_header(buf, pos)
    _TIMES.pack_into(
        buf,
        pos + CRC_START,
        header.attributes | LOG_APPEND_TIME,
        header.last_offset_delta,
        header.base_timestamp,
        now_ms,
    )
    _CRC.pack_into(buf, pos + 17, crc32c(memoryview(buf)[pos + CRC_START : pos + header.size]))


def scan(buf: Bytes, pos: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
    """Whole batches from `pos`: (position, header) each. Stops at the first that is cut short.

    For bytes out of our own files; a length that makes no sense ends the scan too.
    """
    end = len(buf) if end is None else end
    while pos + HEADER_SIZE <= end:
        header = read_header(buf, pos)
        if header.length < HEADER_SIZE - LENGTH_OVERHEAD or pos + header.size > end:
            return
        yield pos, header
        pos += header.size


def split_batches(data: memoryview) -> list[BatchHeader]:
    """The headers of a producer's batches, each checked by its header and CRC.

    Raises BatchError: the whole partition's data is refused then, as Kafka does.
    """
    headers: list[BatchHeader] = []
    pos, end = 0, len(data)
    while pos < end:
        if pos + HEADER_SIZE > end:
            _check_magic(data, pos, end)
            raise BatchError(ErrorCode.INVALID_RECORD, "record batch is cut short")
        header = BatchHeader._make(HEADER.unpack_from(data, pos))
        size = header[1] + LENGTH_OVERHEAD
        if header[3] != MAGIC:
            _check_magic(data, pos, end)
        if size < HEADER_SIZE:
            raise BatchError(ErrorCode.CORRUPT_MESSAGE, f"record batch of {size} bytes")
        if pos + size > end:
            raise BatchError(ErrorCode.INVALID_RECORD, "record batch is cut short")
        if crc32c(data[pos + CRC_START : pos + size]) != header[4]:
            raise BatchError(ErrorCode.CORRUPT_MESSAGE, "record batch fails its CRC")
        _check_header(header)
        headers.append(header)
        pos += size
    if not headers:
        raise BatchError(ErrorCode.INVALID_RECORD, "no record batch for the partition")
    return headers


def _check_magic(data: memoryview, pos: int, end: int) -> None:
    """Formats 0 and 1 have their magic at the same place; they left Kafka with 4.0 (KIP-724)."""
    if pos + 17 > end:
        raise BatchError(ErrorCode.INVALID_RECORD, "record batch is cut short")
    magic = data[pos + 16]
    if magic in (0, 1):
        raise BatchError(
            ErrorCode.INVALID_RECORD,
            f"message format {magic} is not accepted; send format 2 (Kafka 0.11 and later)",
        )
    if magic != MAGIC:
        raise BatchError(ErrorCode.CORRUPT_MESSAGE, f"unknown record batch format {magic}")


def _check_header(header: BatchHeader) -> None:
    count, delta, attributes = header.record_count, header.last_offset_delta, header.attributes
    if header.base_offset != 0:
        raise BatchError(
            ErrorCode.INVALID_RECORD, f"a producer's batch begins at 0, not at {header.base_offset}"
        )
    if count < 1 or delta != count - 1:
        raise BatchError(
            ErrorCode.INVALID_RECORD,
            f"record count {count} does not fit last offset delta {delta}",
        )
    if attributes & ~PRODUCER_ATTRIBUTES or attributes & CODEC_MASK > Codec.ZSTD:
        raise BatchError(ErrorCode.INVALID_RECORD, f"unknown batch attributes {attributes:#x}")
    if attributes & CONTROL:
        raise BatchError(ErrorCode.INVALID_RECORD, "clients may not write control batches")
    if header.base_timestamp < NO_TIMESTAMP or header.max_timestamp < NO_TIMESTAMP:
        raise BatchError(ErrorCode.INVALID_TIMESTAMP, "negative record timestamps")


# --- records inside a batch ---------------------------------------------------------------------


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int | None = None,
    leader_epoch: int = -1,
    codec: int = Codec.NONE,
    attributes: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    last_offset: int | None = None,
    level: int | None = None,
) -> bytearray:
    """A batch of these records, in offset order (gaps are allowed, as compaction leaves them)."""
    base = records[0].offset if base_offset is None else base_offset
    base_timestamp = records[0].timestamp
    body = bytearray()
    for record in records:
        _write_record(body, record, record.offset - base, record.timestamp - base_timestamp)
    packed = compress(codec, bytes(body), level)
    batch = bytearray(HEADER_SIZE + len(packed))
    batch[HEADER_SIZE:] = packed
    HEADER.pack_into(
        batch,
        0,
        base,
        len(batch) - LENGTH_OVERHEAD,
        leader_epoch,
        MAGIC,
        0,
        attributes | codec,
        (records[-1].offset if last_offset is None else last_offset) - base,
        base_timestamp,
        max(record.timestamp for record in records),
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    _CRC.pack_into(batch, 17, crc32c(memoryview(batch)[CRC_START:]))
    return batch


def filler(start: int, stop: int, epoch: int) -> bytes:
    """A batch without records in the place of those that compaction took away, or that are lost."""
    batch = bytearray(HEADER_SIZE)
    length, delta = HEADER_SIZE - LENGTH_OVERHEAD, stop - start - 1
    times = (NO_TIMESTAMP, NO_TIMESTAMP)
    HEADER.pack_into(
        batch, 0, start, length, epoch, MAGIC, 0, 0, delta, *times, -1, -1, NO_SEQUENCE, 0
    )
    crc = crc32c(memoryview(batch)[CRC_START:])
    HEADER.pack_into(
        batch, 0, start, length, epoch, MAGIC, crc, 0, delta, *times, -1, -1, NO_SEQUENCE, 0
    )
    return bytes(batch)


def _write_varint(out: bytearray, value: int) -> None:
    zigzag = (value << 1) ^ (value >> 63)
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)


def _write_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out.append(1)  # zigzag of -1
    else:
        _write_varint(out, len(value))
        out += value


def _write_record(out: bytearray, record: Record, offset_delta: int, time_delta: int) -> None:
    body = bytearray(1)  # record attributes: unused
    _write_varint(body, time_delta)
    _write_varint(body, offset_delta)
    _write_bytes(body, record.key)
    _write_bytes(body, record.value)
    _write_varint(body, len(record.headers))
    for name, value in record.headers:
        _write_bytes(body, name.encode())
        _write_bytes(body, value)
    _write_varint(out, len(body))
    out += body


def open_batch(
    buf: Bytes, pos: int, header: BatchHeader, bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> bytes | memoryview:
    """The records' bytes, decompressed. Raises BatchError."""
    data = memoryview(buf)[pos + HEADER_SIZE : pos + header.size]
    try:
        return decompress(header.codec, data, bytes_max)
    except CodecError as error:
        raise BatchError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error


def iterate(
    buf: Bytes,
    pos: int = 0,
    header: BatchHeader | None = None,
    bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> Iterator[Record]:
    """The records of the batch at `pos`. Raises BatchError on bytes that are no records."""
    header = read_header(buf, pos) if header is None else header
    yield from iterate_opened(bytes(open_batch(buf, pos, header, bytes_max)), header)


def iterate_opened(data: bytes, header: BatchHeader) -> Iterator[Record]:
    """The records in a batch's opened bytes. Raises BatchError on bytes that are no records."""
    at = 0
    try:
        for _ in range(header.record_count):
            record, at = _read_record(data, at, header)
            yield record
    except (IndexError, UnicodeDecodeError) as error:
        raise BatchError(ErrorCode.INVALID_RECORD, f"bad record: {error}") from error
    if at != len(data):
        raise BatchError(ErrorCode.INVALID_RECORD, "bytes left behind the last record")


class Glance(NamedTuple):
    """What one can see of a record without taking it out."""

    offset_delta: int
    time_delta: int
    has_key: bool


def glance(data: bytes, count: int) -> Iterator[Glance]:
    """Over `count` records in opened bytes, several times as quick as `iterate`. Raises BatchError."""
    at, end_of_all = 0, len(data)
    try:
        for _ in range(count):
            size, at = _read_varint(data, at)
            end = at + size
            if size < 0 or end > end_of_all:
                raise IndexError("record runs beyond the batch")
            time_delta, at = _read_varint(data, at + 1)
            offset_delta, at = _read_varint(data, at)
            yield Glance(offset_delta, time_delta, not data[at] & 1)  # Odd: a length below 0.
            at = end
    except IndexError as error:
        raise BatchError(ErrorCode.INVALID_RECORD, f"bad record: {error}") from error
    if at != end_of_all:
        raise BatchError(ErrorCode.INVALID_RECORD, "bytes left behind the last record")


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    at += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at
    result, shift = byte & 0x7F, 7
    while True:
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (result >> 1) ^ -(result & 1), at
        shift += 7
        if shift > 63:
            raise IndexError("varint is too long")


def _read_bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = _read_varint(data, at)
    if size < 0:
        return None, at
    if at + size > len(data):
        raise IndexError("field runs beyond the batch")
    return data[at : at + size], at + size


def _read_record(data: bytes, at: int, header: BatchHeader) -> tuple[Record, int]:
    size, at = _read_varint(data, at)
    end = at + size
    if size < 0 or end > len(data):
        raise IndexError("record runs beyond the batch")
    time_delta, at = _read_varint(data, at + 1)
    offset_delta, at = _read_varint(data, at)
    key, at = _read_bytes(data, at)
    value, at = _read_bytes(data, at)
    count, at = _read_varint(data, at)
    headers: tuple[tuple[str, bytes | None], ...] = ()
    if count:
        headers, at = _read_headers(data, at, count)
    if at != end:
        raise IndexError("record length is wrong")
    if header.attributes & LOG_APPEND_TIME:
        timestamp = header.max_timestamp
    else:
        timestamp = header.base_timestamp + time_delta
    return Record(header.base_offset + offset_delta, timestamp, key, value, headers), at


def _read_headers(
    data: bytes, at: int, count: int
) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    if count < 0 or count > len(data) - at:
        raise IndexError("impossible header count")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, at = _read_bytes(data, at)
        if name is None:
            raise IndexError("header without a name")
        value, at = _read_bytes(data, at)
        headers.append((name.decode(), value))
    return tuple(headers), at


def validate_records(data: bytes, header: BatchHeader) -> None:
    """`record.validation=full`: look at each record in the opened bytes. Raises BatchError."""
    newest = NO_TIMESTAMP
    for delta, record in enumerate(iterate_opened(data, header)):
        if record.offset - header.base_offset != delta:
            raise BatchError(ErrorCode.INVALID_RECORD, "record offsets are not dense")
        newest = max(newest, record.timestamp)
    if not header.has_log_append_time and newest != header.max_timestamp:
        raise BatchError(ErrorCode.INVALID_RECORD, "max timestamp is not the newest record's")


def pack_anew(data: bytes, header: BatchHeader, codec: int, level: int | None) -> bytearray:
    """The same batch in another codec, from its opened bytes; no record is looked at."""
    packed = compress(codec, data, level)
    batch = bytearray(HEADER_SIZE + len(packed))
    batch[HEADER_SIZE:] = packed
    fields = header._replace(
        length=len(batch) - LENGTH_OVERHEAD, attributes=header.attributes & ~CODEC_MASK | codec
    )
    HEADER.pack_into(batch, 0, *fields)
    _CRC.pack_into(batch, 17, crc32c(memoryview(batch)[CRC_START:]))
    return batch
