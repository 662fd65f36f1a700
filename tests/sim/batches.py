"""Record batches that carry the number of the attempt that made them, where a batch has its time.

The number is the timestamp of all records of a batch: it lies in the 61 bytes of header, under the CRC,
and survives all that a broker may do to a batch; its compaction too, as the greatest timestamp. So a
reader recognises every batch without opening it, and a batch is made by packing a header in front of
records that were built once. What coordinators and transaction markers write has the time of day there;
it is known by its place and its CRC, below zero.
"""

import struct
from functools import cache
from typing import NamedTuple

from crc32c import crc32c

from dmq.records import (
    CONTROL,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    TRANSACTIONAL,
    Record,
    build_batch,
)
from dmq.storage import reading
from dmq.storage.log import FileSlice, Log

_CRC = struct.Struct(">I")
_UNPACK = HEADER.unpack_from


WALL_MS = 1 << 42
"""The time of day when a simulation begins: greater than any number of an attempt."""


class Stamp(NamedTuple):
    """In whose name a batch was written."""

    producer_id: int
    producer_epoch: int
    sequence: int
    is_transactional: bool
    is_control: bool


class Entry(NamedTuple):
    """A batch as the simulation knows it."""

    base: int
    end: int
    epoch: int
    number: int
    """Of the attempt; never used twice. Of a broker's own batches: see the module."""
    stamp: Stamp | None = None
    """Of producers with an id."""
    content: bytes | None = None
    """All of it, if a broker wrote it by itself, or if it may have to be opened."""


class RottenBatchError(Exception):
    """Bytes are not what a producer sent."""


@cache
def _records(count: int, filling: int) -> bytes:
    """The part behind the header; the same for all batches of this shape."""
    records = [Record(n, 0, None, b"x" * filling) for n in range(count)]
    return bytes(build_batch(records)[HEADER_SIZE:])


PLAIN = Stamp(-1, -1, -1, False, False)


def make(number: int, count: int, filling: int, stamp: Stamp = PLAIN) -> bytearray:
    """A batch of `count` records; offset and epoch are still to be stamped."""
    return pack(number, count, _records(count, filling), stamp)


def pack(number: int, count: int, records: bytes, stamp: Stamp = PLAIN) -> bytearray:
    """A batch of `count` records that were built before."""
    raw = bytearray(HEADER_SIZE)
    raw += records
    length = len(raw) - LENGTH_OVERHEAD
    attributes = TRANSACTIONAL if stamp.is_transactional else 0
    fields = (0, length, 0, 2, 0, attributes, count - 1, number, number, *stamp[:3], count)
    HEADER.pack_into(raw, 0, *fields)
    _CRC.pack_into(raw, 17, crc32c(memoryview(raw)[CRC_START:]))
    return raw


def parse(raw: bytes, *, may_be_cut: bool = False, keeps: bool = False) -> list[Entry]:
    """All batches of these bytes, each checked by its CRC, as a consumer does.

    `may_be_cut`: a fetch may end in the middle of a batch, which its reader then ignores.
    `keeps`: with their bytes, to be opened.
    """
    entries: list[Entry] = []
    at, end = 0, len(raw)
    view = memoryview(raw)
    while at < end:
        if at + HEADER_SIZE > end:
            if may_be_cut:
                break
            raise RottenBatchError(f"{end - at} bytes are left over")
        base, length, epoch, _, crc, flags, delta, _, number, producer, *rest = _UNPACK(raw, at)
        stop = at + length + LENGTH_OVERHEAD
        if may_be_cut and entries and stop > end:
            break
        if not at + HEADER_SIZE <= stop <= end or crc32c(view[at + CRC_START : stop]) != crc:
            raise RottenBatchError(f"the batch at {base} is bad")
        entry = Entry(base, base + delta + 1, epoch, number)
        if producer >= 0 or number >= WALL_MS:
            entry = _more(entry, flags, crc, (producer, rest[0], rest[1]), raw[at:stop])
        entries.append(entry._replace(content=raw[at:stop]) if keeps else entry)
        at = stop
    return entries


def _more(entry: Entry, flags: int, crc: int, producer: tuple[int, int, int], raw: bytes) -> Entry:
    """Of a producer with an id, or a broker's own."""
    stamp = None
    if producer[0] >= 0:
        stamp = Stamp(*producer, bool(flags & TRANSACTIONAL), bool(flags & CONTROL))
    if entry.number < WALL_MS:
        return entry._replace(stamp=stamp)
    return entry._replace(number=-(entry.end << 32 | crc), stamp=stamp, content=raw)


def read_log(log: Log, start: int, stop: int, *, keeps: bool = False) -> list[Entry]:
    """What a log's files hold from `start` up to `stop`, whole batches."""
    if start >= stop:
        return []
    return _entries(log.read(start, 1 << 30, stop), start, keeps)


def peek(log: Log, start: int, stop: int) -> list[Entry]:
    """The same, and the log does not learn that it was read: what is bad in it is still unknown."""
    if not log.log_start <= start < stop or log.damage:
        return []
    return _entries(reading.read(log, start, 1 << 30, stop, True), start)


def _entries(parts: list[FileSlice], start: int, keeps: bool = False) -> list[Entry]:
    entries = parse(b"".join([part.pread() for part in parts]), keeps=keeps)
    return [entry for entry in entries if entry.end > start]
