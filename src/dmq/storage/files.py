"""The operating system, as little of it as storage needs. Nothing else in storage calls it.

`Files` is a data directory, `File` an open file in it; names are relative, with "/" between
parts. Reads and writes go to the page cache and return at once. What blocks (`sync`, `sync_dir`,
`sync_all`) is safe to call in a worker thread. Errors are OSError, and are judged by the callers:
here nothing is retried or hidden. `tests/fakes/disk.py` is the other implementation.
"""

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import re
import sys
import uuid
from collections.abc import Sequence
from typing import Protocol

Buffer = bytes | bytearray | memoryview

IOV_MAX = 1024
"""Linux' limit on buffers per vectored write."""

_PROBE_STRIDE = 128 * 1024
_PROBE_BYTES = 1

_libc = ctypes.CDLL(None, use_errno=True)
_FALLOC_KEEP_SIZE = 1
_SYNC_RANGE_WRITE = 2
_SYNC_RANGE_WAIT = 1 | 2 | 4
_RWF_DONTCACHE = 0x80
"""`os` has no name for it yet."""


_UNREADABLE = (errno.EIO, errno.EBADMSG, errno.EUCLEAN)
SECTOR_BYTES = 4096
"""What the page cache reads at once: if a part of it can't be read, nothing of it can."""


def is_unreadable(error: BaseException | None) -> bool:
    """Whether the disk gives bytes not back, which is as if they had rotted. Whatever else keeps one
    from reading, a lack of descriptors say, tells nothing of the bytes."""
    return isinstance(error, OSError) and error.errno in _UNREADABLE


