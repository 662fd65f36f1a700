"""One segment: a .log file of whole batches with its sparse indexes, and the walk over headers.

Owns where a batch lies in the file. Never opens a batch, never decides when to roll or to delete.
The file appears with the first bytes and is opened through a pool, which may close it at any
time; a slice that was handed out keeps its own reference. Called by log, reading and recovery.
"""

import errno
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from dmq.errors import CorruptError, StorageError
from dmq.records import HEADER, HEADER_SIZE, LENGTH_OVERHEAD, MAGIC
from dmq.storage.files import SECTOR_BYTES, File, Files, is_unreadable
from dmq.storage.index import Index, load
from dmq.storage.items import UNKNOWN_TIMESTAMP, Damage, SegmentState

_WALK_BYTES = 8 * 1024
_WALK_BYTES_MAX = 1024 * 1024
_FIRST_BYTES = 2 * HEADER_SIZE
_FIRST_BATCHES = 16
_HINTS_MAX = 512
_INDEXES_MAX = 64
"""Indexes of closed segments kept in memory: up to 5 MiB for each GiB of log."""


_RELATIVE_MAX = 2**32 - 1
"""What an index entry has room for."""


def base_of(name: str) -> int:
    """The segment that a file of this name is of, or is to replace."""
    return int(name.rpartition("/")[2].partition(".")[0])


class BadBatchError(CorruptError):
    """Bytes of a segment that are no batch."""

    def __init__(self, name: str, position: int, end: int) -> None:
        super().__init__(f"{name}: no batch at {position}")
        self.base = base_of(name)
        self.position = position
        self.end = end

    @property
    def place(self) -> Damage:
        """From there to the end of the segment: nobody can say where the next batch begins."""
        return Damage(self.base, self.position, self.end)


