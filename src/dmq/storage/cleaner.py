"""Which logs to flush, when; what a flush syncs and what it notes. Frees the journal.

A flush takes the log as it is after the last durable turn, between turns; its job syncs every
segment written since the last flush and the directories; its note (STATE, or FLUSHED for an async
log that is merely due) goes out with a later turn. One flush at a time. The journal is cleaned
from half full on, oldest file first, a few logs at a time; from three quarters on, with more
files than `SYNC_FILES_MAX`, with one sync of the whole file system.

Starts no thread: a runtime runs the jobs. Called by store.
"""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from dmq.errors import FatalStorageError
from dmq.storage import distrust, items
from dmq.storage.files import File, Files
from dmq.storage.journal import Journal
from dmq.storage.log import LOGS, Log
from dmq.storage.segment import BadBatchError, save_index

CLEAN_FROM = 0.5
SYNC_ALL_FROM = 0.75
SLOW_FROM = 0.875
"""Producers are to be slowed from here on; at 1 they wait."""
QUEUE_BYTES = 8 * 1024 * 1024
"""What a flush has in the disk's queue at a time: a turn's sync waits behind no more than this."""
SYNC_FILES_MAX = 64
"""More files than this are cheaper to sync all at once, if the journal is pressed for room."""


class Job(Protocol):
    """Work that blocks: `run` in a worker thread, then `Store.done`."""

    def run(self) -> None: ...


class Note(NamedTuple):
    """What a flush will say in the journal."""

    log: Log | None
    """None: the broker's own state."""
    life: int
    as_of: int
    is_state: bool
    raw: bytes
    base: int = 0
    """Active segment, end offset and number of cuts when the flush began."""
    end_offset: int = 0
    cut_count: int = 0
    is_requested: bool = False
    """The log waits for this one (a change to sync)."""


class FlushJob:
    """Syncs files and directories; its notes may be written when `run` has returned."""

    __slots__ = ("_directories", "_disk", "_files", "is_whole_disk", "notes")

    def __init__(self, disk: Files) -> None:
        self._disk = disk
        self._files: list[tuple[File, int, int]] = []
        self._directories: dict[str, None] = {}
        self.is_whole_disk = False
        self.notes: list[Note] = []

    def add_file(self, file: File, start: int, end: int) -> None:
        """`start` to `end` is what is probably new in it; all of it is synced."""
        self._files.append((file, start, end))

    def add_directory(self, name: str) -> None:
        self._directories[name] = None

    @property
    def file_count(self) -> int:
        return len(self._files)

    def run(self) -> None:
        """Raises FatalStorageError: what is on disk is unknown then."""
        try:
            if self.is_whole_disk:
                self._disk.sync_all()
                return
            self._hand_over()
            for file, _, _ in self._files:
                file.sync()
            for name in self._directories:
                self._sync_directory(name)
        except OSError as error:
            distrust.note(self._disk)
            raise FatalStorageError(f"flush failed: {error}") from error

    def _hand_over(self) -> None:
        """Bring the bytes to the disk before the first sync: what the file system must commit for
        all these files is then committed once, not once for each."""
        queued = 0
        for file, start, end in self._files:
            for position in range(start, end, QUEUE_BYTES):
                length = min(QUEUE_BYTES, end - position)
                queued += length
                file.start_sync(position, length, waits=queued >= QUEUE_BYTES)
                queued %= QUEUE_BYTES

    def _sync_directory(self, name: str) -> None:
        try:
            self._disk.sync_dir(name)
        except FileNotFoundError:
            return  # The log was dropped meanwhile; its note will not be written.


