"""One partition's log on this broker: what its caller has said, and what may be promised.

A log is known three times: as staged (what the caller has said), as begun (what the turns say
that were written; between turns that is what is durable) and as files. Mutators only stage. The
store's turn calls `begin`, and `ended` when the turn is durable.

    staged --begin_turn--> begun --sync, end_turn--> durable --flush--> free of the journal

Decides nothing about retention, compaction or roles. Called by broker and store; how a turn
becomes items and bytes is in layout.py, how bytes are found again in reading.py.
"""

import errno
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from dmq.errors import ErrorCode, FatalStorageError, KafkaError, StorageError
from dmq.raft.marks import Marks
from dmq.records import HEADER, HEADER_SIZE, LENGTH_OVERHEAD
from dmq.storage import distrust, items, reading
from dmq.storage.files import Buffer, Files
from dmq.storage.items import BATCH_ITEM
from dmq.storage.layout import (
    ADOPT,
    BATCH,
    CUT,
    LOGS,
    MARK,
    MODE,
    RESET,
    START,
    SWAP,
    Layout,
    LayoutHost,
    LogSettings,
    Op,
)
from dmq.storage.reading import FileSlice, FoundBatch
from dmq.storage.segment import BadBatchError, Segment, SegmentReader
from dmq.storage.turn import Refusal, Turn
from dmq.types import Mark, Position, Voter

if TYPE_CHECKING:
    from dmq.storage.salvage import Salvaged

__all__ = ["LOGS", "FileSlice", "FoundBatch", "Log", "LogSettings", "SegmentInfo", "SwapJob"]


class SegmentInfo:
    """A segment as retention and DescribeLogDirs see it."""

    __slots__ = ("_reader", "base", "is_active", "size")

    def __init__(
        self, base: int, size: int, is_active: bool, reader: Callable[[], SegmentReader]
    ) -> None:
        self.base = base
        self.size = size
        self.is_active = is_active
        self._reader = reader

    @property
    def max_timestamp(self) -> int:
        """-1 if no record has one; may read the segment's index."""
        return self._reader().max_timestamp() if self.size else -1


class Host(LayoutHost, Protocol):
    """What a log needs of its store."""

    is_full: bool

    @property
    def seq(self) -> int: ...
    def add_job(self, job: "SwapJob") -> None: ...

    def mark_dirty(self, log: "Log") -> None: ...
    def request_flush(self, log: "Log") -> None: ...
    def note_damaged(self, log: "Log") -> None: ...


class SwapJob:
    """Gives the file that compaction made a name of its own, durably, before the journal speaks
    of it: a restart must not take the unfinished file of a later compaction for this one."""

    __slots__ = ("_files", "is_named", "life", "log", "swap")

    def __init__(self, files: Files, log: "Log", swap: items.Swap) -> None:
        self._files = files
        self.log = log
        self.life = log.life
        self.swap = swap
        self.is_named = False

    def run(self) -> None:
        """Raises FatalStorageError."""
        log, base = self.log, self.swap.bases[0]
        try:
            self._files.rename(log.swap_name(base), log.swap_name(base, str(self.swap.token)))
            self._files.sync_dir(log.directory)
        except FileNotFoundError:
            return  # The log was dropped meanwhile.
        except OSError as error:
            distrust.note(self._files)
            raise FatalStorageError(f"swap failed: {error}") from error
        self.is_named = True

    def is_current(self) -> bool:
        """Whether the journal may speak of it."""
        log = self.log
        return self.is_named and not (log.is_dropped or log.is_damaged or self.life != log.life)


_SMALL_ITEM_BYTES = 256
"""More than any item but BATCH and STATE takes."""


