"""Reads of a log: file slices by offset, batches by timestamp. Bytes are not read here.

A slice refers to a range of a segment's file and keeps that file open, so it stays good when the
segment is deleted or falls out of the pool of open files. Called by log (for the broker).
"""

import struct
from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from dmq.storage.files import File, is_unreadable
from dmq.storage.segment import BatchPlace, Segment, SegmentReader, base_of, walk

if TYPE_CHECKING:
    from dmq.storage.log import Log

_BASE = struct.Struct(">q")
"""What a batch begins with."""


class FileSlice:
    """A range of a file; may be sent with `sendfile`."""

    __slots__ = ("_file", "length", "position")

    def __init__(self, file: File, position: int, length: int) -> None:
        self._file = file
        self.position = position
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __repr__(self) -> str:
        return f"<FileSlice {self._file.name} {self.position}+{self.length}>"

    def fileno(self) -> int:
        return self._file.fileno()

    def is_of(self, file: File) -> bool:
        return self._file is file

    def is_in(self, file: File) -> bool:
        """The same, though the file may have been opened anew."""
        return self._file is file or self._file.is_same(file)

    @property
    def segment(self) -> int:
        """Base of the segment that it is of."""
        return base_of(self._file.name)

    @property
    def uid(self) -> int:
        """Of the log whose file it is."""
        return int(self._file.name.split("/")[-2])

    def base_at(self, byte: int) -> int | None:
        """Base offset of the batch at this byte of the file; None if the file is shorter, or the disk
        gives it not back."""
        try:
            head = self._file.read_at(byte, _BASE.size)
        except OSError as error:
            if not is_unreadable(error):
                raise
            return None
        return _BASE.unpack(head)[0] if len(head) == _BASE.size else None

    def pread(self) -> bytes:
        """The bytes; may wait for the disk."""
        return self._file.read_at(self.position, self.length)

    def is_cached(self) -> bool:
        """Whether reading it will not wait for the disk."""
        return self._file.is_cached(self.position, self.length)

    def part(self, start: int, length: int) -> "FileSlice":
        """A slice of this slice."""
        assert 0 <= start <= start + length <= self.length
        return FileSlice(self._file, self.position + start, length)


class FoundBatch(NamedTuple):
    """A whole batch, by its header and as a slice to be opened by the caller."""

    base_offset: int
    last_offset: int
    max_timestamp: int
    epoch: int
    slice: FileSlice


def segment_at(segments: list[Segment], offset: int) -> int:
    """Index of the segment that this offset belongs to."""
    last = len(segments) - 1
    if offset >= segments[last].base:
        return last
    return max(bisect_right(segments, offset, key=_base) - 1, 0)


def _base(segment: Segment) -> int:
    return segment.base


def offset_at(log: "Log", piece: FileSlice) -> int | None:
    """An offset at or before which these bytes begin; None if the log has another file there by now."""
    segments = log.segments_list
    segment = segments[segment_at(segments, piece.segment)]
    if segment.base != piece.segment:
        return None
    reader = log.reader(segment)
    return reader.offset_below(piece.position) if piece.is_in(reader.file) else None


def read(
    log: "Log", offset: int, bytes_max: int, end_offset: int, whole_first_batch: bool
) -> list[FileSlice]:
    """Slices from the batch that holds `offset`; see `Log.read`."""
    segments = log.segments_list
    slices: list[FileSlice] = []
    room = bytes_max
    for at in range(segment_at(segments, offset), len(segments)):
        segment = segments[at]
        if segment.base >= end_offset or (slices and room <= 0):
            break
        if not segment.readable:
            continue
        reader = log.reader(segment)
        start = reader.position(offset)
        is_last = at == len(segments) - 1
        next_base = log.readable_end if is_last else segments[at + 1].base
        # While a cut waits for its turn, the last segment has more than may be read.
        is_whole = next_base <= end_offset and not (is_last and log.is_cut_staged)
        stop = segment.readable if is_whole else reader.position(end_offset)
        if stop <= start:
            continue  # Nothing of it can be read yet.
        length = min(stop - start, max(room, 0))
        if not slices and length < stop - start and whole_first_batch:
            first = next(walk(reader.file, start, stop, read_bytes=64))
            length = max(length, first.size)
        if length:
            slices.append(FileSlice(reader.file, start, length))
        room -= length
        if length < stop - start or room <= 0:
            break
    return slices


