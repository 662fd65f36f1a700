"""What is left of damaged segments, as files without a bad byte.

For an operator's order to go on with a log that nobody can repair. Every batch that is good and in its
place is kept, also behind bad bytes; for the offsets that were in those stands a batch without records,
as compaction leaves one, so that readers get over them. The bad files stay as they are until the turn
that adopts the new ones (layout.py). A crash in between finds the damage again, and nothing less.

The work may take long, so a job does it beside the loop. Decides nothing. Called by store.
"""

import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

from dmq.raft.marks import Marks
from dmq.records import HEADER_SIZE, MAGIC, check_crc, filler, read_header
from dmq.storage.files import Buffer, File, Files
from dmq.storage.items import Damage, SegmentState
from dmq.storage.log import Log
from dmq.storage.segment import BadBatchError, Segment

_SEARCH_BYTES = 1024 * 1024
_SECTOR_BYTES = 4096
"""What is read alone where the disk gives nothing back for a larger piece."""
_WRITE_BYTES = 256 * 1024
_OFFSET = struct.Struct(">q")
_MAGIC_AT = 16

Gap = tuple[int, int]
"""Offsets from the first to before the second."""


class Good(NamedTuple):
    """A batch that is what was written."""

    position: int
    base: int
    next: int
    max_timestamp: int
    data: bytes


class Salvaged(NamedTuple):
    """Files for the damaged segments of a log that was in this state."""

    life: int
    cut_count: int
    damage: tuple[Damage, ...]
    synced: frozenset[Segment]
    """All that the log had unsynced, and does not need any more."""
    files: tuple[tuple[Segment, SegmentState], ...]
    """What takes the place of which."""
    gaps: tuple[Gap, ...]
    """Offsets whose records are lost."""


class SalvageJob:
    """Makes the files; `found` is what the log may adopt, None after an error."""

    def __init__(self, files: Files, log: Log) -> None:
        self._files = files
        self.log = log
        self._life, self._cut_count, self._damage = log.life, log.cut_count, log.damage
        self._marks, self._log_start = log.marks, log.log_start
        damaged = {damage.segment for damage in self._damage}
        segments = log.segments_list
        ends = [*(segment.base for segment in segments[1:]), log.end_offset]
        self._damaged = [
            (segment, end)
            for segment, end in zip(segments, ends, strict=True)
            if segment.base in damaged
        ]
        self._unsynced = [
            segment for segment in log.unsynced if segment.size and segment.base not in damaged
        ]
        self._open = _opened(log, self._unsynced)
        self.found: Salvaged | None = None
        self.error: OSError | None = None

    def run(self) -> None:
        """What can't be done now leaves the log as it is."""
        try:
            for file in self._open:
                file.sync()
            self.found = self._salvage()
        except OSError as error:
            self.error = error

    def _salvage(self) -> Salvaged:
        made: list[tuple[Segment, SegmentState]] = []
        gaps: list[Gap] = []
        for segment, end in self._damaged:
            rescue = _Rescue(self._files, self.log, segment, end, self._marks)
            made.append((segment, rescue.run()))
            gaps += [
                (max(start, self._log_start), stop)
                for start, stop in rescue.gaps
                if stop > self._log_start
            ]
        done = frozenset((*self._unsynced, *(segment for segment, _ in self._damaged)))
        return Salvaged(self._life, self._cut_count, self._damage, done, tuple(made), tuple(gaps))


def _opened(log: Log, segments: list[Segment]) -> list[File]:
    found = []
    for segment in segments:
        try:
            found.append(log.open_segment(segment))
        except BadBatchError:
            continue  # Nobody has read it yet: it is damaged too, and nothing new is in it.
    return found


