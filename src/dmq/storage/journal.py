"""The write-ahead journal: record format, writer, file recycling, reader.

    magic 4 · version 2 · flags 2 · file number 4 · oldest needed file 4 · seq 8 · durable seq 8
    · body length 4 · body crc 4 · header crc 4 · body

Both crcs are seeded with the directory id, the body's also with file number and seq, so bytes of
a file's former life, of another directory, or made by a client to look like a record never pass.
One turn is one record; a record is atomic. A file that durable facts no longer need is named so
in the next record; when that is durable the file becomes a spare, is renamed to the next number
and overwritten in place.

Knows nothing of logs but which file each one still needs. Called by store and recovery.
"""

import re
import struct
from collections.abc import Iterator
from typing import NamedTuple
from uuid import UUID

from crc32c import crc32c

from dmq.errors import CorruptError, FatalStorageError, StorageError
from dmq.storage.files import Buffer, File, Files, is_readable, read_around

DIRECTORY = "journal"
MAGIC = b"DMQJ"
VERSION = 1
FLAG_OPEN = 1
FLAG_CLOSE = 2

_HEADER = struct.Struct(">4sHHIIQQII")
_NUMBER = _CRC = struct.Struct(">I")
HEADER_SIZE = _HEADER.size + _CRC.size
_SEED = struct.Struct(">IQ")

COPY_BYTES_MAX = 2048
"""Below this a copy is cheaper than one more buffer in the vectored write."""
SPARES_MIN = 2
"""Kept for epochs, votes, cuts and deletions on a full disk."""
_READ_BYTES = 4 * 1024 * 1024
_FIRST_READ_BYTES = 64 * 1024


def salt_of(directory_id: UUID) -> int:
    """The seed of every crc in this directory's journal."""
    return int(crc32c(directory_id.bytes))


def file_name(number: int) -> str:
    return f"{DIRECTORY}/{number:010d}"


def file_number(name: str) -> int | None:
    """The number of a journal file by its name in the directory; None for any other."""
    return int(name) if len(name) == 10 and name.isdigit() else None


class Body:
    """Collects the items of one record as buffers, without joining large ones."""

    __slots__ = ("_tail", "length", "parts")

    def __init__(self) -> None:
        self.parts: list[Buffer] = []
        self.length = 0
        self._tail = bytearray()

    def add(self, data: Buffer) -> None:
        """Append bytes; large ones are referred to, so they must not change until written."""
        length = len(data)
        self.length += length
        if length < COPY_BYTES_MAX:
            self._tail += data
            return
        if self._tail:
            self.parts.append(self._tail)
            self._tail = bytearray()
        self.parts.append(data)

    def finish(self) -> list[Buffer]:
        if self._tail:
            self.parts.append(self._tail)
            self._tail = bytearray()
        return self.parts


class JournalFile:
    """One file in use."""

    __slots__ = ("file", "last_seq", "needed_by", "number", "released_at")

    def __init__(self, number: int, file: File, last_seq: int) -> None:
        self.number = number
        self.file = file
        self.last_seq = last_seq
        self.needed_by: dict[int, None] = {}
        """Logs (uids; 0 is the broker itself) that a recovery could not rebuild without it."""
        self.released_at = -1


