"""Temporary data directories that `dmq up` could not remove because it was killed.

Owns their name and the judgement whether one is left over: it is ours, it is older than a start takes,
and nobody holds the lock of a broker in it. A lock says more than a process id, which another system
that shares the folder would not know. Called by `up` once its brokers are ready.
"""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

PREFIX = "dmq-up-"
AGE_MIN_S = 60.0
"""A broker locks its directory soon after the directory is made, but not at once."""


def new_directory() -> str:
    """A directory for one `dmq up`."""
    return tempfile.mkdtemp(prefix=PREFIX)


def remove(keep: str, folder: str | None = None) -> list[str]:
    """Remove what is left over; the names of it."""
    removed: list[str] = []
    for path in _ours(Path(folder or tempfile.gettempdir())):
        if str(path) != keep and not _is_used(path):
            shutil.rmtree(path, ignore_errors=True)
            removed.append(str(path))
    return removed


def _ours(folder: Path) -> Iterator[Path]:
    """Directories with our name and owner that have not been touched for a while."""
    oldest = time.time() - AGE_MIN_S
    for path in folder.glob(PREFIX + "*"):
        with suppress(OSError):  # It goes away just now.
            about = path.lstat()
            is_directory = path.is_dir() and not path.is_symlink()
            if is_directory and about.st_uid == os.getuid() and about.st_mtime < oldest:
                yield path


def _is_used(path: Path) -> bool:
    """Whether a broker has locked the directory, or one of those inside."""
    return any(_is_locked(lock) for lock in [path / "lock", *path.glob("broker-*/lock")])


def _is_locked(lock: Path) -> bool:
    try:
        fd = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # Who can't tell does not remove.
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False