class _Rescue:
    """One segment."""

    def __init__(self, files: Files, log: Log, segment: Segment, end: int, marks: Marks) -> None:
        self._files = files
        self._segment = segment
        self._end = end
        self._marks = marks
        self._name = log.salvage_name(segment.base)
        self._source: File | None = None
        if files.exists(segment.name()):
            self._source = files.open(segment.name())
        self._bytes = 0 if self._source is None else min(self._source.size(), segment.size)
        self._parts: list[Buffer] = []
        self._part_bytes = 0
        self._size = 0
        self.gaps: list[Gap] = []

    def run(self) -> SegmentState:
        """Raises OSError if the disk takes no more."""
        self._files.make_dir(self._segment.directory)
        out = self._files.open(self._name, create=True)
        out.cut(0)
        offset, greatest = self._segment.base, -1
        for batch in self._batches():
            self._fill(offset, batch.base)
            self._put(out, batch.data)
            offset = batch.next
            greatest = max(greatest, batch.max_timestamp)
        self._fill(offset, self._end)
        self._write(out)
        out.sync()
        return SegmentState(self._segment.base, self._size, greatest)

    def _fill(self, start: int, stop: int) -> None:
        """Batches without records, none across a mark."""
        if start >= stop:
            return
        self.gaps.append((start, stop))
        edges = [mark.offset for mark in self._marks if start < mark.offset < stop]
        for at, until in zip([start, *edges], [*edges, stop], strict=True):
            if at < until:
                data = filler(at, until, self._marks.at(at).epoch)
                self._parts.append(data)
                self._part_bytes += len(data)

    def _put(self, out: File, data: bytes) -> None:
        self._parts.append(data)
        self._part_bytes += len(data)
        if self._part_bytes >= _WRITE_BYTES:
            self._write(out)

    def _write(self, out: File) -> None:
        if self._parts:
            out.write_at(self._size, self._parts)
            self._size += self._part_bytes
            self._parts, self._part_bytes = [], 0

    # ---- reading

    def _batches(self) -> Iterator[Good]:
        byte, offset = 0, self._segment.base
        while byte < self._bytes:
            batch = self._batch_at(byte, offset)
            if batch is None or batch.base > offset:  # Offsets lie outside a batch's CRC.
                batch = self._search(byte + 1, offset)
            if batch is None:
                return
            yield batch
            byte, offset = batch.position + len(batch.data), batch.next

    def _batch_at(self, byte: int, offset: int) -> Good | None:
        """The batch here, if it is good and what the log has at `offset` or later."""
        head = self._read(byte, HEADER_SIZE)
        if len(head) < HEADER_SIZE:
            return None
        header = read_header(head)
        is_in_place = offset <= header.base_offset < header.next_offset <= self._end
        fits = self._marks.fits
        if not (
            header.magic == MAGIC
            and HEADER_SIZE <= header.size <= self._bytes - byte
            and is_in_place
            and fits(header.base_offset, header.leader_epoch)
            and fits(header.next_offset - 1, header.leader_epoch)
        ):
            return None
        data = self._read(byte, header.size)
        if len(data) < header.size or not check_crc(data, 0, header):
            return None
        return Good(byte, header.base_offset, header.next_offset, header.max_timestamp, data)

    def _search(self, byte: int, offset: int) -> Good | None:
        """The next good batch behind bytes that are none."""
        # A segment's offsets have the same first bytes, or two sorts of them.
        firsts = {_OFFSET.pack(known)[:4] for known in (offset, self._end - 1)}
        starts = b"|".join(re.escape(first) for first in sorted(firsts))
        rest = _MAGIC_AT - 4
        pattern = re.compile(b"(?=(?:%b).{%d}%c)" % (starts, rest, MAGIC), re.DOTALL)
        while byte < self._bytes:
            window = self._read(byte, min(_SEARCH_BYTES + _MAGIC_AT, self._bytes - byte))
            for match in pattern.finditer(window):
                batch = self._batch_at(byte + match.start(), offset)
                if batch is not None:
                    return batch
            byte += _SEARCH_BYTES
        return None

    def _read(self, position: int, length: int) -> bytes:
        """As many bytes as the file has; zeros where the disk gives none back."""
        assert self._source is not None
        try:
            return self._source.read_at(position, length)
        except OSError:
            if length <= _SECTOR_BYTES:
                return bytes(length)
        pieces = range(position, position + length, _SECTOR_BYTES)
        end = position + length
        return b"".join(self._read(at, min(_SECTOR_BYTES, end - at)) for at in pieces)