class BatchPlace(NamedTuple):
    """A batch in a segment, by its header."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    epoch: int
    record_count: int


def walk(
    file: File, position: int, end: int, *, read_bytes: int = _WALK_BYTES
) -> Iterator[BatchPlace]:
    """The batches from `position` to `end`, by their headers.

    Raises BadBatchError at bytes that are no header, or not that of the next batch: each begins where
    the one before it ends; and where the disk gives none back.
    """
    start, data, following = position, b"", None
    while position < end:
        at = position - start
        if at + HEADER_SIZE > len(data):
            start, at = position, 0
            try:
                data = file.read_at(position, min(read_bytes, end - position))
                read_bytes = min(read_bytes * 2, _WALK_BYTES_MAX)
            except OSError as error:
                data = _read_less(file, position, end, error)
                read_bytes = SECTOR_BYTES
        if len(data) - at < HEADER_SIZE:
            raise BadBatchError(file.name, position, end)
        base, length, epoch, magic, _, _, delta, _, max_timestamp, _, _, _, count = (
            HEADER.unpack_from(data, at)
        )
        size = length + LENGTH_OVERHEAD
        if magic != MAGIC or size < HEADER_SIZE or position + size > end or delta < 0:
            raise BadBatchError(file.name, position, end)
        if following is not None and base != following:
            raise BadBatchError(file.name, position, end)
        following = base + delta + 1
        yield BatchPlace(position, size, base, base + delta, max_timestamp, epoch, count)
        position += size


def _read_less(file: File, position: int, end: int, error: OSError) -> bytes:
    """A header at least, where what lies ahead can't be read. Raises BadBatchError if it can't, too."""
    for length in (SECTOR_BYTES - position % SECTOR_BYTES, HEADER_SIZE):
        if not is_unreadable(error):
            raise error
        try:
            return file.read_at(position, min(max(length, HEADER_SIZE), end - position))
        except OSError as again:
            error = again
    if not is_unreadable(error):
        raise error
    raise BadBatchError(file.name, position, end) from error


class Segment:
    """One segment of a log. `size` is what the log says, the file may be longer."""

    __slots__ = (
        "base",
        "directory",
        "file",
        "first_timestamp",
        "flushed",
        "hints",
        "index",
        "max_timestamp",
        "readable",
        "reserved",
        "size",
        "suffix",
        "trusted_bytes",
    )

    def __init__(self, directory: str, state: SegmentState, trusted_bytes: int = 0) -> None:
        self.directory = directory
        self.base = state.base
        self.size = state.size
        self.readable = state.size
        """Bytes that the file has; less than `size` while a log that was cut waits for its turn, or
        while a worker writes."""
        self.reserved = 0
        """Blocks for so many bytes are the file's, as far as this process knows."""
        self.flushed = 0
        """Bytes that a flush has taken; what comes before is on disk or on its way."""
        self.max_timestamp = state.max_timestamp
        self.first_timestamp: int | None = None
        """Greatest timestamp of the first batch that has one; None: not known yet."""
        self.index: Index | None = None if state.size else Index()
        self.trusted_bytes = trusted_bytes
        """Index files may be believed about bytes below this."""
        self.hints: dict[int, int] = {}
        """Offset of recent batches -> byte: sequential readers need no lookup."""
        self.file: File | None = None
        self.suffix = "log"
        """Another one while the file that replaces a segment waits for its turn to be durable."""

    def state(self) -> SegmentState:
        return SegmentState(self.base, self.size, self.max_timestamp)

    def name(self, suffix: str = "") -> str:
        return f"{self.directory}/{self.base:020d}.{suffix or self.suffix}"

    def note(
        self, position: int, length: int, base: int, last: int, max_timestamp: int, interval: int
    ) -> None:
        """A batch was placed at the end."""
        if position == 0:
            self.first_timestamp = max_timestamp
            self.max_timestamp = max_timestamp
        elif self.first_timestamp is not None and self.first_timestamp < 0:
            self.first_timestamp = max_timestamp
        if position and max_timestamp > self.max_timestamp != UNKNOWN_TIMESTAMP:
            self.max_timestamp = max_timestamp
        index = self.index
        if index is not None and index.covered == position:
            index.note(position, length, last - self.base, max_timestamp, interval)
        hints = self.hints
        if len(hints) >= _HINTS_MAX:
            hints.clear()
        hints[base] = position

    def cut(self, size: int, end_offset: int) -> None:
        """The log ends here now, in memory; the file is cut when that is durable."""
        self.size = self.readable = size
        self.reserved = min(self.reserved, size)
        self.flushed = min(self.flushed, size)
        self.max_timestamp = UNKNOWN_TIMESTAMP if size else -1
        self.first_timestamp = None
        self.hints.clear()
        self.trusted_bytes = min(self.trusted_bytes, size)
        if self.index is not None:
            self.index.cut(size, end_offset - self.base)


class SegmentFiles:
    """The open files of all segments, the least recently used closed first."""

    def __init__(self, files: Files, open_max: int) -> None:
        self.files = files
        self._open_max = max(open_max, 1)
        self._open: OrderedDict[Segment, None] = OrderedDict()
        self._loaded: OrderedDict[Segment, None] = OrderedDict()

    def get(self, segment: Segment) -> File:
        """Raises OSError if it can't be opened, BadBatchError if bytes of it are not there."""
        file = segment.file
        if file is not None:
            self._open.move_to_end(segment)
            return file
        file = self._opened(segment)
        if file.size() < segment.readable:
            raise BadBatchError(segment.name(), file.size(), segment.readable)
        return self._keep(segment, file)

    def get_any(self, segment: Segment) -> File:
        """The same, though its end may be missing. Raises StorageError if it can't be opened."""
        if segment.file is not None:
            return segment.file
        try:
            return self._opened(segment)
        except OSError as error:
            raise StorageError(f"{segment.name()}: {error}") from error

    def create(self, segment: Segment) -> File:
        return self._keep(segment, self.open_file(segment.name(), create=True))

    def _opened(self, segment: Segment) -> File:
        try:
            return self.open_file(segment.name())
        except OSError as error:
            if is_unreadable(error) or isinstance(error, FileNotFoundError):
                raise BadBatchError(segment.name(), 0, segment.readable) from error
            raise

    def open_file(self, name: str, *, create: bool = False) -> File:
        """Raises OSError; for want of descriptors only if no segment has one any more."""
        while True:
            try:
                return self.files.open(name, create=create)
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._open:
                    raise
            self._let_go()  # Others took the descriptors that were meant for us.

    def _keep(self, segment: Segment, file: File) -> File:
        segment.file = file
        self._open[segment] = None
        while len(self._open) > self._open_max:
            self._let_go()
        return file

    def _let_go(self) -> None:
        """Of the file that was used longest ago."""
        cold = self._open.popitem(last=False)[0]
        cold.file = None
        _drop_index(cold)

    def loaded_index(self, segment: Segment) -> None:
        """An index was read into memory: let the one go that was read longest ago."""
        self._loaded[segment] = None
        while len(self._loaded) > _INDEXES_MAX:
            _drop_index(self._loaded.popitem(last=False)[0])

    def forget(self, segment: Segment) -> None:
        segment.file = None
        self._open.pop(segment, None)
        self._loaded.pop(segment, None)

    def unlink(self, segment: Segment) -> None:
        """Remove log and indexes; readers in flight keep what they have."""
        self._unlink(segment, "log", "index", "timeindex")

    def unlink_indexes(self, segment: Segment) -> None:
        """Remove indexes of a log that is replaced."""
        self._unlink(segment, "index", "timeindex")

    def _unlink(self, segment: Segment, *suffixes: str) -> None:
        self.forget(segment)
        for suffix in suffixes:
            name = segment.name(suffix)
            if self.files.exists(name):
                self.files.unlink(name)


