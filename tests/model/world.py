"""Random lives of one store on a fake disk, with an oracle that knows what was promised.

Runs the production storage code with tiny sizes. After every crash the recovered state must be
the state after some turn t, durable <= t <= last begun, for all sync logs together: epoch, vote,
marks, log start, end and every byte. An async log may have lost its tail after a power cut or a sync
that failed: what is left must be a prefix, no shorter than its last durable flush, and after a mere
kill nothing that was written may be missing.

`run(seed)` raises `Wrong` with the seed's story; `python -m model good N` runs many.
"""

import random
import struct
from collections import Counter
from dataclasses import dataclass, field, replace
from uuid import UUID

from crc32c import crc32c
from fakes.disk import Crash, FakeDisk

from dmq.errors import FatalStorageError, StorageError
from dmq.records import HEADER, HEADER_SIZE, check_crc, filler, read_header, scan
from dmq.storage import items
from dmq.storage.cleaner import FlushJob, Job
from dmq.storage.log import Log, LogSettings, SwapJob
from dmq.storage.store import Store, StoreSettings
from dmq.storage.turn import Turn
from dmq.types import Mark, Position, Voter

JOURNAL_FILE_BYTES = 4096
SETTINGS = StoreSettings(
    journal_bytes=8 * JOURNAL_FILE_BYTES,
    journal_file_bytes=JOURNAL_FILE_BYTES,
    turn_bytes_max=1 << 30,
    open_files_max=4,
    reserve_bytes=100,
    quarantine_ms=20,
)
DIRECTORY = UUID(int=7)
VOTERS = (Voter(1, DIRECTORY),)
_CRC = struct.Struct(">I")


class Wrong(Exception):  # noqa: N818
    """The store broke a promise."""


FINDINGS = (Wrong, AssertionError, StorageError, OSError, LookupError, ValueError, struct.error)
"""Everything that a run may end in but must not."""


def make_batch(rng: random.Random, base: int, epoch: int) -> bytes:
    """A batch that is right from outside; what is inside does not matter here."""
    payload = rng.randbytes(rng.choice((3, 20, 60, 200)))
    count = rng.choice((1, 1, 2, 5))
    raw = bytearray(HEADER_SIZE + len(payload))
    raw[HEADER_SIZE:] = payload
    at = rng.randint(0, 1000)
    fields = (base, len(raw) - 12, epoch, 2, 0, 0, count - 1, at, at, -1, -1, -1, count)
    HEADER.pack_into(raw, 0, *fields)
    _CRC.pack_into(raw, 17, crc32c(memoryview(raw)[21:]))
    return bytes(raw)


Batch = tuple[int, int, bytes]
"""(base, last, bytes)."""


def emptied(batch: Batch) -> Batch:
    """What compaction leaves where no record stays."""
    base, last, data = batch
    return base, last, filler(base, last + 1, read_header(data).leader_epoch)


@dataclass
class Shadow:
    """What one log should be, by the caller's own account."""

    is_async: bool
    epoch: int = 0
    vote: Voter | None = None
    marks: list[Mark] = field(default_factory=lambda: [Mark(0, 0, 0, VOTERS, 0)])
    log_start: int = 0
    end: int = 0
    batches: list[Batch] = field(default_factory=list)
    flushed_end: int = 0
    """Async: what a durable note covers."""
    written_end: int = 0
    """Async: what may be promised."""
    swapped_below: int = 0
    """Compaction works on committed records only, and those are never cut."""

    def lowest_cut(self) -> int:
        return max(self.log_start, self.swapped_below)

    def position(self) -> Position:
        last = self.marks[-1]
        return Position(last.epoch, last.change, self.end)

    def cut(self, p: Position) -> None:
        self.batches = [b for b in self.batches if b[0] < p.offset]
        self.marks = [m for m in self.marks if m[:2] <= p[:2]]
        self.end = p.offset

    def trim(self, log_start: int, commit: Position) -> None:
        base = 0
        for index, mark in enumerate(self.marks):
            if mark.offset <= log_start and mark[:3] <= commit:
                base = index
        self.marks = self.marks[base:]
        self.log_start = log_start

    def view(self) -> tuple[object, ...]:
        data = tuple(b for b in self.batches if b[1] >= self.log_start)
        return (self.epoch, self.vote, tuple(self.marks), self.log_start, self.end, data)