class Cleaner:
    """Plans flushes; holds what is being flushed."""

    def __init__(self, files: Files, journal: Journal) -> None:
        self._files = files
        self._journal = journal
        self._running: FlushJob | None = None
        self._due: dict[Log, int] = {}
        """Async logs with unsynced bytes, by the time that the first was written."""
        self._requested: dict[Log, None] = {}
        self.notes: list[Note] = []
        """Flushed; to be written with the next turn."""

    def wrote(self, log: Log, now: int) -> None:
        """An async log has unsynced bytes."""
        self._due.setdefault(log, now)

    def request(self, log: Log) -> None:
        self._requested[log] = None

    def is_requested(self, log: Log) -> bool:
        """Whether a flush was asked for that has not begun yet."""
        return log in self._requested

    def is_flushing(self, log: Log) -> bool:
        """Whether what the log does not call unsynced any more may not be on disk yet."""
        return self._running is not None and any(n.log is log for n in self._running.notes)

    def forget(self, log: Log) -> None:
        self._due.pop(log, None)
        self._requested.pop(log, None)

    def deadline(self) -> int | None:
        """When the next async log is due; None if none is or a flush is running."""
        if self._running is not None or not self._due:
            return None
        return min(since + log.settings.flush_ms for log, since in self._due.items())

    def plan(self, now: int, broker_state: items.Open, logs: dict[int, Log]) -> FlushJob | None:
        """The next flush, if one is due; only between turns."""
        if self._running is not None or self.notes:
            return None
        job = FlushJob(self._files)
        for log in [*self._requested]:
            self._take(job, log, is_state=True, is_requested=True)
        for log in [x for x, since in self._due.items() if since + x.settings.flush_ms <= now]:
            self._take(job, log, is_state=False)
        if self._journal.pressure >= CLEAN_FROM:
            self._take_oldest(job, broker_state, logs)
        if not job.notes:
            return None
        self._running = job
        return job

    def _take_oldest(self, job: FlushJob, broker_state: items.Open, logs: dict[int, Log]) -> None:
        """Logs that hold the oldest journal files, a few; all of them if room is short."""
        is_pressed = self._journal.pressure >= SYNC_ALL_FROM
        taken = {note.log for note in job.notes}
        for file in self._journal.files[:-1]:
            for uid in [*file.needed_by]:
                if uid == 0:
                    self._note_broker(job, broker_state)
                elif uid in logs and logs[uid] not in taken:
                    self._take(job, logs[uid], is_state=True)
                if job.file_count >= SYNC_FILES_MAX and not is_pressed:
                    return
            if file.needed_by and not is_pressed:
                return  # The rest when this one is free.
        job.is_whole_disk = job.file_count > SYNC_FILES_MAX

    def _note_broker(self, job: FlushJob, state: items.Open) -> None:
        as_of = self._journal.durable_seq
        raw = items.encode_open(state._replace(as_of=as_of))
        job.notes.append(Note(None, 0, as_of, True, raw))

    def _take(self, job: FlushJob, log: Log, *, is_state: bool, is_requested: bool = False) -> None:
        as_of = self._journal.durable_seq
        if is_state:
            for segment in log.unsynced:
                save_index(self._files, segment, is_closed=segment is not log.segments_list[-1])
            state = log.snapshot(as_of)
            raw, end = items.encode_state(state), state.end_offset
        else:
            flushed = log.flushed_note(as_of)
            raw, end = items.encode_flushed(flushed), flushed.end_offset
        base = log.segments_list[-1].base
        job.notes.append(
            Note(log, log.life, as_of, is_state, raw, base, end, log.cut_count, is_requested)
        )
        collect(job, log)
        self.forget(log)

    def done(self, job: FlushJob) -> None:
        """The job has run: its notes may be written."""
        assert job is self._running
        self._running = None
        self.notes = [n for n in job.notes if is_current(n)]

    def finish(self) -> None:
        """Run what was planned and not reported as done. Blocks; for an orderly end."""
        if self._running is not None:
            self._running.run()
            self.done(self._running)


def is_current(note: Note) -> bool:
    """Whether what was flushed is still a log's."""
    return note.log is None or not (note.log.is_dropped or note.life != note.log.life)


def collect(job: FlushJob, log: Log) -> None:
    """Add all that a flush of this log must sync; from here on the log counts as clean."""
    for segment in log.unsynced:
        if segment.size:
            try:
                job.add_file(log.open_segment(segment), segment.flushed, segment.size)
            except BadBatchError:
                continue  # Damaged, and known to be: there is nothing new in it.
            segment.flushed = segment.size
    if log.directory_changed:
        job.add_directory(log.directory)
        job.add_directory(LOGS)
    log.unsynced.clear()
    log.directory_changed = False


def collect_all(job: FlushJob, logs: Iterable[Log]) -> None:
    """All that is unsynced of these logs, with one sync of everything if that is cheaper."""
    dirty = [log for log in logs if log.unsynced or log.directory_changed]
    if sum(max(len(log.unsynced), 1) for log in dirty) > SYNC_FILES_MAX:
        job.is_whole_disk = True
        for log in dirty:
            log.unsynced.clear()
            log.directory_changed = False
        return
    for log in dirty:
        collect(job, log)