def _drop_index(segment: Segment) -> None:
    if segment.trusted_bytes == segment.size:
        segment.index = None  # Its files say the same.


class SegmentReader:
    """Lookups in one segment; makes the index cover it first."""

    def __init__(self, pool: SegmentFiles, segment: Segment, interval_bytes: int) -> None:
        self._segment = segment
        self._interval = interval_bytes
        self._pool = pool
        try:
            self.file = pool.get(segment)
        except OSError as error:
            raise StorageError(f"{segment.name()}: {error}") from error

    def find(self, offset: int) -> BatchPlace | None:
        """The first batch whose last offset is >= `offset`; None if it lies beyond."""
        segment = self._segment
        entry = self.index().floor(offset - segment.base)
        if entry is not None and entry[1] >= segment.readable:
            return None  # In bytes that are being written.
        if entry is not None and not self._is_true(entry):
            segment.index, segment.trusted_bytes = None, 0  # It lies: make it anew.
            entry = self.index().floor(offset - segment.base)
        for place in walk(self.file, entry[1] if entry else 0, segment.readable):
            if place.last_offset >= offset:
                return place
        return None

    def _is_true(self, entry: tuple[int, int]) -> bool:
        """Whether the batch that an index entry names is there."""
        try:
            place = next(
                walk(self.file, entry[1], self._segment.readable, read_bytes=HEADER_SIZE), None
            )
        except BadBatchError:
            return False
        return place is not None and place.last_offset == entry[0] + self._segment.base

    def first_timestamp(self) -> int:
        """Greatest timestamp of the first batch that has one; of the first few, for those that
        compaction left without records have none, and others do."""
        places = walk(self.file, 0, self._segment.readable, read_bytes=_FIRST_BYTES)
        times = (place.max_timestamp for place in islice(places, _FIRST_BATCHES))
        return next((time for time in times if time >= 0), -1)

    def position(self, offset: int) -> int:
        """The byte at which the first batch that reaches `offset` begins; the size if none."""
        segment = self._segment
        if offset <= segment.base:
            return 0
        known = segment.hints.get(offset)
        if known is not None:
            return known
        place = self.find(offset)
        if place is None:
            return segment.readable
        if len(segment.hints) >= _HINTS_MAX:
            segment.hints.clear()
        segment.hints[offset] = place.position
        return place.position

    def offset_below(self, byte: int) -> int:
        """The last offset of a batch that begins at or before this byte: the nearest that the index
        knows; the segment's base, if it knows none."""
        index = self.index()
        at = bisect_right(index.positions, byte) - 1
        return self._segment.base + (index.offsets[at] if at >= 0 else 0)

    def bound(self, byte: int) -> int | None:
        """An offset that all batches before this byte are below; None if the index does not tell."""
        entry = self.index().ceiling(byte)
        if entry is None or entry[1] >= self._segment.readable or not self._is_true(entry):
            return None
        return entry[0] + self._segment.base

    def find_timestamp(self, timestamp: int, from_offset: int) -> BatchPlace | None:
        """The first batch at or after `from_offset` with a timestamp >= `timestamp`, and records."""
        segment = self._segment
        start = self.position(from_offset)
        entry = self.index().time_floor(timestamp)
        while entry is not None:
            place = self.find(entry[1] + segment.base)
            if place is not None:
                if place.max_timestamp == entry[0]:
                    start = max(start, place.position)
                break
            entry = self.index().time_floor(entry[0])  # In bytes that are being written.
        for place in walk(self.file, start, segment.readable):
            is_late = place.max_timestamp >= timestamp and place.last_offset >= from_offset
            if is_late and place.record_count:
                return place
        return None

    def find_max_timestamp(self) -> BatchPlace | None:
        """The first batch that has the segment's greatest timestamp."""
        index = self.index()
        return self.find(self._segment.base + index.max_offset) if self._segment.readable else None

    def max_timestamp(self) -> int:
        segment = self._segment
        if segment.max_timestamp == UNKNOWN_TIMESTAMP:
            segment.max_timestamp = self.index().max_timestamp
        return segment.max_timestamp

    def index(self) -> Index:
        """The index, covering all of the segment."""
        segment = self._segment
        index, is_of_files = segment.index, False
        if index is None:
            index = segment.index = self._load()
            is_of_files = bool(index.covered)
            self._pool.loaded_index(segment)
        if index.covered < segment.readable:
            self._extend(index)
        if is_of_files and index.max_timestamp != segment.max_timestamp:
            index = self._make_anew()
        return index

    def _make_anew(self) -> Index:
        """Of two files one may have been lost with the power: a greatest time that is too low would
        let retention take the segment early, so it must be what the segment says."""
        segment = self._segment
        index = Index()
        self._extend(index)
        segment.index = index
        if index.covered == segment.size and segment.max_timestamp == UNKNOWN_TIMESTAMP:
            segment.max_timestamp = index.max_timestamp
        else:
            segment.trusted_bytes = 0
        return index

    def _load(self) -> Index:
        segment = self._segment
        if segment.trusted_bytes <= 0:
            return Index()
        index = load(self._read("index"), self._read("timeindex"), segment.trusted_bytes)
        if not index.offsets or not self._is_true((index.offsets[-1], index.positions[-1])):
            return Index()
        return index

    def _read(self, suffix: str) -> bytes:
        """An index file; nothing if it is not there, or can't be read."""
        name = self._segment.name(suffix)
        try:
            file = self._pool.open_file(name)
            return file.read_at(0, file.size())
        except OSError as error:
            if is_unreadable(error) or isinstance(error, FileNotFoundError):
                return b""
            raise StorageError(f"{name}: {error}") from error

    def _extend(self, index: Index) -> None:
        base, end, interval = self._segment.base, self._segment.readable, self._interval
        for place in walk(self.file, index.covered, end):
            last = place.last_offset - base
            if not 0 <= last <= _RELATIVE_MAX:  # Offsets lie outside of a batch's CRC.
                raise BadBatchError(self.file.name, place.position, end)
            index.note(place.position, place.size, last, place.max_timestamp, interval)


def save_index(files: Files, segment: Segment, *, is_closed: bool) -> None:
    """Write the index files as far as the index in memory covers the segment; not synced.

    A full disk is no failure here: what is not there is made anew when it is needed.
    """
    index = segment.index
    if index is None or not segment.size or index.covered < segment.size:
        return
    if is_closed:
        index.note_time()
    elif not index.offsets:
        return  # Nothing to save yet: a start looks at these few bytes again.
    try:
        for suffix, raw in (("index", index.offset_bytes()), ("timeindex", index.time_bytes())):
            file = files.open(segment.name(suffix), create=True)
            file.write_at(0, [raw])
            file.cut(len(raw))
    except OSError:
        segment.trusted_bytes = 0
    else:
        segment.trusted_bytes = segment.size
