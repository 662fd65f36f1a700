"""One batch under compaction: the keys in it, and the batch without the records that go.

Works on the records' bytes as they lie there: what stays is copied, not built anew, so headers and
timestamps can't change. Offsets, epoch, producer and sequence stay; a batch keeps its base and last
offset even if the records that had them go. Raises BatchError on bytes that are no records. Pure.
Called by compaction_run.py.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from crc32c import crc32c

from dmq.codecs import compress
from dmq.errors import ErrorCode
from dmq.records import (
    CODEC_MASK,
    CRC_START,
    DELETE_HORIZON,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    BatchError,
    BatchHeader,
    open_batch,
)

_CRC = struct.Struct(">I")
_TIME_MAX = 1 << 62
"""No moment lies beyond; so the difference of two always fits its field."""


RawRecord = tuple[int, bytes | None, bool, int, int, int, int]
"""A record in the opened batch: offset, key, whether it has a value, time delta, and where it lies:
its start, what follows its time delta, its end. A bare tuple: there are millions of them."""


class Verdict(NamedTuple):
    """What is left of a batch."""

    data: bytes | bytearray | memoryview
    """Empty if nothing is. The very bytes that came in if everything is."""
    is_changed: bool
    kept: int
    """Records."""
    max_timestamp: int


def read_records(batch: memoryview, header: BatchHeader) -> tuple[bytes, list[RawRecord]]:
    """The opened batch and its records. Raises BatchError."""
    data = bytes(open_batch(batch, 0, header))
    records: list[RawRecord] = []
    read, base_offset = _read_varint, header.base_offset
    at, before = 0, -1
    try:
        for _ in range(header.record_count):
            start = at
            size, at = read(data, start)
            end = at + size
            time_delta, rest = read(data, at + 1)
            delta, at = read(data, rest)
            key_size, at = read(data, at)
            key: bytes | None = None
            if key_size >= 0:
                key = data[at : at + key_size]
                at += key_size
            value_size, at = read(data, at)
            if not before < delta or at + value_size > end:
                raise IndexError("record is longer than it says, or out of order")
            records.append(
                (base_offset + delta, key, value_size >= 0, time_delta, start, rest, end)
            )
            at, before = end, delta
    except IndexError as error:
        raise BatchError(ErrorCode.INVALID_RECORD, f"bad record: {error}") from error
    if at != len(data) or before > header.last_offset_delta:
        raise BatchError(ErrorCode.INVALID_RECORD, "records and batch don't fit")
    return data, records


def filter_batch(
    batch: memoryview,
    header: BatchHeader,
    data: bytes,
    records: Sequence[RawRecord],
    kept: Sequence[RawRecord],
    horizon: int | None,
    *,
    stays_if_empty: bool,
) -> Verdict:
    """The batch with `kept` of its records.

    `horizon` is set on a batch that has none yet: when its tombstones, or it, may go (KIP-534).
    `stays_if_empty` leaves a batch without records, for its offsets and its sequence.
    Raises BatchError.
    """
    if not kept:
        if not stays_if_empty:
            return Verdict(b"", True, 0, NO_TIMESTAMP)
        if not records:
            return Verdict(batch, False, 0, header.max_timestamp)
        return Verdict(empty_batch(header), True, 0, header.max_timestamp)
    if len(kept) == len(records) and horizon is None:
        return Verdict(batch, False, len(kept), header.max_timestamp)
    base_timestamp = header.base_timestamp
    attributes = header.attributes
    if horizon is not None:
        base_timestamp = min(horizon, _TIME_MAX)
        attributes |= DELETE_HORIZON
    if attributes & LOG_APPEND_TIME:
        newest = header.max_timestamp
    else:
        newest = header.base_timestamp + max(record[3] for record in kept)
    oldest = header.base_timestamp + min(record[3] for record in kept)
    if max(abs(newest), abs(oldest)) > _TIME_MAX:
        raise BatchError(ErrorCode.INVALID_RECORD, "record times make no sense")
    body = _bodies(data, kept, header.base_timestamp - base_timestamp)
    changed = header._replace(
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=newest,
        record_count=len(kept),
    )
    built = _build(changed, compress(header.codec, body))
    return Verdict(built, True, len(kept), newest)


def _bodies(data: bytes, kept: Sequence[RawRecord], time_shift: int) -> bytes:
    """The records' bytes; with another base timestamp their time deltas are written anew."""
    if not time_shift:
        return b"".join([data[start:end] for *_, start, _, end in kept])
    out = bytearray()
    for _, _, _, time_delta, _, rest, end in kept:
        delta = _varint(time_delta + time_shift)
        out += _varint(1 + len(delta) + end - rest)
        out.append(0)  # Record attributes: none is defined.
        out += delta
        out += data[rest:end]
    return bytes(out)


def empty_batch(header: BatchHeader) -> bytearray:
    """A batch without records that keeps offsets, epoch, producer and sequence."""
    return _build(
        header._replace(
            attributes=header.attributes & ~(CODEC_MASK | DELETE_HORIZON),
            base_timestamp=NO_TIMESTAMP,
            record_count=0,
        ),
        b"",
    )


def _build(header: BatchHeader, packed: bytes) -> bytearray:
    batch = bytearray(HEADER_SIZE + len(packed))
    batch[HEADER_SIZE:] = packed
    HEADER.pack_into(batch, 0, *header._replace(length=len(batch) - LENGTH_OVERHEAD, crc=0))
    _CRC.pack_into(batch, 17, crc32c(memoryview(batch)[CRC_START:]))
    return batch


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    result, shift = byte & 0x7F, 7
    while shift < 70:
        at += 1
        byte = data[at]
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (result >> 1) ^ -(result & 1), at + 1
        shift += 7
    raise IndexError("varint is too long")


def _varint(value: int) -> bytes:
    zigzag = (value << 1) ^ (value >> 63)
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)
