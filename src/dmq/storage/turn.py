"""One turn: what all logs have to say, written as one journal record.

Gathers items and afterwork while the logs write their segments; knows nothing of what they mean.
The store makes it and ends it; a runtime calls `sync` in a worker thread in between. Large writes
wait for that thread too: they take longer than a sync of the journal, and there they take their
time beside the loop and while the disk is at work.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from dmq.errors import FatalStorageError, StorageError
from dmq.storage import distrust
from dmq.storage.files import Buffer, File, Files
from dmq.storage.journal import Body
from dmq.types import Position

if TYPE_CHECKING:
    from dmq.storage.log import Log


class Refusal(NamedTuple):
    """A log whose staged appends at and beyond `end` did not happen: definite."""

    log: "Log"
    end: Position
    error: StorageError


class Fact(NamedTuple):
    """Once the turn is durable, the journal has all of `uid` at `as_of` (None: it is dropped)."""

    uid: int
    as_of: int | None


class Turn:
    """A turn under way."""

    __slots__ = (
        "_disk",
        "_file",
        "_late",
        "after",
        "body",
        "facts",
        "flags",
        "is_forced",
        "logs",
        "now",
        "refused",
        "released",
        "seq",
        "stable",
        "sync_first",
        "takes_batches",
    )

    def __init__(self, now: int) -> None:
        self.now = now
        self.body = Body()
        self.flags = 0
        self.is_forced = False
        """Written even if it says nothing: the record that covers the one before."""
        self.takes_batches = True
        """False if the journal has room only for what must go on when the disk is full."""
        self.logs: list[Log] = []
        self.stable: list[Log] = []
        """Async logs whose stable end moved as soon as the turn was begun."""
        self.released: list[Log] = []
        """Async logs that held promises back for a flush, which this turn notes."""
        self.refused: list[Refusal] = []
        self.facts: list[Fact] = []
        self.after: list[Callable[[], None]] = []
        """What may touch files only when the turn is durable, in order."""
        self.seq = -1
        self._file: File | None = None
        self._disk: Files | None = None
        self._late: list[tuple[File, int, Sequence[Buffer]]] = []
        self.sync_first: dict[str, None] = {}
        """Directories with names that the record relies on."""

    @property
    def needs_sync(self) -> bool:
        """False if only async batches were written: then `end_turn` may follow at once."""
        return self._file is not None or bool(self._late)

    @property
    def has_record(self) -> bool:
        """Whether the journal speaks of it."""
        return self._file is not None

    def write_late(self, file: File, position: int, parts: Sequence[Buffer]) -> None:
        """Leave a write to `sync`. It can't be refused there: blocks for it must be reserved."""
        self._late.append((file, position, parts))

    def written(self, seq: int, file: File, disk: Files) -> None:
        """The record is in the page cache."""
        self.seq = seq
        self._file = file
        self._disk = disk

    def sync(self) -> None:
        """Make it durable; blocks, for a worker thread. Raises FatalStorageError."""
        if self._file is None:
            self._write_late()
            return
        assert self._disk is not None
        try:
            if self._late:
                self._file.start_sync()
                self._write_late()
            for name in self.sync_first:
                self._disk.sync_dir(name)
            self._file.sync()
        except OSError as error:
            distrust.note(self._disk)
            raise FatalStorageError(f"journal sync failed: {error}") from error

    def _write_late(self) -> None:
        for file, position, parts in self._late:
            try:
                file.write_at(position, parts)
            except OSError as error:
                # The record is out and may be durable already: the next start writes it.
                raise FatalStorageError(f"{file.name}: {error}") from error
