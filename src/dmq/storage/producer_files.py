"""Files of what partitions know of their producers: `producers/<uid>-<offset>.snap`, one for each log.

Derived, never truth: whoever reads one checks its sum and whether its position is in the log, and does
without it if not. Named by the log's uid, which is never given twice, and the offset that it speaks of.
Written whole under another name, synced, then renamed: a crash leaves the old one or the new one.

`read` and `write` wait for the disk and are for a worker; the rest belongs to the loop. Called by the
broker's snapshots of producers.
"""

import contextlib
from collections.abc import Container

from dmq.errors import StorageError
from dmq.storage.files import Files

DIRECTORY = "producers"
_SUFFIX = "snap"


class ProducerFiles:
    """The newest snapshot of each log, by its uid."""

    def __init__(self, files: Files) -> None:
        """Looks what is there. Raises OSError."""
        self._files = files
        self._offsets: dict[int, int] = {}
        for name in files.list(DIRECTORY):
            found = _parse(name)
            if found is not None:
                uid, offset = found
                self._offsets[uid] = max(offset, self._offsets.get(uid, -1))
        newest = {_name(*item) for item in self._offsets.items()}
        for name in files.list(DIRECTORY):
            if name not in newest:  # Of an older time, or unfinished when the process ended.
                files.unlink(f"{DIRECTORY}/{name}")

    def offset(self, uid: int) -> int | None:
        """Up to where the log's snapshot speaks; None: there is none."""
        return self._offsets.get(uid)

    def read(self, uid: int, offset: int) -> bytes:
        """Raises OSError; FileNotFoundError if a newer one took its place."""
        file = self._files.open(f"{DIRECTORY}/{_name(uid, offset)}")
        return file.read_at(0, file.size())

    def write(self, uid: int, offset: int, data: bytes) -> None:
        """Durably; `written` is to be called in the loop then. Raises StorageError or OSError."""
        files = self._files
        files.make_dir(DIRECTORY)
        temporary = f"{DIRECTORY}/{uid}-{offset}.tmp"
        try:
            file = files.open(temporary, create=True)
            file.write_at(0, [data])
            file.sync()
            files.rename(temporary, f"{DIRECTORY}/{_name(uid, offset)}")
            files.sync_dir(DIRECTORY)
        except OSError as error:
            with contextlib.suppress(OSError):
                files.unlink(temporary)
            raise StorageError(f"a snapshot of producers can't be written: {error}") from error

    def written(self, uid: int, offset: int) -> None:
        """`write` is done: the snapshot before goes."""
        before = self._offsets.get(uid)
        self._offsets[uid] = offset
        if before is not None and before != offset:
            self._unlink(uid, before)

    def forget(self, uid: int) -> None:
        """The log begins anew, or its snapshot is no good."""
        offset = self._offsets.pop(uid, None)
        if offset is not None:
            self._unlink(uid, offset)

    def keep_only(self, uids: Container[int]) -> None:
        """Logs that are not among these are gone."""
        for uid in [uid for uid in self._offsets if uid not in uids]:
            self.forget(uid)

    def _unlink(self, uid: int, offset: int) -> None:
        with contextlib.suppress(OSError):  # It stays until the next start, and harms nobody.
            self._files.unlink(f"{DIRECTORY}/{_name(uid, offset)}")


def _name(uid: int, offset: int) -> str:
    return f"{uid}-{offset:020d}.{_SUFFIX}"


def _parse(name: str) -> tuple[int, int] | None:
    stem, _, suffix = name.partition(".")
    uid, _, offset = stem.partition("-")
    if suffix != _SUFFIX or not (uid.isdigit() and offset.isdigit()):
        return None
    return int(uid), int(offset)
