"""What is known of a log's producers, made from its last snapshot and the headers behind it.

A `Load` is a row of steps. Each is `work`, which reads and looks at bytes and may run in a thread, and
`take`, which is given what came of it and belongs to the loop. Between steps the log may grow, and its
start may move: what a new start would take away before it is read is held first (`hold`). Bytes are
checked before they are believed. Decides nothing and keeps nothing; called by producing.py.
"""

import struct
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from dmq.broker.multiraft.cargo import RotError, bytes_of
from dmq.broker.multiraft.replica import Replica
from dmq.errors import CorruptError, StorageError
from dmq.machines.producers.entries import Marker
from dmq.machines.producers.snapshot import ProducerSnapshot
from dmq.machines.producers.state import ProducerState
from dmq.records import MAGIC, BatchError, BatchHeader, Record, check_crc, iterate, scan
from dmq.storage.files import is_unreadable
from dmq.storage.producer_files import ProducerFiles
from dmq.storage.reading import FileSlice
from dmq.types import Position

LOAD_BYTES = 8 * 1024 * 1024
"""Read in steps of this size."""
INLINE_BYTES = 1024 * 1024
"""A log that is no longer is read at once, in the loop."""
COMMIT_MARKER = 1
_MARKER_KEY = struct.Struct(">hh")  # version, type
_MARKER_VALUE = struct.Struct(">hi")  # version, coordinator epoch


class Seen(NamedTuple):
    """A batch of a producer with an id, and what it says if it ends a transaction."""

    header: BatchHeader
    marker: Marker | None


class Piece(NamedTuple):
    """What a step read."""

    seen: list[Seen]
    size: int
    """Bytes of whole batches."""
    next_offset: int


def look_at(data: bytes, start: int) -> Piece:
    """The batches of producers with ids, in order, from the one that holds `start`; for a thread.

    Raises RotError if it is not there, or one behind it is not what was written.
    """
    seen: list[Seen] = []
    size, following = 0, start
    for position, header in scan(data):
        is_next = header.base_offset == following or (not size and header.base_offset < start)
        is_good = header.magic == MAGIC and following < header.next_offset
        if not (is_next and is_good and check_crc(data, position, header)):
            raise RotError(following)
        size, following = position + header.size, header.next_offset
        if header.producer_id >= 0:
            marker = _marker_of(data, position, header) if header.is_control else None
            seen.append(Seen(header, marker))
    if not size:
        raise RotError(start)
    return Piece(seen, size, following)


def _marker_of(data: bytes, position: int, header: BatchHeader) -> Marker | None:
    """What a control batch says; None if it ends no transaction."""
    try:
        return _marker_in(iterate(data, position, header))
    except BatchError:
        return None  # It is as it was written: a foreign or a later broker's.


def _marker_in(records: Iterable[Record]) -> Marker | None:
    for record in records:
        key, value = record.key or b"", record.value or b""
        if len(key) >= _MARKER_KEY.size and len(value) >= _MARKER_VALUE.size:
            kind, epoch = _MARKER_KEY.unpack_from(key)[1], _MARKER_VALUE.unpack_from(value)[1]
            if kind <= COMMIT_MARKER:
                return Marker(kind == COMMIT_MARKER, epoch)
    return None


Work = Callable[[], Piece | ProducerSnapshot | None]