def view_of(log: Log) -> tuple[object, ...]:
    """What the store says, read back from its files."""
    found = []
    if log.end_offset > log.log_start:
        for part in log.read(log.log_start, 1 << 30, log.end_offset):
            raw = part.pread()
            if len(raw) != len(part):
                raise Wrong(f"{log}: a slice of {len(part)} bytes has {len(raw)}")
            for at, header in scan(raw):
                if not check_crc(raw, at, header):
                    raise Wrong(f"{log}: bad crc at offset {header.base_offset}")
                whole = raw[at : at + header.size]
                found.append((header.base_offset, header.last_offset, whole))
    data = tuple(f for f in found if f[1] >= log.log_start)
    return (log.epoch, log.vote, log.marks.items, log.log_start, log.end_offset, data)


class Run:
    """One seed: lives, crashes, recoveries."""

    def __init__(
        self,
        seed: int,
        file_bytes: int,
        swap_rate: float | None = None,
        failing_rate: float | None = None,
    ) -> None:
        self.settings = replace(
            SETTINGS, journal_bytes=8 * file_bytes, journal_file_bytes=file_bytes
        )
        self.rng = random.Random(seed)
        self.disk = FakeDisk(self.rng)
        self.now = 0
        self.reached: Counter[str] = Counter()
        self.shadows: dict[UUID, Shadow] = {}
        self.snapshots: dict[int, dict[UUID, tuple[object, ...]]] = {0: {}}
        self.durable_seq = 0
        self.appended = 0
        # Swarm: every seed has its own mixture.
        self.async_rate = self.rng.choice((0, 0, 0.3))
        self.power_rate = self.rng.choice((1, 0.5))
        self.is_small_disk = self.rng.random() < 0.15 and file_bytes >= JOURNAL_FILE_BYTES
        self.cut_rate = self.rng.choice((0, 0.05, 0.2))
        self.swap_rate = self.rng.choice((0, 0.05, 0.2)) if swap_rate is None else swap_rate
        self.swapping: dict[UUID, bool] = {}
        """Logs that wait for a SWAP, and whether it is staged: they are not trimmed or cut."""
        self.swaps: dict[UUID, tuple[dict[Batch, Batch], int]] = {}
        self.segment_bytes = self.rng.choice((100, 400, 2000))
        # Of its own dice: large writes happen beside the loop, for some from the first byte on.
        self.settings = replace(
            self.settings, late_bytes_min=random.Random(~seed).choice((1, 150, 1 << 20))
        )
        self.interval = self.rng.choice((1, 64, 300))
        # Of dice of their own, too: syncs that fail, in a life and in the recovery that follows it.
        self.sync_dice = random.Random(f"syncs of {seed}")
        self.failing_rate = (
            self.sync_dice.choice((0, 0.3, 0.6)) if failing_rate is None else failing_rate
        )
        self.has_failed = False
        """A sync of this life or of the recovery after it: pages may look clean and be nowhere."""
        self.store: Store = self._open()

    # ---- one life

    def life(self, steps: int) -> None:
        """Work until the disk's budget ends it, or a while."""
        self.turn: Turn | None = None
        self.is_synced = False
        self.jobs: list[tuple[Job, bool]] = []
        self.swapping, self.swaps = {}, {}
        self.flushed: list[tuple[UUID, int]] = []
        """Flushes whose notes go out with the next turn, and with the one under way."""
        self.noted: list[tuple[UUID, int]] = []
        self.disk.budget = self.rng.randint(0, self.rng.choice((60, 150, 600)))
        is_failing = self.sync_dice.random() < self.failing_rate
        fails_at = (
            self.sync_dice.randrange(self.sync_dice.choice((10, steps))) if is_failing else -1
        )
        self.has_failed = False
        try:
            for step in range(steps):
                if step == fails_at:
                    self.disk.is_sync_failing = True
                self._step()
            self._end_in_order()
        except Crash:
            self.reached["crash"] += 1
        except FatalStorageError:
            if not self.disk.is_sync_failing:
                raise
            self.reached["sync failed"] += 1
            self.has_failed = True

    def _end_in_order(self) -> None:
        while self.turn is not None or self.store.has_work():
            self._turn_step()
        for job, has_run in self.jobs:
            if not has_run:
                job.run()
            self._done(job)
        self.jobs = []
        while self.turn is not None or self.store.has_work():
            self._turn_step()
        self.store.close(self.now)
        self.reached["closed"] += 1

    def _step(self) -> None:
        self.now += self.rng.choice((0, 1, 5, 60))
        for _ in range(self.rng.randint(0, 3)):
            self._stage()
        self._turn_step()
        self._job_step()

    def _turn_step(self) -> None:
        """Begin a turn, sync it, end it; others may stage in between."""
        if self.turn is None:
            self.turn = self.store.begin_turn(self.now)
            if self.turn is None:
                return
            self._begun(self.turn)
            self._check_readable()
            if self.rng.random() < 0.3:
                return
        turn = self.turn
        if not self.is_synced:
            turn.sync()
            self.is_synced = True
            self._durable(turn)
            if self.rng.random() < 0.3:
                return
        self.turn = None
        self._stable(self.store.end_turn(turn, self.now))
        for log in self.store.logs.values():
            bases = [segment.base for segment in log.segments_list]
            assert bases == sorted(set(bases)), log
            assert all(segment in log.segments_list for segment in log.unsynced), log
            assert all(s.base >= log.flushed_base for s in log.unsynced), log
            if not log.is_async:
                self._check_promise(log)

    def _check_readable(self) -> None:
        """What readers are shown while a turn is under way is there, and whole."""
        for log in self.store.logs.values():
            data = b"".join(part.pread() for part in log.read(log.log_start, 1 << 30, 1 << 60))
            for at, header in scan(data):
                if not check_crc(data, at, header):
                    raise Wrong(f"{log}: a reader is shown bytes that are not there")

    def _check_promise(self, log: Log) -> None:
        """What may be promised is in the last durable turn, byte for byte."""
        if not self.store.has_work():
            assert log.stable_end == log.end, log
        assert log.marks.has(log.stable_end, log.end_offset, log.log_start), log
        durable = self.snapshots[self.durable_seq].get(log.topic_id)
        if durable is None:
            assert log.stable_end.offset == 0, log
            return
        held = durable[5]
        assert isinstance(held, tuple)
        for batch in self.shadows[log.topic_id].batches:
            is_promised = log.log_start <= batch[1] < log.stable_end.offset
            # A swap that is on its way takes records of a batch that is there.
            is_there = batch in held or batch in map(emptied, held)
            if is_promised and not is_there:
                raise Wrong(f"{log}: {batch[:2]} is promised, but not durable")

    def _begun(self, turn: Turn) -> None:
        self.is_synced = not turn.needs_sync
        self.noted, self.flushed = self.flushed, []
        self.swapping = {k: False for k, is_staged in self.swapping.items() if not is_staged}
        self._refused(turn)
        self._stable(turn.stable)
        if turn.has_record:
            self.snapshots[turn.seq] = {k: s.view() for k, s in self.shadows.items()}

    def _durable(self, turn: Turn) -> None:
        if not turn.has_record:
            self.reached["written beside the loop"] += 1
            return
        self.durable_seq = turn.seq
        self._check_bound()
        for topic_id, end in self.noted:
            if topic_id in self.shadows:
                shadow = self.shadows[topic_id]
                shadow.flushed_end = max(shadow.flushed_end, end)

    def _stable(self, logs: list[Log]) -> None:
        for log in logs:
            if log.is_async and log.topic_id in self.shadows:
                shadow = self.shadows[log.topic_id]
                shadow.written_end = max(shadow.written_end, log.stable_end.offset)

    def _check_bound(self) -> None:
        for seq in [seq for seq in self.snapshots if seq < self.durable_seq]:
            del self.snapshots[seq]

    def _job_step(self) -> None:
        rng = self.rng
        hurry = 1 if self.store.pressure >= 1 else 0.5
        if rng.random() < hurry:
            self.jobs += [(job, False) for job in self.store.maintain(self.now)]
        kept = []
        for job, has_run in self.jobs:
            if not has_run and rng.random() < hurry:
                job.run()
                has_run = True
            if has_run and rng.random() < hurry:
                self._done(job)
            else:
                kept.append((job, has_run))
        self.jobs = kept

    def _done(self, job: Job) -> None:
        if isinstance(job, FlushJob):
            self.flushed += [
                (note.log.topic_id, item.end_offset)
                for note in job.notes
                for item in items.decode(note.raw, 0, len(note.raw))
                if note.log is not None and isinstance(item, items.State | items.Flushed)
            ]
        self.store.done(job)
        self.reached[type(job).__name__] += 1
        if isinstance(job, SwapJob):
            self._swap_staged(job)

    def _refused(self, turn: Turn) -> None:
        for refusal in turn.refused:
            self.reached["refused"] += 1
            shadow = self.shadows[refusal.log.topic_id]
            shadow.batches = [b for b in shadow.batches if b[1] < refusal.end.offset]
            shadow.marks = [m for m in shadow.marks if m[:3] <= refusal.end]
            shadow.end = refusal.end.offset

    # ---- operations

    def _stage(self) -> None:
        rng = self.rng
        logs = [*self.store.logs.values()]
        dice = rng.random()
        if (dice < 0.07 and len(logs) < 4) or not logs:
            self._create()
            return
        log = rng.choice(logs)
        shadow = self.shadows[log.topic_id]
        if dice < 0.10:
            self.store.drop(log)
            del self.shadows[log.topic_id]
        elif dice < 0.18:
            shadow.epoch, shadow.vote = log.epoch + 1, Voter(rng.randint(1, 3), DIRECTORY)
            log.set_hard(shadow.epoch, shadow.vote)
        elif dice < 0.26:
            self._mark(log, shadow)
        elif dice < 0.30:
            self._trim(log, shadow)
        elif dice < 0.33:
            log.roll()
        elif dice < 0.38:
            self.store.request_flush(log)
        elif dice < 0.38 + self.swap_rate:
            self._swap(log, shadow)
        elif dice > 1 - self.cut_rate and not log.is_async:
            self._cut(log, shadow)
        else:
            self._append(log, shadow)

    def _create(self) -> None:
        topic_id = self.disk.new_id()
        is_async = self.rng.random() < self.async_rate
        settings = LogSettings(
            segment_bytes=self.segment_bytes,
            index_interval_bytes=self.interval,
            is_async=is_async,
            flush_ms=20,
        )
        self.store.create(topic_id, 0, voters=VOTERS, settings=settings)
        self.shadows[topic_id] = Shadow(is_async)

    def _mark(self, log: Log, shadow: Shadow) -> None:
        last = shadow.marks[-1]
        if self.rng.random() < 0.7:
            mark = Mark(last.epoch + 1, 0, shadow.end, VOTERS, shadow.log_start)
        else:
            mark = Mark(last.epoch, last.change + 1, shadow.end, VOTERS, shadow.log_start)
        log.add_mark(mark)
        shadow.marks.append(mark)

    def _append(self, log: Log, shadow: Shadow) -> None:
        raw = b""
        batches = []
        end = shadow.end
        for _ in range(self.rng.choice((1, 1, 1, 3))):
            batch = make_batch(self.rng, end, shadow.marks[-1].epoch)
            last = end + HEADER.unpack_from(batch)[6]
            batches.append((end, last, batch))
            raw += batch
            end = last + 1
        try:
            log.append(raw)
        except StorageError:
            self.reached["full"] += 1
            return
        self.appended += len(batches)
        shadow.batches += batches
        shadow.end = end

    def _cut(self, log: Log, shadow: Shadow) -> None:
        """Anywhere between the log start and the end, between batches and between marks."""
        if shadow.end < shadow.swapped_below or log.topic_id in self.swapping:
            return
        offsets = [b[0] for b in shadow.batches if b[0] >= shadow.lowest_cut()]
        offset = self.rng.choice([shadow.end, *offsets])
        fits = [
            mark
            for at, mark in enumerate(shadow.marks)
            if mark.offset <= offset
            and (at + 1 == len(shadow.marks) or shadow.marks[at + 1].offset >= offset)
        ]
        if not fits:
            return
        mark = self.rng.choice(fits)
        position = Position(mark.epoch, mark.change, offset)
        if len([m for m in shadow.marks if m[:2] > position[:2]]):
            self.reached["cut of a mark"] += 1
        log.cut(position)
        shadow.cut(position)

    def _trim(self, log: Log, shadow: Shadow) -> None:
        stable = log.stable_end
        if log.topic_id in self.swapping:
            return
        offsets = [b[0] for b in shadow.batches] + [stable.offset]
        offsets = [o for o in offsets if shadow.log_start < o <= stable.offset]
        if not offsets:
            return
        offset = self.rng.choice(offsets)
        log.trim(offset, stable)
        shadow.trim(offset, stable)
        self.reached["trimmed"] += 1

    def _swap(self, log: Log, shadow: Shadow) -> None:
        """Compaction: flushed, closed segments become one, with fewer records."""
        closed = [s for s in log.segments_list[:-1] if s.base < log.flushed_base]
        has_run = self.turn is not None or log.topic_id in self.swapping
        if has_run or not closed or shadow.end != log.readable_end:
            return
        first = self.rng.randrange(len(closed))
        old = closed[first : first + self.rng.randint(1, 2)]
        stop = log.segments_list[first + len(old)].base
        inside = [b for b in shadow.batches if old[0].base <= b[0] < stop]
        left = [b if self.rng.random() < 0.6 or b is inside[-1] else emptied(b) for b in inside]
        if not inside or inside[0][0] < log.log_start or stop > log.stable_end.offset:
            return
        raw = b"".join(b[2] for b in left)
        name = log.swap_name(old[0].base)
        file = self.disk.open(name, create=True)
        file.cut(0)
        try:
            file.write_at(0, [raw])
            file.sync()
            self.disk.sync_dir(log.directory)
        except OSError:
            self.disk.unlink(name)
            return
        log.replace_segments([s.base for s in old], len(raw), 1000)
        self.swapping[log.topic_id] = False
        self.swaps[log.topic_id] = (dict(zip(inside, left, strict=True)), stop)

    def _swap_staged(self, job: SwapJob) -> None:
        topic_id = job.log.topic_id
        if job.is_current() and topic_id in self.shadows:
            shadow = self.shadows[topic_id]
            left, stop = self.swaps.pop(topic_id)
            shadow.batches = [left.get(batch, batch) for batch in shadow.batches]
            shadow.swapped_below = max(shadow.swapped_below, stop)
            self.swapping[topic_id] = True
            self.reached["swapped"] += 1

    # ---- crash and recovery

    def crash(self) -> bool:
        """True if it was the whole machine."""
        if self.has_failed and self.sync_dice.random() < 0.7:
            self.disk.kill()  # The process ended by itself.
            return False
        if self.rng.random() < self.power_rate:
            self.disk.power_cut()
            return True
        self.disk.kill()
        return False

    def recover(self, was_power: bool) -> None:
        is_failing = self.disk.is_sync_failing and self.sync_dice.random() < 0.3
        for attempt in range(3):
            self.disk.is_sync_failing = is_failing and attempt == 0
            try:
                if attempt < 2 and self.rng.random() < 0.3:
                    self.disk.budget = self.rng.randint(0, 60)
                self.store = self._open()
                self.disk.budget = None
                break
            except Crash:
                self.reached["crash in recovery"] += 1
                was_power = self.crash() or was_power
            except (OSError, StorageError):
                if not self.disk.is_sync_failing:
                    raise
                self.reached["sync failed in recovery"] += 1
                self.has_failed = True
                self.disk.kill()
        self._check(was_power or self.has_failed)

    def _open(self) -> Store:
        self.disk.capacity = None  # A start may need room: an unlink that came back, a lost block.
        store = Store.open(self.disk, self.settings, now=self.now)
        if self.is_small_disk:
            used = self.disk.used_bytes()
            self.disk.capacity = used + self.rng.choice((2_000, 10_000))
        for log in store.logs.values():
            log.configure(
                LogSettings(
                    segment_bytes=self.segment_bytes,
                    index_interval_bytes=self.interval,
                    is_async=log.is_async,
                    flush_ms=20,
                )
            )
        return store

    def _check(self, may_lose: bool) -> None:
        report = self.store.recovery
        if report.rotten or report.damaged:
            raise Wrong(f"a good disk is called bad: {report}")
        if self.store._journal.next_number > 9:
            self.reached["journal went round"] += 1
        if report.torn:
            self.reached["torn"] += 1
        turn = report.last_seq
        while turn in report.open_seqs:
            turn -= 1
        if turn < self.durable_seq:
            raise Wrong(f"turn {self.durable_seq} was durable, recovered {turn}")
        known = max((seq for seq in self.snapshots if seq <= turn), default=None)
        if known is None:
            raise Wrong(f"recovered an unknown turn {turn} of {sorted(self.snapshots)}")
        want = self.snapshots[known]
        got = {log.topic_id: log for log in self.store.logs.values()}
        if got.keys() != want.keys():
            raise Wrong(f"turn {turn}: logs {sorted(got)} instead of {sorted(want)}")
        for topic_id, log in got.items():
            self._check_log(log, want[topic_id], self.shadows.get(topic_id), may_lose)
        self._adopt(got)
        self.snapshots = {turn: {topic_id: s.view() for topic_id, s in self.shadows.items()}}
        self.durable_seq = turn

    def _check_log(
        self, log: Log, want: tuple[object, ...], shadow: Shadow | None, may_lose: bool
    ) -> None:
        got = view_of(log)
        if not log.is_async:
            if got != want:
                raise Wrong(f"{log} differs\n got {got}\nwant {want}")
            self._check_reads(log, got)
            self._check_files(log)
            return
        assert shadow is not None or want
        epoch, vote, marks, log_start, end, data = got
        w_epoch, w_vote, w_marks, w_start, w_end, w_data = want
        assert isinstance(w_end, int)
        if (epoch, vote, log_start) != (w_epoch, w_vote, w_start):
            raise Wrong(f"{log}: small state differs: {got[:5]} {want[:5]}")
        assert isinstance(w_marks, tuple)
        assert isinstance(end, int)
        if marks != tuple(m for m in w_marks if m.offset <= end):
            raise Wrong(f"{log}: marks {marks} instead of {w_marks}")
        if shadow is None:
            return  # Dropped in a turn that did not survive; what it had is not kept here.
        assert isinstance(data, tuple)
        assert isinstance(w_data, tuple)
        every = (*w_data, *(b for b in shadow.batches if b[0] >= w_end))
        if data != every[: len(data)]:
            raise Wrong(f"{log}: not a prefix")
        low = shadow.flushed_end if may_lose else shadow.written_end
        if end < min(low, shadow.end):
            raise Wrong(f"{log}: async end {end}, promised {low}, may lose {may_lose}")
        if end < shadow.end:
            self.reached["async tail lost"] += 1

    def _check_reads(self, log: Log, view: tuple[object, ...]) -> None:
        """Random reads agree with the whole."""
        data = view[5]
        assert isinstance(data, tuple)
        if not data:
            return
        base, last, raw = self.rng.choice(data)
        offset = self.rng.randint(max(base, log.log_start), last)
        (part, *_) = log.read(offset, 1, log.end_offset)
        if part.pread() != raw:
            raise Wrong(f"{log}: read of {offset} gives another batch")

    def _check_files(self, log: Log) -> None:
        """Nothing is left over that the log does not know."""
        bases = {segment.base for segment in log.segments_list}
        for name in self.disk.list(log.directory):
            if int(name.partition(".")[0]) not in bases:
                raise Wrong(f"{log}: {name} is left over")

    def _adopt(self, got: dict[UUID, Log]) -> None:
        """Go on from what was recovered."""
        shadows = {}
        for topic_id, log in got.items():
            epoch, vote, marks, log_start, end, data = view_of(log)
            shadow = Shadow(log.is_async)
            shadow.epoch, shadow.vote, shadow.log_start, shadow.end = epoch, vote, log_start, end
            shadow.marks, shadow.batches = [*marks], [*data]
            known = self.shadows.get(topic_id)
            shadow.swapped_below = known.swapped_below if known else shadow.end
            shadow.written_end = end
            shadow.flushed_end = end if log.is_async else 0
            shadows[topic_id] = shadow
        self.shadows = shadows


CRASHES = 6


def run(
    seed: int,
    *,
    file_bytes: int = JOURNAL_FILE_BYTES,
    swap_rate: float | None = None,
    failing_rate: float | None = None,
    steps: int = 120,
) -> Run:
    """One seed. Raises Wrong."""
    world = Run(seed, file_bytes, swap_rate, failing_rate)
    world.snapshots[world.store.seq] = {}
    for _ in range(CRASHES):
        world.life(steps)
        world.recover(world.crash())
    return world
