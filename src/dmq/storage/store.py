"""The facade of storage: opens a data directory, holds the logs, turns what they stage into turns.

    begin_turn   everything staged goes to segments (page cache) and, as one record, to the journal
    Turn.sync    blocking, in a worker thread
    end_turn     durable: ends move, afterwork is done, the journal lets go of what it may
    maintain     jobs for a worker thread (flushes, removals), then `done`

One turn at a time; meanwhile the logs stage the next. No clock: `now` in ms is passed in. The
only caller besides tests is the broker. A FatalStorageError from anywhere must stop the process.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from uuid import UUID

from dmq.errors import StorageError
from dmq.raft.marks import Marks
from dmq.storage import distrust, items, journal, meta, recovery
from dmq.storage.cleaner import Cleaner, FlushJob, Job, Note, collect_all, is_current
from dmq.storage.files import Files
from dmq.storage.fresh import FreshBatches
from dmq.storage.items import OWN_TIME, SegmentState
from dmq.storage.journal import FLAG_CLOSE, FLAG_OPEN, Journal
from dmq.storage.log import Log, LogSettings, SwapJob
from dmq.storage.meta import Meta
from dmq.storage.quarantine import Quarantine
from dmq.storage.replay import Report
from dmq.storage.salvage import SalvageJob
from dmq.storage.segment import SegmentFiles, save_index
from dmq.storage.turn import Fact, Turn
from dmq.types import Mark, Position, Voter

COVER_MS = 50
"""An idle broker writes an empty record after this, so that its last promise too can be told from
a torn write."""
SPACE_CHECK_MS = 250


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """How a data directory is kept."""

    journal_bytes: int = 512 * 1024 * 1024
    """The journal in all. Too low: producers wait for flushes; too high: slow starts."""
    journal_file_bytes: int = 32 * 1024 * 1024
    """One file of it; the unit of reuse. At least four must fit."""
    turn_bytes_max: int = 16 * 1024 * 1024
    """Record bytes after which the rest waits for the next turn."""
    late_bytes_min: int = 64 * 1024
    """From so many bytes on a segment is written beside the loop. Too low: two threads hand each
    other the interpreter for little; too high: the loop waits for memory to be found."""
    uncached_bytes_min: int = 256 * 1024
    """From so many bytes on a follower lets the page cache go of what it wrote. Too low: each such write
    is one of the disk's; too high: on memory that the kernel has to find anew each byte costs as much as
    all else that is done to it."""
    fresh_bytes_max: int = 64 * 1024 * 1024
    """What leaders keep in memory until followers were sent it, and the requests that it is of. Too low:
    what waits for a moment is read from the file, and checked again; too high: memory that has what the
    page cache has."""
    open_files_max: int = 2000
    """Segments kept open. Too low: reopening at every write; too high: the process' limit."""
    reserve_bytes: int = 256 * 1024 * 1024
    """Free space below which appends are refused; deletion and votes go on."""
    quarantine_ms: int = 60_000
    """How long the files of a dropped log are kept."""