class Log(Layout):
    """One log. `end` includes what is staged; `stable_end` is what may be promised."""

    __slots__ = (
        "_has_cut",
        "_is_hard_staged",
        "_is_held",
        "_is_paused",
        "_ops",
        "_staged_cut",
        "_staged_end",
        "_unsafe_from",
        "epoch",
        "is_dropped",
        "is_forgotten",
        "log_start",
        "marks",
        "stable_end",
        "staged_bytes",
        "vote",
    )

    _host: Host

    def __init__(self, host: Host, state: items.State, settings: LogSettings) -> None:
        super().__init__(host, state, settings)
        self.epoch = state.epoch
        self.vote: Voter | None = state.vote
        self.marks = state.marks
        self.log_start = state.log_start
        self.is_forgotten = False
        """Of a directory that may have forgotten promises: comes back as a learner."""
        self.is_dropped = False
        self._staged_end = state.end_offset
        self.stable_end: Position = state.marks.position(state.end_offset)
        self._ops: list[Op] = []
        self.staged_bytes = 0
        """What the staged operations will take in the journal, at most."""
        self._has_cut = False
        """A cut that takes bytes away is staged: the log's turn is held."""
        self._staged_cut: Position | None = None
        """The lowest position that a staged cut goes back to."""
        self._unsafe_from: Position | None = None
        """Where an async log's promises end for now: before a change of voters that is not safe."""
        self._is_hard_staged = False
        self._is_held = False
        self._is_paused = False

    def __repr__(self) -> str:
        return f"<Log {self.uid} {self.topic_id}-{self.partition} {self.log_start}..{self.end}>"

    # ---- what it is

    @property
    def end(self) -> Position:
        return self.marks.position(self._staged_end)

    @property
    def end_offset(self) -> int:
        return self._staged_end

    @property
    def is_damaged(self) -> bool:
        return bool(self.damage)

    @property
    def is_cut_staged(self) -> bool:
        """Whether the files have more than the log, until the next turn has ended."""
        return self._staged_cut is not None

    @property
    def awaits_flush(self) -> bool:
        """Whether promises wait for a flush: see `_hold_back`."""
        return self._unsafe_from is not None

    def segments(self) -> list[SegmentInfo]:
        """Oldest first; the last one is active."""
        last = self.segments_list[-1]
        return [
            SegmentInfo(s.base, s.size, s is last, partial(self.reader, s))
            for s in self.segments_list
        ]

    # ---- staging

    def configure(self, settings: LogSettings) -> None:
        """Replace the settings. A change to sync holds appends back until the log is flushed."""
        self.settings = settings
        if self._is_paused:
            return  # It will find the settings when it goes on.
        is_async = next((op[1] for op in reversed(self._ops) if op[0] == MODE), self.is_async)
        if settings.is_async == is_async:
            return
        if settings.is_async:
            self._stage((MODE, True))
        elif not self.is_async:  # No turn has heard of the change: take it back.
            self._ops = [op for op in self._ops if op[0] != MODE]
        else:
            self._is_paused = True
            self._host.request_flush(self)

    def set_hard(self, epoch: int, vote: Voter | None) -> None:
        """Stage epoch and vote: nothing may be promised by them before the turn is durable."""
        assert epoch >= self.epoch, (epoch, self.epoch)
        self.epoch, self.vote = epoch, vote
        self._is_hard_staged = True
        self._host.mark_dirty(self)

    def add_mark(self, mark: Mark) -> None:
        assert mark.offset == self._staged_end, (mark, self.end)
        self.marks = self.marks.add(mark)
        self._stage((MARK, mark))

    def append(self, data: Buffer) -> None:
        """Stage whole batches, stamped with offset and epoch; they must not change any more.

        Raises StorageError if the disk is below its reserve or the log is damaged.
        """
        if self._host.is_full or self.damage:
            self._check_takes_appends()
        fields = HEADER.unpack_from(data)
        base, size = fields[0], fields[1] + LENGTH_OVERHEAD
        if size != len(data):
            self._append_each(data)
            return
        assert base == self._staged_end, (base, self.end)
        assert fields[2] == self.marks.items[-1].epoch, (fields[2], self.end)
        last = base + fields[6]
        if fields[9] >= 0:
            self.plain_from = last + 1
        self._ops.append((BATCH, data, size, base, last, fields[8]))
        self._staged_end = last + 1
        self.staged_bytes += size + BATCH_ITEM.size
        self._host.mark_dirty(self)

    def _check_takes_appends(self) -> None:
        if self.damage:
            raise StorageError("log is damaged")
        if not self.settings.may_use_reserve:
            raise StorageError("disk is below its reserve")

    def _append_each(self, data: Buffer) -> None:
        view = memoryview(data)
        position = 0
        while position < len(view):
            assert position + HEADER_SIZE <= len(view), "a batch is cut short"
            size = HEADER.unpack_from(view, position)[1] + LENGTH_OVERHEAD
            assert HEADER_SIZE <= size <= len(view) - position, "a batch is cut short"
            self.append(view[position : position + size])
            position += size

    def cut(self, position: Position) -> None:
        """Stage: the log ends at `position`, which it has (CUT)."""
        assert self.marks.has(position, self._staged_end, self.log_start), (position, self.end)
        assert position.offset >= self.log_start
        if position >= self.end:
            return
        generation = position[:2]
        self._ops = [
            op
            for op in self._ops
            if not (op[0] == BATCH and op[3] >= position.offset)
            and not (op[0] == MARK and op[1][:2] > generation)
        ]
        self.marks = self.marks.cut(position)
        self._staged_end = position.offset
        begun = self._begun
        if position < begun.end:
            self._has_cut = self._has_cut or position.offset < begun.end_offset
            self._staged_cut = min(position, self._staged_cut or position)
            self._hide_cut()
            # A swap of what is cut is none any more, so it must come later.
            swaps = [op for op in self._ops if op[0] == SWAP]
            self._ops = [op for op in self._ops if op[0] != SWAP]
            self._stage((CUT, position))
            self._ops += swaps
        if position < self.stable_end:
            self.stable_end = position

    def trim(self, log_start: int, commit: Position | None = None) -> None:
        """Stage: the log starts at `log_start`, which a committed mark carries (TRIM)."""
        if log_start <= self.log_start:
            return
        commit = self.commit if commit is None else commit
        assert log_start <= commit.offset <= self._staged_end, (log_start, commit, self.end)
        self.log_start = log_start
        self.marks = self.marks.trim(log_start, commit)
        self._stage_start()

    def _stage_start(self) -> None:
        base = self.marks.base
        self._stage((START, self.log_start, base.epoch, base.change))

    def keep_files(self, start: int | None) -> None:
        """Files from `start` on stay, though the log begins later, as of the turn that is next;
        None: none need stay. What was kept and need not stay any more goes with that turn."""
        self._files_from = start
        if self.has_file_below(self._files_start(self._begun.log_start)):
            self._stage_start()

    def roll(self) -> None:
        """Let the next batch begin a new segment."""
        self._after_roll = True

    def due_roll(self, now: int) -> bool:
        """Whether the active segment is as old as `segment_ms` allows."""
        active = self.segments_list[-1]
        return bool(active.size) and 0 <= self._first_timestamp(active) < now - self._segment_ms()

    def reset(self, base: Mark, log_start: int) -> None:
        """Stage: replaced by the empty log that begins at this mark (RESET)."""
        self.marks = Marks((base,))
        self.log_start = self._staged_end = log_start
        self._discard_swaps()
        self._ops = [op for op in self._ops if op[0] == MODE]  # Of the topic, not of its records.
        self._files_from = None
        self._has_cut = True
        self.stable_end = self._staged_cut = Position(-1, 0, log_start)
        self._hide_cut()
        self._stage((RESET, base, log_start))

    def replace_segments(self, bases: Sequence[int], size: int, max_timestamp: int) -> None:
        """Let one file take the place of closed, flushed segments (compaction).

        The new bytes are in `swap_name(bases[0])`, synced, with their directory entry; the index
        may lie beside it (.index.swap, .timeindex.swap). All must lie below `flushed_base`. A
        job gives the file a durable name of its own first; only then it is staged.
        """
        names = [segment.base for segment in self.segments_list]
        first = names.index(bases[0])
        assert names[first : first + len(bases)] == list(bases), (bases, names)
        assert bases[-1] < self.flushed_base, "not flushed"
        assert not self.is_swapping
        self.is_swapping = True
        swap = items.Swap(self.uid, self._host.seq, tuple(bases), size, max_timestamp)
        self._host.add_job(SwapJob(self._host.pool.files, self, swap))

    def stage_swap(self, swap: items.Swap) -> None:
        """The swap file has its durable name."""
        self._stage((SWAP, swap))

    def adopt(self, found: "Salvaged") -> None:
        """Stage: go on with what was salvaged of a damaged log, without the rest."""
        self._discard_swaps()  # Their files are of damaged ones.
        self._stage((ADOPT, found))

    def _discard_swaps(self) -> None:
        """Swaps that no turn has heard of."""
        for swap in [op[1] for op in self._ops if op[0] == SWAP]:
            self.discard_swap(swap)
        self._ops = [op for op in self._ops if op[0] != SWAP]

    @property
    def may_salvage(self) -> bool:
        """Whether what is damaged is all in the files, and nobody has salvaged it yet."""
        return not any(op[0] in (BATCH, ADOPT) for op in self._ops)

    def _hide_cut(self) -> None:
        """What lies beyond a staged cut is in the files still, and no part of the log any more."""
        if self._staged_cut is not None:
            self.readable_end = min(self.readable_end, self._staged_cut.offset)
            self.forget_fresh()

    def _stage(self, op: Op) -> None:
        self._ops.append(op)
        self.staged_bytes += _SMALL_ITEM_BYTES
        self._host.mark_dirty(self)

    # ---- the turn

    def begin(self, turn: Turn) -> None:
        """Write what is staged to segments and journal items, unless a flush must come first."""
        if self._is_hard_staged:
            self._is_hard_staged = False
            self._begun.epoch, self._begun.vote = self.epoch, self.vote
            turn.body.add(items.encode_hard(items.Hard(self.uid, self.epoch, self.vote)))
        if self._is_paused:
            turn.logs.append(self)
            return
        ops, self._ops = self._ops, []
        self._is_held = is_held = self._has_cut
        self._has_cut, self._staged_cut = False, None
        self.staged_bytes = 0
        self._rolled = None
        active = self.segments_list[-1]
        readable = active.readable
        at = 0
        while at < len(ops):
            if ops[at][0] != BATCH:
                self._begin_small(turn, ops[at])
                at += 1
                continue
            try:
                at = self._begin_some(turn, ops, at)
            except (OSError, BadBatchError) as error:
                self._refuse(turn, ops[at:], error)
                break
        self._hide_late(active, readable)
        if not is_held and not self._is_late:
            self.readable_end = self._begun.end_offset
            if self.is_async and all(op[0] == BATCH for op in ops):
                self._move_stable()
                turn.stable.append(self)
                return
        if self.is_async or self._unsafe_from is not None:
            self._hold_back()
        turn.logs.append(self)

    def _hide_late(self, active: Segment, readable: int) -> None:
        """What a turn wrote before its first late bytes is not to be shown before them either."""
        if self._is_late:
            for segment in self.segments_list:
                if segment is active:
                    segment.readable = readable
                elif segment.base > active.base:  # Begun in this turn.
                    segment.readable = 0

    def _hold_back(self) -> None:
        """Promise no change of voters, nor what follows it, before all below it is flushed.

        The journal has the mark, but who lost records that lie before it can't keep it, and would
        go on as a voter of the group that it was, perhaps as the only one.
        """
        marks = self._begun.marks
        self._unsafe_from = marks.before_change(self.safe_end) if self.is_async else None
        if self._unsafe_from is not None:
            self._host.request_flush(self)

    def _begin_some(self, turn: Turn, ops: list[Op], at: int) -> int:
        if not (turn.takes_batches or self.is_async):
            raise OSError(errno.ENOSPC, "the journal has no room")
        if len(ops) == 1 and not self._is_held:
            self._begin_one(turn, ops[0])
            return 1
        return self._begin_batches(turn, ops, at, self._is_held)

    def _refuse(self, turn: Turn, rest: Iterable[Op], error: Exception) -> None:
        """The disk took no more batches: all that depends on them did not happen."""
        if isinstance(error, BadBatchError):
            self._note_damage(error)
        self.forget_fresh()
        active = self.segments_list[-1]
        if active is self._rolled and not active.size:
            self.segments_list.pop()  # No turn has said that it is there, and START must not.
            turn.after.append(partial(self._unlink, active))
        else:
            turn.after.append(partial(self._cut_file, active, active.size))
        for op in rest:
            if op[0] in (START, SWAP, MODE):
                self._begin_small(turn, op)
        begun = self._begun
        self.marks, self._staged_end = begun.marks, begun.end_offset
        self.log_start = begun.log_start
        turn.refused.append(Refusal(self, self.end, StorageError(str(error))))

    def ended(self) -> bool:
        """The turn is durable and its afterwork is done; whether the stable end moved."""
        if self._is_held or self._is_late:
            self._is_held = self._is_late = False
            for segment in self.segments_list:
                segment.readable = segment.size
        self.readable_end = self._begun.end_offset
        self._hide_cut()
        return self._move_stable()

    def _move_stable(self) -> bool:
        begun = self._begun
        stable = begun.end
        if self._unsafe_from is not None:
            stable = min(stable, self._unsafe_from)
        if self._staged_cut is not None:
            # What lies beyond is durable now, but on its way out; the same offsets may be staged
            # again, and those are not durable.
            stable = min(stable, self._staged_cut)
        if stable == self.stable_end:
            return False
        self.stable_end = stable
        return True

    # ---- flushing (cleaner)

    def flush_noted(self, base: int, end_offset: int, cut_count: int) -> None:
        super().flush_noted(base, end_offset, cut_count)
        if self._unsafe_from is not None:
            self._hold_back()  # Again, if a cut came between, or another change of voters.

    def resume(self) -> None:
        """The flush that a change to sync waited for is noted."""
        if self._is_paused:
            self._is_paused = False
            if not self.settings.is_async:
                self._ops.insert(0, (MODE, False))
            self._host.mark_dirty(self)

    # ---- reading

    def read(
        self, offset: int, bytes_max: int, end_offset: int, *, whole_first_batch: bool = True
    ) -> list[FileSlice]:
        """Slices of batches from the one that holds `offset` up to `end_offset` at the latest.

        Raises KafkaError (OFFSET_OUT_OF_RANGE) outside of the log, StorageError if it is damaged.
        """
        if self.damage and self.log_start <= offset <= self._staged_end:
            raise StorageError("log is damaged")
        try:
            return self.read_good(
                offset, bytes_max, end_offset, whole_first_batch=whole_first_batch
            )
        except BadBatchError as error:
            self._note_damage(error)
            raise

    def read_good(
        self, offset: int, bytes_max: int, end_offset: int, *, whole_first_batch: bool = True
    ) -> list[FileSlice]:
        """The same of a log that may be damaged elsewhere, for those who check what they read."""
        if not self.log_start <= offset <= self._staged_end:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        end_offset = min(end_offset, self.readable_end)
        if offset >= end_offset:
            return []
        return reading.read(self, offset, bytes_max, end_offset, whole_first_batch)

    def bound(self, offset: int, slices: list[FileSlice], end_offset: int) -> int:
        """An offset that all which `read` gave is below: `end_offset`, or nearer if that is known.

        Raises StorageError if the log is damaged.
        """
        try:
            return reading.bound(self, offset, slices, end_offset)
        except BadBatchError as error:
            self._note_damage(error)
            raise

    def offset_behind(self, slices: list[FileSlice], size: int) -> int | None:
        """Where the log goes on behind so many bytes of what `read` gave, by what lies there; None if
        nothing does that can be told of."""
        return reading.offset_behind(self, slices, size)

    def read_removed(self, offset: int, log_start: int) -> list[FileSlice]:
        """Slices from `offset` to a start that is staged, or later, while the files that it takes
        away are there. Raises StorageError, also if the files have not all of it."""
        if any(op[0] == RESET for op in self._ops):
            raise StorageError("the files are those of the log before")
        if not self.segments_list[0].base <= offset <= log_start <= self.readable_end:
            raise StorageError(f"offsets from {offset} to {log_start} are not in the files")
        return reading.read(self, offset, sys.maxsize, log_start, whole_first_batch=True)

    def find_timestamp(self, timestamp: int, end_offset: int) -> FoundBatch | None:
        """The first batch below `end_offset` with a record at or after `timestamp`."""
        try:
            return reading.find_timestamp(self, timestamp, min(end_offset, self.readable_end))
        except BadBatchError as error:
            self._note_damage(error)
            raise

    def find_max_timestamp(self, end_offset: int) -> FoundBatch | None:
        """The first batch below `end_offset` that has the greatest timestamp of all."""
        try:
            return reading.find_max_timestamp(self, min(end_offset, self.readable_end))
        except BadBatchError as error:
            self._note_damage(error)
            raise

    def _note_damage(self, error: BadBatchError) -> None:
        """Bytes are not what was written: keep them, say so from now on and after a restart."""
        self.damage = (*self.damage, error.place)
        self.forget_fresh()  # What comes in the place of bad bytes may be less.
        self._host.note_damaged(self)