def bound(log: "Log", offset: int, slices: list[FileSlice], end_offset: int) -> int:
    """An offset that all which was read from `offset` on is below; see `Log.bound`."""
    segments = log.segments_list
    last = slices[-1]
    for at in range(segment_at(segments, offset), len(segments)):
        segment = segments[at]
        if segment.base >= end_offset:
            break
        if not segment.readable:
            continue
        reader = log.reader(segment)
        if not last.is_of(reader.file):
            continue
        found = reader.bound(last.position + last.length)
        if found is None and at + 1 < len(segments):
            found = segments[at + 1].base
        return end_offset if found is None else min(found, end_offset)
    return end_offset


def offset_behind(log: "Log", slices: list[FileSlice], size: int) -> int | None:
    """Where the log goes on behind `size` bytes of what was read; see `Log.offset_behind`."""
    for part in slices:
        if size <= part.length:
            break
        size -= part.length
    byte = part.position + size
    segments = log.segments_list
    at = segment_at(segments, part.segment)
    if byte < segments[at].readable:
        return part.base_at(byte)
    following = segments[at + 1].base if at + 1 < len(segments) else log.readable_end
    return min(following, log.readable_end)


def _visible(log: "Log") -> list[Segment]:
    """Without those that are kept though they lie below the log's start."""
    return log.segments_list[segment_at(log.segments_list, log.log_start) :]


def find_timestamp(log: "Log", timestamp: int, end_offset: int) -> FoundBatch | None:
    for segment in _visible(log):
        if not segment.readable or segment.base >= end_offset:
            continue
        reader = log.reader(segment)
        if reader.max_timestamp() < timestamp:
            continue
        place = reader.find_timestamp(timestamp, log.log_start)
        if place is not None:
            return _found(reader, place) if place.base_offset < end_offset else None
    return None


def find_max_timestamp(log: "Log", end_offset: int) -> FoundBatch | None:
    segments = [s for s in _visible(log) if s.readable and s.base < end_offset]
    greatest = {segment: log.reader(segment).max_timestamp() for segment in segments}
    best: tuple[SegmentReader, BatchPlace] | None = None
    for segment in sorted(segments, key=lambda s: (-greatest[s], s.base)):
        if best is not None and greatest[segment] <= best[1].max_timestamp:
            break
        reader = log.reader(segment)
        place = _greatest_in(log, reader, segment, end_offset)
        if place is not None and (best is None or place.max_timestamp > best[1].max_timestamp):
            best = reader, place
    return None if best is None else _found(*best)


def _greatest_in(
    log: "Log", reader: SegmentReader, segment: Segment, end_offset: int
) -> BatchPlace | None:
    place = reader.find_max_timestamp()
    if (
        place is not None
        and log.log_start <= place.base_offset
        and place.last_offset < end_offset
        and place.record_count
    ):
        return place
    # It is not visible (yet, or any more), or compaction emptied it: look at every batch.
    return _greatest_visible(reader, segment, log.log_start, end_offset)


def _greatest_visible(
    reader: SegmentReader, segment: Segment, log_start: int, end_offset: int
) -> BatchPlace | None:
    best: BatchPlace | None = None
    for place in walk(reader.file, reader.position(log_start), segment.readable):
        if place.base_offset >= end_offset:
            break
        if place.record_count and (best is None or place.max_timestamp > best.max_timestamp):
            best = place
    return best


def _found(reader: SegmentReader, place: BatchPlace) -> FoundBatch:
    return FoundBatch(
        place.base_offset,
        place.last_offset,
        place.max_timestamp,
        place.epoch,
        FileSlice(reader.file, place.position, place.size),
    )
