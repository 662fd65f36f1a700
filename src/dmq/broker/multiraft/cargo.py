"""Record bytes between two logs: read as whole batches, checked on arrival, fitted into a log.

A sender reads pieces of its files and checks their CRC, so that rot is found where it is. A receiver
checks everything again: size, CRC, epoch, that batches follow each other, that no batch lies across a
mark. Base offsets lie outside the CRC, but each batch begins where the one before it ends, also in a
compacted log: so a batch is in its place if its neighbours say so, too. Opens no batch, but for one
case: a log that begins in the middle of a batch gets that batch without its beginning.

Called by sending.py and repair.py (reading) and replica.py (taking).
"""

import logging
import struct
from bisect import bisect_left
from collections.abc import Iterator
from operator import attrgetter
from typing import NamedTuple

from crc32c import crc32c

from dmq.errors import ProtocolError, StorageError
from dmq.machines.producers.entries import SEQUENCE_MASK
from dmq.raft.messages import Append
from dmq.records import (
    CODEC_MASK,
    CRC_START,
    DELETE_HORIZON,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    NO_SEQUENCE,
    BatchError,
    BatchHeader,
    Record,
    build_batch,
    check_crc,
    filler,
    iterate,
    read_header,
    scan,
)
from dmq.storage.files import Buffer, is_unreadable
from dmq.storage.fresh import backing
from dmq.storage.log import Log
from dmq.storage.reading import FileSlice

logger = logging.getLogger("dmq.broker")

PIECE_BYTES = 256 * 1024
"""Record bytes in one message, unless a single batch has more."""


class Piece(NamedTuple):
    """Whole batches of a log, and the offset that they lead to."""

    stop: int
    data: Buffer


class RotError(StorageError):
    """The batch at `offset` is not what was written."""

    def __init__(self, offset: int, why: str = "it fails its CRC, or is out of place") -> None:
        super().__init__(f"the batch at offset {offset} can't be believed: {why}")
        self.offset = offset


class Sight(NamedTuple):
    """The bytes of a log as somebody reads them: when some are repaired, or it is replaced, they are
    others, and what was bad then says nothing any more."""

    log: Log
    repairs: int

    @classmethod
    def of(cls, log: Log) -> "Sight":
        return cls(log, log.repair_count)


def bytes_of(slices: list[FileSlice], start: int) -> bytes:
    """What slices of a log from `start` on have, up to one that the disk does not give back: whoever
    reads on begins there. Raises RotError if that is the first: it is of the segment of `start`."""
    found: list[bytes] = []
    for part in slices:
        try:
            found.append(part.pread())
        except OSError as error:
            if not is_unreadable(error):
                raise
            if not found:
                raise RotError(start, str(error)) from error
            break
    return b"".join(found)


def read_piece(
    log: Log, start: int, stop: int, bytes_max: int, *, despite_damage: bool = False
) -> Piece:
    """Batches from `start` up to `stop` at most, at least one if there is one. None if `stop` lies in
    a batch without records that compaction left: other replicas' may end there.

    Raises StorageError if the log's bytes are bad (RotError if only a CRC says so, or the disk).
    """
    stop = min(stop, log.readable_end)
    if start >= stop:
        return Piece(start, b"")
    read = log.read_good if despite_damage else log.read
    slices = read(start, bytes_max, stop, whole_first_batch=True)
    data = bytes_of(slices, start)
    if not data and not log.damage and _is_beyond(log, start, stop):
        return Piece(start, b"")
    end, size, marks = start, 0, log.marks
    for position, header in scan(data):
        # Offset and epoch lie outside the CRC: they must be what the log says of them.
        is_next = header.base_offset == end or (position == 0 and header.base_offset < end)
        is_good = header.magic == MAGIC and marks.fits(header.base_offset, header.leader_epoch)
        if not (
            is_good
            and is_next
            and end < header.next_offset <= stop
            and check_crc(data, position, header)
        ):
            raise RotError(end)
        end, size = header.next_offset, position + header.size
    if not size or log.offset_behind(slices, size) != end:
        raise RotError(start)
    return Piece(end, data if size == len(data) else data[:size])


def fresh_piece(log: Log, start: int, stop: int, bytes_max: int) -> Piece | None:
    """The same of what is still in memory: nothing can have rotted there.

    None: just that is not, and the file has to tell.
    """
    fresh, stop = log.fresh, min(stop, log.readable_end)
    at = first = bisect_left(fresh, start, key=attrgetter("base"))
    end, size = start, 0
    while at < len(fresh):
        base, following, data = fresh[at]
        if base != end or following > stop or (size and size + len(data) > bytes_max):
            break
        end, size, at = following, size + len(data), at + 1
    if at == first or log.damage:
        return None
    parts = [batch.data for batch in fresh[first:at]]
    if len(parts) == 1 and size >= backing(parts[0]) // 2:
        return Piece(end, parts[0])
    return Piece(end, b"".join(parts))