class Store:
    """A data directory in use."""

    def __init__(
        self, files: Files, settings: StoreSettings, directory: Meta, found: recovery.Recovered
    ) -> None:
        self._files = files
        self._settings = settings
        self._meta = directory
        self._journal: Journal = found.journal
        self._boot_id = files.boot_id()
        self._next_uid = found.next_uid
        self.recovery: Report = found.report
        self.pool = SegmentFiles(files, settings.open_files_max)
        self.is_full = False
        self._cleaner = Cleaner(files, self._journal)
        self._quarantine = Quarantine(files, settings.quarantine_ms)
        self._logs: dict[int, Log] = {}
        self._dirty: dict[Log, None] = {}
        self._staged: list[tuple[bytes, Fact]] = []
        """STATEs of new logs and DROPs, in order."""
        self._dropping: list[Log] = []
        self._turn: Turn | None = None
        self._cover_at: int | None = None
        self._is_cover_due = False
        self._space_checked_at: int | None = None
        self._jobs: list[Job] = []
        self._damaged: dict[Log, None] = {}
        self._salvaging: dict[Log, Callable[[OSError], None]] = {}
        self._turn_bytes_max = settings.turn_bytes_max
        self.late_bytes_min = settings.late_bytes_min
        self.uncached_bytes_min = settings.uncached_bytes_min
        self.fresh = FreshBatches(settings.fresh_bytes_max)

    @classmethod
    def open(
        cls,
        files: Files,
        settings: StoreSettings,
        *,
        now: int,
        accept_rotten: bool = False,
    ) -> "Store":
        """Format if empty, lock, recover. Blocks.

        Raises StorageError if it is in use, CorruptError if it can't be read or the journal is
        rotten; with `accept_rotten` the latter comes up under a new directory id instead.
        """
        try:
            files.lock()
        except BlockingIOError as taken:
            raise StorageError(f"{files.root} is in use by another process") from taken
        except OSError as error:
            raise StorageError(f"{files.root} can't be used: {error}") from error
        try:
            directory = meta.load(files)
            if directory is None:
                directory = recovery.format_directory(files)
            found = recovery.recover(files, settings, directory, accept_rotten=accept_rotten)
            store = cls(files, settings, found.meta, found)
            store._adopt(found, now)
        except BaseException as reason:
            if isinstance(reason, OSError):
                distrust.note(files)  # Of the syncs of a start, too.
            files.unlock()
            raise
        return store

    def _adopt(self, found: recovery.Recovered, now: int) -> None:
        """Take over what recovery found, and say so durably before anything is promised."""
        restated = []
        for recovered in found.logs:
            log = recovered.make_log(self)
            self._logs[log.uid] = log
            if recovered.must_restate:
                restated.append(log)
        job = FlushJob(self._files)
        collect_all(job, restated)
        job.run()
        turn = Turn(now)
        turn.flags = FLAG_OPEN
        turn.body.add(items.encode_open(self._broker_state()))
        turn.facts.append(Fact(0, OWN_TIME))
        for log in restated:
            turn.body.add(items.encode_state(log.snapshot(OWN_TIME)))
            turn.facts.append(Fact(log.uid, OWN_TIME))
        self._write(turn)
        turn.sync()
        if self.recovery.rotten is not None:
            meta.save(self._files, self._meta)  # From here on the old journal is nobody's.
            recovery.put_journal_aside(self._files, found)
        self.end_turn(turn, now)
        distrust.forget(self._files)
        self._journal.keep_spares()
        self._quarantine.adopt(now)
        self._check_space(now)

    # ---- who we are

    @property
    def directory_id(self) -> UUID:
        return self._meta.directory_id

    @property
    def cluster_id(self) -> str | None:
        return self._meta.cluster_id

    @property
    def node_id(self) -> int | None:
        return self._meta.node_id

    def identify(self, cluster_id: str, node_id: int) -> None:
        """Say whose directory this is, once. Raises CorruptError if it is somebody else's."""
        known = self._meta.identified(cluster_id, node_id)
        if known != self._meta:
            meta.save(self._files, known)
            self._meta = known

    def _broker_state(self) -> items.Open:
        return items.Open(
            OWN_TIME, items.FORMAT_VERSION, self._boot_id, self.directory_id, self._next_uid
        )

    # ---- logs

    @property
    def logs(self) -> Mapping[int, Log]:
        return self._logs

    @property
    def pressure(self) -> float:
        """Fill level of the journal: from 0.875 on slow producers down, at 1 let them wait."""
        return self._journal.pressure

    @property
    def seq(self) -> int:
        """Of the last record written; registration carries it."""
        return self._journal.seq

    def create(
        self,
        topic_id: UUID,
        partition: int,
        *,
        voters: tuple[Voter, ...],
        settings: LogSettings,
        base: Mark | None = None,
    ) -> Log:
        """Stage a new log that begins with mark (0, 0, 0), or with `base`."""
        mark = base or Mark(0, 0, 0, voters, 0)
        uid = self._next_uid
        self._next_uid += 1
        state = items.State(
            uid,
            OWN_TIME,
            topic_id,
            partition,
            settings.is_async,
            mark.epoch,
            None,
            mark.log_start,
            mark.offset,
            Position(mark.epoch, mark.change, mark.offset),
            Marks((mark,)),
            (SegmentState(mark.offset, 0, -1),),
            (),
        )
        log = Log(self, state, settings)
        self._logs[uid] = log
        self._staged.append((items.encode_state(state), Fact(uid, OWN_TIME)))
        return log

    def drop(self, log: Log) -> None:
        """Stage the end of a log; its files go to quarantine when that is durable."""
        assert self._logs.pop(log.uid) is log
        log.is_dropped = True
        log.forget_fresh()
        self._dirty.pop(log, None)
        self._cleaner.forget(log)
        self._staged.append((items.encode_drop(items.Drop(log.uid)), Fact(log.uid, None)))
        self._dropping.append(log)

    def configure(self, *, reserve_bytes: int, quarantine_ms: int) -> None:
        """Take settings that may change while running."""
        self._settings = replace(
            self._settings, reserve_bytes=reserve_bytes, quarantine_ms=quarantine_ms
        )
        self._quarantine.keep_ms = quarantine_ms
        self._space_checked_at = None

    # ---- called by logs

    def mark_dirty(self, log: Log) -> None:
        self._dirty[log] = None

    def mark_unsynced(self, log: Log, now: int) -> None:
        self._cleaner.wrote(log, now)

    def request_flush(self, log: Log) -> None:
        self._cleaner.request(log)

    def note_damaged(self, log: Log) -> None:
        self.request_flush(log)
        self._damaged[log] = None

    def take_damaged(self) -> list[Log]:
        """Logs in which somebody found bad bytes since this was asked last."""
        if not self._damaged:
            return []
        damaged, self._damaged = self._damaged, {}
        return [log for log in damaged if log.is_damaged and not log.is_dropped]

    def add_job(self, job: Job) -> None:
        self._jobs.append(job)

    def salvage(self, log: Log, on_failed: Callable[[OSError], None]) -> None:
        """Put the good bytes of a damaged log together, give up the rest; between turns.

        Takes a while: it is done when the log is not damaged any more. May be asked for again, and
        must be if a flush is under way: what that has taken is not on disk before its end.
        """
        assert self._turn is None
        if self._cleaner.is_flushing(log):
            return
        if log not in self._salvaging and log.may_salvage:
            self._salvaging[log] = on_failed
            self.add_job(SalvageJob(self._files, log))

    def _salvaged(self, job: SalvageJob) -> None:
        log = job.log
        on_failed = self._salvaging.pop(log)
        if log.is_dropped:
            return
        if job.found is not None:
            log.adopt(job.found)
        elif job.error is not None:
            on_failed(job.error)

    # ---- the turn

    def has_work(self) -> bool:
        """Whether a turn has something to write."""
        return bool(self._dirty or self._staged or self._cleaner.notes or self._is_cover_due)

    def begin_turn(self, now: int) -> Turn | None:
        """Write all that is staged; None if a turn is under way or there is nothing to do."""
        if self._turn is not None:
            return None
        self._check_cover(now)
        if not self.has_work():
            return None
        self._check_space_sometimes(now)
        turn = Turn(now)
        turn.is_forced, self._is_cover_due = self._is_cover_due, False
        self._begin_small(turn)
        self._begin_logs(turn)
        self._write(turn)
        return turn

    def _begin_small(self, turn: Turn) -> None:
        staged, self._staged = self._staged, []
        for raw, fact in staged:
            turn.body.add(raw)
            turn.facts.append(fact)
        for note in self._cleaner.notes:
            if is_current(note):
                turn.body.add(note.raw)
                if note.is_state:
                    turn.facts.append(Fact(note.log.uid if note.log else 0, note.as_of))
                if note.log is not None:
                    self._after_note(turn, note.log, note)
        self._cleaner.notes = []
        for log in self._dropping:
            turn.after.append(partial(self._quarantine.take, log, self.pool, turn.now))
        self._dropping = []

    def _after_note(self, turn: Turn, log: Log, note: Note) -> None:
        turn.after.append(partial(_flush_noted, log, note))
        if log.awaits_flush:
            turn.released.append(log)
        if note.is_requested and not self._cleaner.is_requested(log):
            log.resume()  # Else this flush may have begun before the change that waits for one.

    def _begin_logs(self, turn: Turn) -> None:
        taken: list[Log] = []
        length = turn.body.length
        for log in self._dirty:
            taken.append(log)
            length += log.staged_bytes
            if length > self._turn_bytes_max:
                break
        for log in taken:
            del self._dirty[log]
        turn.takes_batches = self._journal.make_room(length)
        for log in taken:
            log.begin(turn)  # One that waits for a flush comes back when that is noted.

    def _write(self, turn: Turn) -> None:
        self._turn = turn
        if turn.body.length == 0 and not turn.is_forced:
            return  # Async batches only.
        file = self._journal.write(turn.body, turn.flags)
        if self._journal.is_directory_dirty:
            turn.sync_first[journal.DIRECTORY] = None
        turn.written(self._journal.seq, file.file, self._files)
        # The next record covers this one; the covering record itself need not be covered.
        self._cover_at = turn.now + COVER_MS if turn.body.length else None

    def end_turn(self, turn: Turn, now: int) -> list[Log]:
        """The turn is durable: do what waited for it. Returns logs whose stable end moved."""
        assert turn is self._turn
        self._turn = None
        if turn.has_record:
            self._journal.became_durable(turn.seq)
            self._note_facts(turn)
        for work in turn.after:
            work()
        moved = [log for log in (*turn.released, *turn.logs) if log.ended()]
        if self._cover_at is not None and turn.has_record:
            self._cover_at = now + COVER_MS
        self._plan(now)
        return [*turn.stable, *moved]

    def _note_facts(self, turn: Turn) -> None:
        file = self._journal.files[-1]
        for uid, as_of in turn.facts:
            if as_of is None:
                self._journal.forget(uid)
            else:
                self._journal.noted_state(uid, turn.seq if as_of == OWN_TIME else as_of, file)
        self._journal.release()

    # ---- maintenance

    def maintain(self, now: int) -> list[Job]:
        """Jobs that are due: run each in a worker thread, then call `done` with it."""
        self._check_space_sometimes(now)
        self._check_cover(now)
        self._journal.keep_spares()
        self._plan(now)
        jobs = [*self._jobs, *self._quarantine.due(now)]
        self._jobs = []
        return jobs

    def _plan(self, now: int) -> None:
        if self._turn is None:
            job = self._cleaner.plan(now, self._broker_state(), self._logs)
            if job is not None:
                self._jobs.append(job)

    def done(self, job: Job) -> None:
        """A job has run to its end."""
        if isinstance(job, FlushJob):
            self._cleaner.done(job)
        elif isinstance(job, SwapJob):
            if job.is_current():
                job.log.stage_swap(job.swap)
            else:
                job.log.discard_swap(job.swap)
        elif isinstance(job, SalvageJob):
            self._salvaged(job)

    def has_jobs(self) -> bool:
        """Whether `maintain` has something at once."""
        return bool(self._jobs)

    def idle_deadline(self) -> int | None:
        """When begin_turn and maintain should be called though nothing is staged."""
        times = [self._cover_at, self._cleaner.deadline(), self._quarantine.deadline()]
        return min((t for t in times if t is not None), default=None)

    def _check_cover(self, now: int) -> None:
        """Whether the last record has waited long enough for one that covers it."""
        if self._turn is None and self._cover_at is not None and now >= self._cover_at:
            self._is_cover_due = True

    def _check_space_sometimes(self, now: int) -> None:
        at = self._space_checked_at
        if at is None or not 0 <= now - at < SPACE_CHECK_MS:
            self._check_space(now)

    def _check_space(self, now: int) -> None:
        self._space_checked_at = now
        self.is_full = self._files.free_bytes() < self._settings.reserve_bytes

    def close(self, now: int) -> None:
        """Write and flush everything, end in order. Blocks; no turn may be under way."""
        assert self._turn is None
        self._plan(now)
        self._cleaner.finish()
        while self.has_work():
            turn = self.begin_turn(now)
            assert turn is not None
            if turn.needs_sync:
                turn.sync()
            self.end_turn(turn, now)
            self._cleaner.finish()
        logs = [*self._logs.values()]
        for log in logs:
            for segment in log.unsynced:
                save_index(self._files, segment, is_closed=segment is not log.segments_list[-1])
        job = FlushJob(self._files)
        collect_all(job, logs)
        job.add_directory(".")  # After an orderly end clean points count: none may come back.
        job.run()
        self._write_close(now, logs)
        self._files.unlock()

    def _write_close(self, now: int, logs: list[Log]) -> None:
        as_of = self._journal.durable_seq
        turn = Turn(now)
        turn.flags = FLAG_CLOSE
        turn.body.add(items.encode_open(self._broker_state()))
        turn.facts.append(Fact(0, OWN_TIME))
        for log in logs:
            turn.body.add(items.encode_state(log.snapshot(as_of)))
            turn.facts.append(Fact(log.uid, as_of))
        turn.body.add(items.encode_close(items.Close(self._boot_id)))
        self._journal.roll_unless_fresh()
        self._write(turn)
        turn.sync()
        self.end_turn(turn, now)
        cover = Turn(now)
        cover.is_forced = True
        cover.flags = FLAG_CLOSE
        self._write(cover)
        cover.sync()
        self.end_turn(cover, now)


def _flush_noted(log: Log, note: Note) -> None:
    if is_current(note):  # Else the turn that wrote the note replaced the log.
        log.flush_noted(note.base, note.end_offset, note.cut_count)