class Load:
    """See the module. `end`: batches from there on are none of ours."""

    __slots__ = (
        "_at",
        "_end",
        "_expiration_ms",
        "_files",
        "_held",
        "_held_at",
        "_held_to",
        "_is_of_held",
        "_replica",
        "_saved",
        "_state",
        "is_small",
        "log",
    )

    def __init__(
        self, replica: Replica, expiration_ms: int, end: int, files: ProducerFiles | None
    ) -> None:
        self._replica = replica
        self.log = replica.log
        """The log that it reads; the replica may have begun another one since."""
        self._expiration_ms = expiration_ms
        self._state = ProducerState(expiration_ms=expiration_ms)
        self._end = end
        self._files = files
        first = first_offset(replica)
        saved = None if files is None else files.offset(replica.log.uid)
        if files is not None and saved is not None and saved < first:
            # Something is missing between the two: of a producer that wrote in the gap it would
            # tell an old sequence.
            files.forget(replica.log.uid)
            saved = None
        self._saved = saved
        """A snapshot that is to be read first; None: there is none, or it was."""
        self._at = first if saved is None else saved
        self._held: list[FileSlice] = []
        """What is no part of the log any more, and to be read first."""
        self._held_at = self._held_to = -1
        self._is_of_held = False
        """Whether the step under way reads what is held."""
        self.is_small = saved is None and replica.log.size_bytes <= INLINE_BYTES

    def hold(self, log_start: int) -> None:
        """The log is about to begin at `log_start`: keep hold of what is not read yet below that."""
        try:
            self._hold(log_start)
        except OSError:
            self._begin_again()

    def _hold(self, log_start: int) -> None:
        start = max(self._at, self._held_to)
        if start >= log_start:
            return
        if not self._held:
            self._held_at = start
        try:
            self._held += self._replica.log.read_removed(start, log_start)
            self._held_to = log_start
        except StorageError:
            self._begin_again()

    def next_step(self) -> Work | None:
        """What is to be done next; None: all is read. Raises OSError or StorageError."""
        self._hold(self._replica.log_start_offset)  # Files below it may have been kept for us.
        if self._saved is not None:
            return self._read_saved
        self._is_of_held = bool(self._held)
        if self._held:
            return partial(_read_some, self._held[0], self._held_at)
        self._at = max(self._at, self._replica.log_start_offset)
        log = self._replica.log
        end = min(self._end, log.plain_from)
        if self._at >= end:
            return None  # Behind it nobody with an id has written.
        slices = log.read(self._at, LOAD_BYTES, end, whole_first_batch=True)
        if not slices:
            return None  # Compaction left nothing between here and the end.
        return partial(look_into, slices, self._at)

    def take(self, found: Piece | ProducerSnapshot | None) -> None:
        """What the step found."""
        if isinstance(found, Piece):
            self._take_piece(found)
        elif self._is_of_held:
            self._begin_again()
        else:
            self._take_saved(found)

    @property
    def read_to(self) -> int:
        """Up to where it has read, at its end."""
        return max(self._at, self._end)

    def finish(self) -> ProducerState:
        self._state.trim(self._replica.log_start_offset)
        self._state.committed(self._replica.core.commit)
        return self._state

    # --- the snapshot

    def _read_saved(self) -> ProducerSnapshot | None:
        """For a thread. None: it is no good. Raises OSError."""
        assert self._files is not None
        assert self._saved is not None
        return read_snapshot(self._files, self._replica.log.uid, self._saved)

    def _take_saved(self, found: ProducerSnapshot | None) -> None:
        self._saved = None
        if found is not None and self._fits(found.position):
            self._state.restore(found)
            return
        assert self._files is not None
        self._files.forget(self._replica.log.uid)
        self._begin_again()

    def _begin_again(self) -> None:
        """With what the log itself has: what came before is lost, or in doubt."""
        self._saved = None
        self._held.clear()
        self._held_to = -1
        self._state = ProducerState(expiration_ms=self._expiration_ms)
        self._at = self._replica.log_start_offset

    def _fits(self, position: Position) -> bool:
        """Whether it speaks of this log, and nothing is missing between the two: of a producer that
        wrote in the gap it would tell an old sequence."""
        log = self._replica.log
        is_joined = self._held_to >= log.log_start or position.offset >= log.log_start
        return (
            is_joined
            and position.offset <= log.end_offset
            and log.marks.has(position, log.end_offset, log.log_start)
        )

    # --- the log

    def _take_piece(self, piece: Piece) -> None:
        if self._is_of_held and self._held:
            held, self._held_at = self._held.pop(0), piece.next_offset
            if piece.size < len(held):
                self._held.insert(0, held.part(piece.size, len(held) - piece.size))
        known, self._at = self._at, max(self._at, piece.next_offset)
        marks, replica = self._replica.log.marks, self._replica
        for header, marker in piece.seen:
            if header.next_offset <= known:
                continue  # It was held while it was on its way here.
            mark = marks.at(header.base_offset)
            position = Position(mark.epoch, mark.change, header.next_offset)
            self._state.appended(header, position, marker)
            if header.next_offset <= replica.high_watermark:
                self._state.committed(position)


def read_snapshot(files: ProducerFiles, uid: int, offset: int) -> ProducerSnapshot | None:
    """What a snapshot says; None if it is no good, or not there. Raises OSError if there is no way to
    tell, as without a descriptor: who gave it up then would forget what retention took from the log."""
    try:
        return ProducerSnapshot.decode(files.read(uid, offset))
    except (CorruptError, FileNotFoundError):
        return None
    except OSError as error:
        if is_unreadable(error):
            return None
        raise


def first_offset(replica: Replica) -> int:
    """Where the files begin: at the log's start, or before it."""
    return min(replica.log.segments_list[0].base, replica.log_start_offset)


def look_into(slices: list[FileSlice], start: int) -> Piece:
    """As `look_at`, with bytes that are still to be read."""
    return look_at(bytes_of(slices, start), start)


def _read_some(held: FileSlice, start: int) -> Piece | None:
    """Some whole batches of a slice; None if its bytes are bad: the log begins behind them, so nobody
    has to mend them."""
    size = LOAD_BYTES
    while True:
        try:
            return look_into([held.part(0, min(size, len(held)))], start)
        except RotError as error:
            if error.offset > start or size >= len(held):
                return None
        size *= 2  # Perhaps a batch that is larger.
