"""Files of a data directory, opened for reading only, for `dmq log dump`.

Owns the promise that a dump changes nothing: no lock is taken, no file is opened for writing, none
is made. A broker may be writing meanwhile. Implements the reading half of `storage.files.File`.
"""

import os
from pathlib import Path
from typing import cast

from dmq.storage.files import File


class ReadOnlyFile:
    """An open file that can't be written to."""

    __slots__ = ("_fd", "name")

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        fd = getattr(self, "_fd", None)
        if fd is not None:
            os.close(fd)

    def read_at(self, position: int, length: int) -> bytes:
        """The bytes at `position`; fewer only at the end of the file."""
        parts = []
        while length > 0:
            part = os.pread(self._fd, length, position)
            if not part:
                break
            parts.append(part)
            position += len(part)
            length -= len(part)
        return b"".join(parts)

    def size(self) -> int:
        """As it is now."""
        return os.fstat(self._fd).st_size


def open_to_read(path: Path) -> File:
    """The file for readers in `storage`, which ask for nothing but `read_at` and `size`."""
    return cast(File, ReadOnlyFile(path))