def _is_beyond(log: Log, start: int, stop: int) -> bool:
    """Whether the batch that holds `start` has no records, and goes beyond `stop`."""
    parts = log.read(start, HEADER_SIZE, log.readable_end, whole_first_batch=True)
    data = bytes_of(parts, start)
    if len(data) < HEADER_SIZE:
        return False
    header = read_header(data)
    is_held = header.base_offset <= start < stop < header.next_offset
    return is_held and not header.record_count and check_crc(data, 0, header)


class Batch(NamedTuple):
    """A batch that arrived."""

    base: int
    next: int
    data: memoryview


def check(append: Append, cargo: Buffer) -> list[Batch]:
    """The batches of an append. Raises ProtocolError if they are not of the log that it names."""
    edges = [mark.offset for mark in append.marks]
    at = append.prev.offset
    batches: list[Batch] = []
    for batch, epoch in _split(cargo):
        is_next = batch.base == at or (not batches and batch.base < at)
        if not (is_next and at < batch.next <= append.end.offset):
            raise ProtocolError(f"batch {batch.base}..{batch.next} between {at} and {append.end}")
        if epoch != append.epoch_at(max(batch.base, at)):
            raise ProtocolError(f"batch {batch.base} of epoch {epoch} is of another log")
        if any(batch.base < edge < batch.next for edge in edges):
            raise ProtocolError(f"batch {batch.base}..{batch.next} lies across a mark")
        batches.append(batch)
        at = batch.next
    if at != append.end.offset:
        raise ProtocolError(f"batches end at {at}, not at {append.end}")
    return batches


def split(cargo: Buffer) -> list[tuple[Batch, int]]:
    """Batches with their epochs, each checked for itself. Raises ProtocolError."""
    return list(_split(cargo))


def _split(cargo: Buffer) -> Iterator[tuple[Batch, int]]:
    view, at = memoryview(cargo), 0
    while at < len(view):
        if len(view) - at < HEADER_SIZE:
            raise ProtocolError("a batch is cut short")
        base, length, epoch, magic, crc, _, delta, *_ = HEADER.unpack_from(view, at)
        end = at + length + LENGTH_OVERHEAD
        if magic != MAGIC or length + LENGTH_OVERHEAD < HEADER_SIZE or end > len(view) or delta < 0:
            raise ProtocolError("no batch where one should be")
        if crc32c(view[at + CRC_START : end]) != crc:
            raise ProtocolError(f"the batch at offset {base} fails its CRC")
        yield Batch(base, base + delta + 1, view[at:end]), epoch
        at = end


def fit(batches: list[Batch], start: int, stop: int) -> Iterator[bytes | memoryview]:
    """What to append to a log that ends at `start` so that it ends at `stop`."""
    for batch in batches:
        if batch.next <= start or batch.base >= stop:
            continue
        assert batch.next <= stop, (batch.base, batch.next, stop)
        yield clip(batch, start) if batch.base < start else batch.data


def clip(batch: Batch, start: int) -> bytes:
    """The batch without the records below `start`, where the log begins.

    Its first time becomes that of a record: if it said when tombstones may go, compaction has to say
    so anew. One that nobody can open, as its producer sent it, has no records that a reader would miss.
    """
    header = read_header(batch.data)
    try:
        records = [r for r in iterate(batch.data, 0, header) if r.offset >= start]
        if records:
            return _clipped(batch, header, records, start)
    except (BatchError, struct.error) as error:  # Or it has times that no batch has room for.
        logger.warning("the batch at offset %d is no good to readers: %s", batch.base, error)
    return filler(start, batch.next, header.leader_epoch)


def _clipped(batch: Batch, header: BatchHeader, records: list[Record], start: int) -> bytes:
    sequence = header.base_sequence
    if sequence != NO_SEQUENCE:
        sequence = (sequence + start - batch.base) & SEQUENCE_MASK
    return bytes(
        build_batch(
            records,
            base_offset=start,
            leader_epoch=header.leader_epoch,
            codec=header.codec,
            attributes=header.attributes & ~(CODEC_MASK | DELETE_HORIZON),
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=sequence,
            last_offset=batch.next - 1,
        )
    )