def read_around(file: "File", position: int, length: int) -> bytes:
    """The bytes at `position`, with zeros where the disk gives none back."""
    length = min(length, max(file.size() - position, 0))
    try:
        return file.read_at(position, length)
    except OSError as error:
        if not is_unreadable(error):
            raise
    middle = (position + length // 2) // SECTOR_BYTES * SECTOR_BYTES
    if not position < middle < position + length:
        middle = position + SECTOR_BYTES - position % SECTOR_BYTES
        if middle >= position + length:
            return bytes(length)
    first = read_around(file, position, middle - position)
    return first + read_around(file, middle, position + length - middle)


def is_readable(file: "File", position: int, length: int) -> bool:
    """Whether the disk gives all sectors back that have a part of this."""
    start = position // SECTOR_BYTES * SECTOR_BYTES
    stop = -(-(position + length) // SECTOR_BYTES) * SECTOR_BYTES
    try:
        file.read_at(start, stop - start)
    except OSError as error:
        if not is_unreadable(error):
            raise
        return False
    return True


def _may_drop(release: str) -> bool:
    """Whether this kernel lets go of pages as it should. From Linux 6.14 on some do it, but before 6.16
    one that was written again in the meantime could go with what was written."""
    numbers = re.match(r"(\d+)\.(\d+)", release)
    return numbers is not None and tuple(map(int, numbers.groups())) >= (6, 16)


_MAY_DROP = sys.platform == "linux" and _may_drop(os.uname().release)


def _split(parts: Sequence[Buffer], size: int) -> tuple[list[Buffer], list[Buffer]]:
    """The first so many bytes of them, and the others."""
    whole, rest = list[Buffer](), list[Buffer]()
    for part in parts:
        if size >= len(part):
            whole.append(part)
        elif size <= 0:
            rest.append(part)
        else:
            whole.append(memoryview(part)[:size])
            rest.append(memoryview(part)[size:])
        size -= len(part)
    return whole, rest


class File(Protocol):
    """An open file; it closes when the last reference to it goes."""

    name: str

    def fileno(self) -> int: ...
    def read_at(self, position: int, length: int) -> bytes: ...
    def write_at(
        self, position: int, parts: Sequence[Buffer], *, is_cached: bool = True
    ) -> None: ...
    def size(self) -> int: ...
    def cut(self, size: int) -> None: ...
    def allocate(self, size: int) -> None: ...
    def reserve(self, size: int) -> bool: ...
    def start_sync(self, position: int = 0, length: int = 0, *, waits: bool = False) -> None: ...
    def sync(self) -> None: ...
    def forget_cache(self) -> None: ...
    def is_cached(self, position: int, length: int) -> bool: ...
    def is_same(self, other: "File") -> bool: ...


class Files(Protocol):
    """A data directory."""

    root: str

    def lock(self) -> None: ...
    def unlock(self) -> None: ...
    def open(self, name: str, *, create: bool = False) -> File: ...
    def exists(self, name: str) -> bool: ...
    def list(self, directory: str) -> list[str]: ...
    def sizes(self, directory: str) -> dict[str, int]: ...
    def make_dir(self, name: str) -> None: ...
    def remove_dir(self, name: str) -> None: ...
    def unlink(self, name: str) -> None: ...
    def rename(self, old: str, new: str) -> None: ...
    def sync_dir(self, name: str) -> None: ...
    def sync_all(self) -> None: ...
    def free_bytes(self) -> int: ...
    def boot_id(self) -> uuid.UUID: ...
    def new_id(self) -> uuid.UUID: ...


class OsFile:
    """A file of the operating system."""

    __slots__ = ("_fd", "_may_drop", "name")

    def __init__(self, name: str, fd: int) -> None:
        self.name = name
        self._fd = fd
        self._may_drop = _MAY_DROP

    def __del__(self) -> None:
        # By reference count: a slice in flight keeps its file open, whoever lets go of it first.
        os.close(self._fd)

    def fileno(self) -> int:
        return self._fd

    def read_at(self, position: int, length: int) -> bytes:
        """The bytes at `position`; fewer than asked only at the end of the file."""
        data = os.pread(self._fd, length, position)
        if len(data) == length or not data:
            return data
        pieces = [data]
        got = len(data)
        while got < length:
            piece = os.pread(self._fd, length - got, position + got)
            if not piece:
                break
            pieces.append(piece)
            got += len(piece)
        return b"".join(pieces)

    def write_at(self, position: int, parts: Sequence[Buffer], *, is_cached: bool = True) -> None:
        """Write all of `parts` one after the other. A failure may leave any prefix behind.

        Without `is_cached` the system begins at once to put them on the disk and then lets their
        pages go, where it can: for bytes that nobody is going to read soon. The last page stays if it is
        not full: who writes on would have to read it first.
        """
        if not is_cached and self._may_drop:
            self._write_dropping(position, parts)
            return
        if len(parts) == 1:
            if os.pwrite(self._fd, parts[0], position) != len(parts[0]):
                self._write_rest(position, parts, 0)
            return
        self._write_parts(position, parts, 0)

    def _write_parts(self, position: int, parts: Sequence[Buffer], flags: int) -> None:
        for first in range(0, len(parts), IOV_MAX):
            some = parts[first : first + IOV_MAX]
            length = sum(map(len, some))
            written = os.pwritev(self._fd, some, position, flags)
            if written != length:
                self._write_rest(position, some, written)
            position += length

    def _write_dropping(self, position: int, parts: Sequence[Buffer]) -> None:
        size = sum(map(len, parts))
        whole, rest = _split(parts, size - (position + size) % mmap.PAGESIZE)
        try:
            self._write_parts(position, whole, _RWF_DONTCACHE)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
                raise
            self._may_drop = False  # A file system that does not know it.
            self._write_parts(position, whole, 0)
        self._write_parts(position + sum(map(len, whole)), rest, 0)

    def _write_rest(self, position: int, parts: Sequence[Buffer], written: int) -> None:
        rest = memoryview(b"".join(parts))
        while written < len(rest):
            more = os.pwrite(self._fd, rest[written:], position + written)
            if more == 0:
                raise OSError(errno.EIO, "write made no progress", self.name)
            written += more

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def cut(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def allocate(self, size: int) -> None:
        """Reserve blocks, so that later writes below `size` can't find the disk full."""
        os.posix_fallocate(self._fd, 0, size)

    def reserve(self, size: int) -> bool:
        """The same without making the file longer; False if the file system can't."""
        length = ctypes.c_int64(size)
        while _libc.fallocate(self._fd, _FALLOC_KEEP_SIZE, ctypes.c_int64(0), length) != 0:
            code = ctypes.get_errno()
            if code in (errno.EOPNOTSUPP, errno.ENOSYS):
                return False
            if code != errno.EINTR:
                raise OSError(code, os.strerror(code), self.name)
        return True

    def start_sync(self, position: int = 0, length: int = 0, *, waits: bool = False) -> None:
        """Let the disk begin with what `sync` will wait for (a length of 0: up to the end).

        Promises nothing: only `sync` does. With `waits` it returns when the disk has taken it, so
        that no more than that is in its queue. A failure is to be taken as one of `sync`, which
        need not tell of it a second time.
        """
        flags = _SYNC_RANGE_WAIT if waits else _SYNC_RANGE_WRITE
        start, size = ctypes.c_int64(position), ctypes.c_int64(length)
        if _libc.sync_file_range(self._fd, start, size, flags) != 0:
            code = ctypes.get_errno()
            if code not in (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP):
                raise OSError(code, os.strerror(code), self.name)

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def forget_cache(self) -> None:
        """Let clean pages go, so that the next read shows what the disk has."""
        os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def is_same(self, other: File) -> bool:
        """Whether it is the same file, though opened twice."""
        return os.path.sameopenfile(self._fd, other.fileno())

    def is_cached(self, position: int, length: int) -> bool:
        """Whether a read of this range will not wait for the disk (judged by samples)."""
        scratch = bytearray(_PROBE_BYTES)
        end = position + length
        places = [*range(position, end, _PROBE_STRIDE), end - 1] if length else []
        try:
            for place in places:
                os.preadv(self._fd, [scratch], place, os.RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError as error:
            if is_unreadable(error):
                return False  # Whoever reads it beside the loop will say so.
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise
        return True


_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_KEPT_OPEN = ("journal", "logs")
"""Directories that are synced again and again, and without which nothing goes on."""
_RESERVED_FDS = 4


class OsFiles:
    """A directory of the operating system; made if it is not there.

    Has a few descriptors in reserve: others may have taken all that the process may have when the
    journal needs its next file, or a directory must be synced, and then the broker would have to stop.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self._root_fd = -1
        self._lock_fd: int | None = None
        self._kept: dict[str, int] = {}
        self._reserve: list[int] = []
        os.makedirs(root, exist_ok=True)
        self._root_fd = os.open(root, _DIRECTORY_FLAGS)
        self._fill_reserve()

    def __del__(self) -> None:
        self.unlock()
        for fd in (self._root_fd, *self._kept.values(), *self._reserve):
            if fd >= 0:
                os.close(fd)

    def _fill_reserve(self) -> None:
        try:
            while len(self._reserve) < _RESERVED_FDS:
                self._reserve.append(os.dup(self._root_fd))
        except OSError:
            return  # With the next one that is needed.

    def _open_vital(self, path: str, flags: int) -> int:
        """As `os.open`, with one in reserve if there is no other descriptor; for any thread."""
        try:
            fd = os.open(path, flags, 0o644)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            try:
                spare = self._reserve.pop()
            except IndexError:
                raise error from None
            os.close(spare)
            return os.open(path, flags, 0o644)
        self._fill_reserve()
        return fd

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def lock(self) -> None:
        """Keep other processes out. Raises BlockingIOError if one is in."""
        fd = os.open(self._path("lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise
        self._lock_fd = fd

    def unlock(self) -> None:
        fd, self._lock_fd = self._lock_fd, None
        if fd is not None:
            os.close(fd)

    def open(self, name: str, *, create: bool = False) -> OsFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        path = self._path(name)
        is_vital = name.startswith("journal/")
        fd = self._open_vital(path, flags) if is_vital else os.open(path, flags, 0o644)
        return OsFile(name, fd)

    def exists(self, name: str) -> bool:
        return os.path.lexists(self._path(name))

    def list(self, directory: str) -> list[str]:
        """Names in a directory, in order; none if it is not there."""
        try:
            return sorted(os.listdir(self._path(directory)))
        except FileNotFoundError:
            return []

    def sizes(self, directory: str) -> dict[str, int]:
        """Names and sizes of the files in a directory; none if it is not there."""
        try:
            with os.scandir(self._path(directory)) as entries:
                found = {e.name: e.stat(follow_symlinks=False).st_size for e in entries}
        except FileNotFoundError:
            return {}
        return dict(sorted(found.items()))

    def make_dir(self, name: str) -> None:
        """Make one directory; nothing happens if it is there."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(self._path(name))
        if name in _KEPT_OPEN and name not in self._kept:
            self._kept[name] = os.open(self._path(name), _DIRECTORY_FLAGS)

    def remove_dir(self, name: str) -> None:
        os.rmdir(self._path(name))

    def unlink(self, name: str) -> None:
        os.unlink(self._path(name))

    def rename(self, old: str, new: str) -> None:
        os.rename(self._path(old), self._path(new))

    def sync_dir(self, name: str) -> None:
        known = self._root_fd if name == "." else self._kept.get(name)
        if known is not None:
            os.fsync(known)
            return
        fd = self._open_vital(self._path(name), _DIRECTORY_FLAGS)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
            self._fill_reserve()

    def sync_all(self) -> None:
        """Everything dirty on this file system, ours or not."""
        if _libc.syncfs(self._root_fd) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), self.root)

    def free_bytes(self) -> int:
        stat = os.statvfs(self._root_fd)
        return stat.f_bavail * stat.f_frsize

    def boot_id(self) -> uuid.UUID:
        """Changes when the kernel starts, and the page cache with it; zero if it can't be read."""
        try:
            with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
                return uuid.UUID(file.read().strip())
        except (OSError, ValueError):
            return uuid.UUID(int=0)

    def new_id(self) -> uuid.UUID:
        return uuid.uuid4()