class Journal:
    """The writer. `files` are in use, oldest first; the last one is being written."""

    def __init__(self, files: Files, file_bytes: int, bytes_max: int, salt: int) -> None:
        self._disk = files
        self._file_bytes = file_bytes
        self._file_count_max = max(bytes_max // file_bytes, SPARES_MIN + 2)
        self._salt = salt
        self.files: list[JournalFile] = []
        self.spares: list[str] = []
        self._freed: list[JournalFile] = []
        self._needs: dict[int, JournalFile] = {}
        self.next_number = 1
        self.seq = 0
        self.durable_seq = 0
        self.position = 0
        self.is_directory_dirty = False
        self.is_short = False
        """The disk had no room for the spares: only what was flushed can give files back."""

    @property
    def pressure(self) -> float:
        """How much of the space that may be used is used; may exceed 1."""
        if self.is_short:
            return 1.0
        full = (len(self.files) - 1 + len(self._freed)) * self._file_bytes + self.position
        return full / ((self._file_count_max - SPARES_MIN) * self._file_bytes)

    # ---- writing

    def write(self, body: Body, flags: int = 0) -> JournalFile:
        """Write one record into the page cache. Raises FatalStorageError if that fails."""
        size = HEADER_SIZE + body.length
        if not self.files or (self.position and self.position + size > self._file_bytes):
            self.roll(size)
        current = self.files[-1]
        seq = self.seq + 1
        parts = body.finish()
        crc = crc32c(_SEED.pack(current.number, seq), self._salt)
        for part in parts:
            crc = crc32c(part, crc)
        header = _HEADER.pack(
            MAGIC,
            VERSION,
            flags,
            current.number,
            self.files[0].number,
            seq,
            self.durable_seq,
            body.length,
            crc,
        )
        header += _CRC.pack(crc32c(header, self._salt))
        try:
            current.file.write_at(self.position, [header, *parts])
        except OSError as error:
            raise FatalStorageError(f"journal write failed: {error}") from error
        self.seq = seq
        current.last_seq = seq
        self.position += size
        return current

    def make_room(self, length: int) -> bool:
        """Whether a record of this length finds room without touching the last spares."""
        size = HEADER_SIZE + length
        if self.files and self.position + size <= self._file_bytes:
            return True
        if size <= self._file_bytes and len(self.spares) > SPARES_MIN:
            return True
        try:
            self.add_spare(size)
        except StorageError:
            return False
        return True

    def roll(self, size: int = 0) -> None:
        """Go on in the next file, which has room for a record of `size`: a spare, or a new one."""
        number = self.next_number
        name = file_name(number)
        size = max(size, self._file_bytes)
        try:
            if self.spares:
                self._disk.rename(self.spares.pop(), name)
            file = self._disk.open(name, create=True)
            if file.size() > size:
                file.cut(size)
            elif file.size() < size:
                file.allocate(size)
        except OSError as error:
            raise FatalStorageError(f"no journal file to go on in: {error}") from error
        self.next_number = number + 1
        self.is_directory_dirty = True
        self.files.append(JournalFile(number, file, self.seq))
        self.position = 0

    def roll_unless_fresh(self) -> None:
        """Before a clean end: what the next start must read should be all that its file has."""
        if self.position > _FIRST_READ_BYTES:
            self.roll()

    def keep_spares(self) -> None:
        """Have the spares that a full disk will need, as long as it is not full."""
        try:
            while len(self.spares) < SPARES_MIN:
                self.add_spare()
        except StorageError:
            self.is_short = True
        else:
            self.is_short = False

    def add_spare(self, size: int = 0) -> None:
        """Make one more spare file, the next to be used. Raises StorageError if the disk is full."""
        name = self._new_name()
        try:
            file = self._disk.open(name, create=True)
            try:
                file.allocate(max(size, self._file_bytes))
            except OSError:
                self._disk.unlink(name)
                raise
        except OSError as error:
            raise StorageError(f"no room for a spare journal file: {error}") from error
        self.spares.append(name)

    def _new_name(self) -> str:
        """A name that no spare of this or a former life has."""
        number = 1
        while self._disk.exists(f"{DIRECTORY}/spare-{number}"):
            number += 1
        return f"{DIRECTORY}/spare-{number}"

    # ---- durable facts

    def became_durable(self, seq: int) -> None:
        """The record `seq` is on disk, and with it the name of its file."""
        assert self.durable_seq <= seq <= self.seq
        self.durable_seq = seq
        self.is_directory_dirty = False
        while self._freed and self._freed[0].released_at < seq:
            self.spares.append(file_name(self._freed.pop(0).number))
        # A file that was written before is overwritten in a fraction of the time that a new one
        # takes: a few that a busy moment made are kept.
        while len(self.spares) > 2 * SPARES_MIN and self._file_count() > self._file_count_max:
            self._disk.unlink(self.spares.pop())

    def _file_count(self) -> int:
        return len(self.files) + len(self._freed) + len(self.spares)

    def noted_state(self, uid: int, as_of: int, file: JournalFile) -> None:
        """A durable record in `file` has the whole state of `uid` at `as_of`."""
        self.forget(uid)
        # What came after as_of is still needed, and the note itself.
        needed = next((f for f in self.files if f.last_seq > as_of or f is file), file)
        needed.needed_by[uid] = None
        self._needs[uid] = needed

    def forget(self, uid: int) -> None:
        """Durably dropped."""
        needed = self._needs.pop(uid, None)
        if needed is not None:
            del needed.needed_by[uid]

    def release(self) -> None:
        """Let go of the oldest files that nobody needs; they are reused one durable record later."""
        while len(self.files) > 1 and not self.files[0].needed_by:
            file = self.files.pop(0)
            file.released_at = self.seq
            self._freed.append(file)


# ---- reading


class Place(NamedTuple):
    """Where a good record lies, and what its header says."""

    number: int
    position: int
    """Of its body, in the file."""
    length: int
    seq: int
    durable_seq: int
    oldest: int
    flags: int

    @property
    def end(self) -> int:
        return self.position + self.length


def read_header(buf: Buffer, position: int, number: int, salt: int) -> tuple[Place, int] | None:
    """The record header at `position` of `buf` (place relative to it) and the body's crc.

    None if it is none of this file's. Raises CorruptError if a newer dmq wrote it.
    """
    if position + HEADER_SIZE > len(buf):
        return None
    raw = bytes(buf[position : position + _HEADER.size])
    (header_crc,) = _CRC.unpack_from(buf, position + _HEADER.size)
    if raw[:4] != MAGIC or crc32c(raw, salt) != header_crc:
        return None
    _, version, flags, in_file, oldest, seq, durable, length, crc = _HEADER.unpack(raw)
    if version > VERSION:
        raise CorruptError(f"journal version {version} is newer than this dmq ({VERSION})")
    if in_file != number:
        return None
    return Place(number, position + HEADER_SIZE, length, seq, durable, oldest, flags), crc


def first_number(file: File, salt: int) -> int:
    """The file number in the header that the file begins with, whatever its name is now; 0: none."""
    raw = read_around(file, 0, HEADER_SIZE)
    if len(raw) < HEADER_SIZE or raw[:4] != MAGIC:
        return 0
    (header_crc,) = _CRC.unpack_from(raw, _HEADER.size)
    if crc32c(raw[: _HEADER.size], salt) != header_crc:
        return 0
    number: int = _HEADER.unpack_from(raw)[3]
    return number


def is_body_good(body: Buffer, number: int, seq: int, crc: int, salt: int) -> bool:
    return bool(crc32c(body, crc32c(_SEED.pack(number, seq), salt)) == crc)


def read_records(
    file: File, number: int, salt: int, position: int = 0
) -> Iterator[tuple[Place, memoryview]]:
    """The good records from `position` on up to the first bad one, with their bodies.

    Bytes that the disk gives not back are bad; those that no record has keep nobody from starting.
    """
    start, view = position, memoryview(read_around(file, position, _FIRST_READ_BYTES))
    before: int | None = None
    while True:
        if position - start + HEADER_SIZE > len(view):
            start, view = position, memoryview(read_around(file, position, _READ_BYTES))
        found = read_header(view, position - start, number, salt)
        if found is None:
            return
        place, crc = found
        if before is not None and place.seq != before + 1:
            return
        if place.end > len(view):
            more = max(_READ_BYTES, HEADER_SIZE + place.length)
            start, view = position, memoryview(read_around(file, position, more))
            place = place._replace(position=HEADER_SIZE)
            if place.end > len(view):
                return
        body = view[place.position : place.end]
        if not is_body_good(body, number, place.seq, crc, salt):
            return
        before = place.seq
        position = start + place.end
        yield place._replace(position=start + place.position), body


def find_record(file: File, number: int, salt: int, position: int, seq: int) -> Place | None:
    """A good record of this file with a seq above `seq` anywhere beyond `position`."""
    rest = read_around(file, position, file.size())
    # A file that was used before is full of headers with its old number: they are not worth a look.
    begins = re.compile(MAGIC + rb"(?=.{4}%b)" % re.escape(_NUMBER.pack(number)), re.DOTALL)
    for match in begins.finditer(rest):
        found = read_header(rest, match.start(), number, salt)
        if found is not None:
            place, crc = found
            body = memoryview(rest)[place.position : place.end]
            is_good = len(body) == place.length and is_body_good(body, number, place.seq, crc, salt)
            if is_good and place.seq > seq:
                return place._replace(position=position + place.position)
    return None


def is_hidden(file: File, number: int, salt: int, position: int) -> bool:
    """Whether the disk gives nothing back where the next record is, or would be.

    One sector has many turns, and no record behind them tells of the last: they may have been promised.
    """
    if not is_readable(file, position, HEADER_SIZE):
        return True
    found = read_header(file.read_at(position, HEADER_SIZE), 0, number, salt)
    return found is not None and not is_readable(file, position + HEADER_SIZE, found[0].length)
