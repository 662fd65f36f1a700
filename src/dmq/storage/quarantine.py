"""Where the files of dropped logs wait before they are removed, and lost+found.

Deletion is an explicit, durable DROP; even then the files are only moved, and removed by a job
some time later. What nobody knows goes to lost+found and stays. Called by store and recovery.
"""

from dmq.storage.files import Files
from dmq.storage.log import Log
from dmq.storage.segment import SegmentFiles

DIRECTORY = "quarantine"
LOST = "lost+found"


class RemoveJob:
    """Removes one folder of a dropped log."""

    __slots__ = ("_files", "name")

    def __init__(self, files: Files, name: str) -> None:
        self._files = files
        self.name = name

    def run(self) -> None:
        """What can't be removed now is tried again after the next start."""
        try:
            for name in self._files.list(self.name):
                self._files.unlink(f"{self.name}/{name}")
            self._files.remove_dir(self.name)
        except OSError:
            return


class Quarantine:
    """Dropped logs' folders, and when each may go."""

    def __init__(self, files: Files, keep_ms: int) -> None:
        self._files = files
        self.keep_ms = keep_ms
        self._due: dict[str, int] = {}

    def adopt(self, now: int) -> None:
        """Folders of a former life."""
        for name in self._files.list(DIRECTORY):
            self._due[f"{DIRECTORY}/{name}"] = now + self.keep_ms

    def take(self, log: Log, pool: SegmentFiles, now: int) -> None:
        """Move a dropped log's folder here."""
        for segment in log.segments_list:
            pool.forget(segment)
        if self._files.exists(log.directory):
            try:
                name = move(self._files, log.directory, DIRECTORY, str(log.uid))
            except OSError:
                return  # It stays where it is; the next start knows that it was dropped.
            self._due[name] = now + self.keep_ms

    def due(self, now: int) -> list[RemoveJob]:
        ready = [name for name, at in self._due.items() if at <= now]
        for name in ready:
            del self._due[name]
        return [RemoveJob(self._files, name) for name in ready]

    def deadline(self) -> int | None:
        return min(self._due.values(), default=None)


def move(files: Files, old: str, directory: str, name: str) -> str:
    """Move a file or folder into `directory` under a name that is free there."""
    files.make_dir(directory)
    target, number = f"{directory}/{name}", 0
    while files.exists(target):
        number += 1
        target = f"{directory}/{name}.{number}"
    files.rename(old, target)
    return target
