"""One partition's log on this broker: staged operations, the layout of its segments.

A log is known three times: as staged (what the caller has said), as begun (what the turns say
that were written; between turns that is what is durable) and as files. Mutators only stage. The
store's turn calls `begin`, which writes segments and journal items, and `ended` when the turn is
durable. Files are only extended before that; cuts, unlinks, renames, and all bytes of a log that
is cut in this turn, wait for it.

    staged --begin_turn--> begun --sync, end_turn--> durable --flush--> free of the journal

Decides nothing about retention, compaction or roles. Called by broker and store.
"""

import errno
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol
from uuid import UUID

from dmq.errors import ErrorCode, FatalStorageError, KafkaError, StorageError
from dmq.raft.marks import Marks
from dmq.records import HEADER, HEADER_SIZE, LENGTH_OVERHEAD
from dmq.storage import items, reading
from dmq.storage.files import Buffer, File
from dmq.storage.index import RELATIVE_OFFSET_MAX
from dmq.storage.items import BATCH_HEAD_SIZE, BATCH_ITEM, Kind, SegmentState
from dmq.storage.reading import FileSlice, FoundBatch
from dmq.storage.segment import Segment, SegmentFiles, SegmentReader, save_index
from dmq.storage.turn import Fact, Refusal, Turn
from dmq.types import Mark, Position, Voter

LOGS = "logs"


@dataclass(frozen=True, slots=True)
class LogSettings:
    """How one log is kept; may be replaced at any time with `Log.configure`."""

    segment_bytes: int = 1024 * 1024 * 1024
    """A batch that does not fit begins a new segment. Too low: many files; too high: retention
    works in large steps. A batch larger than this has a segment of its own."""
    segment_ms: int = 7 * 24 * 3600 * 1000
    """A batch this much younger than the segment's first one begins a new segment."""
    segment_jitter_ms: int = 0
    """Up to this much earlier, by uid, so that many logs don't roll at once."""
    index_interval_bytes: int = 4096
    """One index entry per so many bytes. Too low: large indexes; too high: longer scans."""
    index_bytes_max: int = 10 * 1024 * 1024
    """A full index begins a new segment."""
    is_async: bool = False
    """Batches are not journalled but flushed every `flush_ms`: power loss may take them."""
    flush_ms: int = 1000
    """How long an async log's bytes may stay unsynced."""


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


class Begun:
    """The small things of a log as of the last turn begun; its segments are the log's own."""

    __slots__ = ("end_offset", "epoch", "log_start", "marks", "vote")

    def __init__(self, state: items.State) -> None:
        self.epoch = state.epoch
        self.vote = state.vote
        self.marks = state.marks
        self.log_start = state.log_start
        self.end_offset = state.end_offset

    @property
    def end(self) -> Position:
        return self.marks.position(self.end_offset)


class Host(Protocol):
    """What a log needs of its store."""

    pool: SegmentFiles
    is_full: bool

    @property
    def seq(self) -> int: ...

    def mark_dirty(self, log: "Log") -> None: ...
    def mark_unsynced(self, log: "Log", now: int) -> None: ...
    def request_flush(self, log: "Log") -> None: ...


_SMALL_ITEM_BYTES = 256
"""More than any item but BATCH and STATE takes."""

_BATCH, _MARK, _CUT, _START, _SWAP, _MODE, _RESET = range(7)
_BatchOp = tuple[int, Buffer, int, int, int, int]


class Log:
    """One log. `end` includes what is staged; `stable_end` is what may be promised."""

    __slots__ = (
        "_after_roll",
        "_begun",
        "_has_cut",
        "_host",
        "_is_hard_staged",
        "_is_held",
        "_is_paused",
        "_ops",
        "_staged_end",
        "commit",
        "damage",
        "directory_changed",
        "cut_count",
        "epoch",
        "flushed_base",
        "is_async",
        "is_dropped",
        "is_forgotten",
        "is_recovering",
        "life",
        "log_start",
        "marks",
        "partition",
        "readable_end",
        "segments_list",
        "settings",
        "stable_end",
        "staged_bytes",
        "topic_id",
        "uid",
        "unsynced",
        "vote",
    )

    def __init__(self, host: Host, state: items.State, settings: LogSettings) -> None:
        self._host = host
        self.uid = state.uid
        self.topic_id: UUID = state.topic_id
        self.partition = state.partition
        self.settings = settings
        self.epoch = state.epoch
        self.vote: Voter | None = state.vote
        self.marks = state.marks
        self.log_start = state.log_start
        self.commit: Position = state.commit
        """A hint that is stored with the log; the broker sets it, nobody relies on it."""
        self.is_async = state.is_async
        self.damage = state.damage
        self.is_recovering = False
        """An async log that may have lost acknowledged records: grants no vote, does not stand."""
        self.is_forgotten = False
        """Of a directory that may have forgotten promises: comes back as a learner."""
        self.is_dropped = False
        self.life = 0
        """Rises with every reset: a flush of a former life says nothing about this one."""
        self._staged_end = state.end_offset
        self._begun = Begun(state)
        self.segments_list = [Segment(self.directory, s) for s in state.segments]
        self.readable_end = state.end_offset
        self.stable_end: Position = state.marks.position(state.end_offset)
        self._ops: list[tuple[object, ...]] = []
        self.staged_bytes = 0
        """What the staged batches will take in the journal."""
        self._has_cut = False
        self._is_hard_staged = False
        self._is_held = False
        self._is_paused = False
        self._after_roll = False
        self.unsynced: dict[Segment, None] = {}
        """Segments written since the last flush began."""
        self.flushed_base = state.segments[-1].base
        """Segments below this are flushed by a durable note: the journal never writes them again."""
        self.cut_count = 0
        self.directory_changed = False

    def __repr__(self) -> str:
        return f"<Log {self.uid} {self.topic_id}-{self.partition} {self.log_start}..{self.end}>"

    # ---- what it is

    @property
    def directory(self) -> str:
        return f"{LOGS}/{self.uid}"

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
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments_list)

    def segments(self) -> list[SegmentInfo]:
        """Oldest first; the last one is active."""
        last = self.segments_list[-1]
        return [
            SegmentInfo(s.base, s.size, s is last, partial(self.reader, s))
            for s in self.segments_list
        ]

    def reader(self, segment: Segment) -> SegmentReader:
        return SegmentReader(self._host.pool, segment, self.settings.index_interval_bytes)

    # ---- staging

    def configure(self, settings: LogSettings) -> None:
        """Replace the settings. A change to sync holds appends back until the log is flushed."""
        self.settings = settings
        if settings.is_async == self.is_async or self._is_paused:
            return
        if settings.is_async:
            self._stage((_MODE, True))
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
        self._stage((_MARK, mark))

    def append(self, data: Buffer, *, may_skip: bool = False) -> None:
        """Stage whole batches, stamped with offset and epoch; they must not change any more.

        `may_skip` allows offsets missing before a batch, as compaction leaves them.
        Raises StorageError if the disk is below its reserve or the log is damaged.
        """
        if self._host.is_full or self.damage:
            raise StorageError("log is damaged" if self.damage else "disk is below its reserve")
        fields = HEADER.unpack_from(data)
        base, size = fields[0], fields[1] + LENGTH_OVERHEAD
        if size != len(data):
            self._append_each(data, may_skip)
            return
        assert base == self._staged_end or (may_skip and base > self._staged_end), (base, self.end)
        assert fields[2] == self.marks.items[-1].epoch, (fields[2], self.end)
        last = base + fields[6]
        self._ops.append((_BATCH, data, size, base, last, fields[8]))
        self._staged_end = last + 1
        self.staged_bytes += size + BATCH_ITEM.size
        self._host.mark_dirty(self)

    def _append_each(self, data: Buffer, may_skip: bool) -> None:
        view = memoryview(data)
        position = 0
        while position < len(view):
            assert position + HEADER_SIZE <= len(view), "a batch is cut short"
            size = HEADER.unpack_from(view, position)[1] + LENGTH_OVERHEAD
            assert HEADER_SIZE <= size <= len(view) - position, "a batch is cut short"
            self.append(view[position : position + size], may_skip=may_skip)
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
            if not (op[0] == _BATCH and op[3] >= position.offset)  # type: ignore[operator]
            and not (op[0] == _MARK and op[1][:2] > generation)  # type: ignore[index]
        ]
        self.marks = self.marks.cut(position)
        self._staged_end = position.offset
        begun = self._begun
        if position < begun.end:
            self._has_cut = self._has_cut or position.offset < begun.end_offset
            self._stage((_CUT, position))
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
        base = self.marks.base
        self._stage((_START, log_start, base.epoch, base.change))

    def roll(self) -> None:
        """Let the next batch begin a new segment."""
        self._after_roll = True

    def due_roll(self, now: int) -> bool:
        """Whether the active segment is as old as `segment_ms` allows."""
        active = self.segments_list[-1]
        return bool(active.size) and now - self._first_timestamp(active) > self._segment_ms()

    def reset(self, base: Mark, log_start: int) -> None:
        """Stage: replaced by the empty log that begins at this mark (RESET)."""
        self.marks = Marks((base,))
        self.log_start = self._staged_end = log_start
        self._ops = []
        self._has_cut = True
        self.stable_end = min(self.stable_end, self.end)
        self._stage((_RESET, base, log_start))

    def swap_name(self, base: int) -> str:
        """Where compaction puts the file that is to replace the segment `base`."""
        return f"{self.directory}/{base:020d}.swap"

    def replace_segments(self, bases: Sequence[int], size: int, max_timestamp: int) -> None:
        """Stage: closed, flushed segments become one file (compaction).

        The new bytes are in `swap_name(bases[0])`, synced, with their directory entry; the index
        may lie beside it (.index.swap, .timeindex.swap). All must lie below `flushed_base`.
        """
        names = [segment.base for segment in self.segments_list]
        first = names.index(bases[0])
        assert names[first : first + len(bases)] == list(bases), (bases, names)
        assert bases[-1] < self.flushed_base, "not flushed"
        self._stage((_SWAP, tuple(bases), size, max_timestamp))

    def unsynced_bases(self) -> list[int]:
        """Bases of the segments that a flush must still sync; the active one always counts."""
        return [s.base for s in (*self.unsynced, self.segments_list[-1])]

    def _stage(self, op: tuple[object, ...]) -> None:
        self._ops.append(op)
        self.staged_bytes += _SMALL_ITEM_BYTES
        self._host.mark_dirty(self)

    # ---- the turn

    def begin(self, turn: Turn) -> bool:
        """Write what is staged to segments and journal items; False if it must wait."""
        if self._is_hard_staged:
            self._is_hard_staged = False
            self._begun.epoch, self._begun.vote = self.epoch, self.vote
            turn.body.add(items.encode_hard(items.Hard(self.uid, self.epoch, self.vote)))
        if self._is_paused:
            turn.logs.append(self)
            return not self._ops
        ops, self._ops = self._ops, []
        self._is_held = is_held = self._has_cut
        self._has_cut = False
        self.staged_bytes = 0
        at = 0
        while at < len(ops):
            if ops[at][0] != _BATCH:
                _BEGIN[ops[at][0]](self, turn, *ops[at][1:])  # type: ignore[index]
                at += 1
                continue
            try:
                if not (turn.takes_batches or self.is_async):
                    raise OSError(errno.ENOSPC, "the journal has no room")
                at = self._begin_batches(turn, ops, at, is_held)
            except OSError as error:
                self._refuse(turn, ops[at:], error)
                break
        if not is_held:
            self.readable_end = self._begun.end_offset
            if self.is_async and all(op[0] == _BATCH for op in ops):
                self._move_stable()
                turn.stable.append(self)
                return True
        turn.logs.append(self)
        return True

    def _begin_batches(
        self, turn: Turn, ops: list[tuple[object, ...]], at: int, is_held: bool
    ) -> int:
        """One run of batches into one segment; returns the next operation. Raises OSError."""
        first: _BatchOp = ops[at]  # type: ignore[assignment]
        segment = self._segment_for(first)
        start = size = segment.size
        room = self.settings.segment_bytes
        parts: list[Buffer] = []
        noted: list[_BatchOp] = []
        greatest = -1
        for op in ops[at:] if at else ops:
            if op[0] != _BATCH:
                break
            _, data, length, _, last, max_timestamp = batch = op  # type: ignore[misc]
            if parts and size + length > room:
                break
            parts.append(data)
            noted.append(batch)
            size += length
            if max_timestamp > greatest:
                greatest = max_timestamp
        if is_held:
            self._reserve(segment, size)
            turn.after.append(partial(self._write_late, segment, start, parts))
        else:
            self._write(segment, start, parts)
        self._host.mark_unsynced(self, turn.now)
        self.unsynced[segment] = None
        interval = self.settings.index_interval_bytes
        position = start
        for _, _, length, base, last, max_timestamp in noted:
            segment.note(position, length, base, last, max_timestamp, interval)
            position += length
        segment.size = size
        if not is_held:
            segment.readable = size
        self._begun.end_offset = last + 1
        if not self.is_async:
            body = turn.body
            length = BATCH_HEAD_SIZE + size - start
            body.add(
                BATCH_ITEM.pack(
                    Kind.BATCH, length, self.uid, segment.base, start, last + 1, greatest
                )
            )
            for data in parts:
                body.add(data)
        return at + len(noted)

    def _segment_for(self, op: _BatchOp) -> Segment:
        """The active segment, or a new one if this batch must begin one."""
        _, _, length, base, last, max_timestamp = op
        active = self.segments_list[-1]
        if active.size == 0 or not self._must_roll(active, length, last, max_timestamp):
            return active
        self._after_roll = False
        self._close_segment(active)
        segment = Segment(self.directory, SegmentState(base, 0, -1))
        self.segments_list.append(segment)
        return segment

    def _must_roll(self, active: Segment, length: int, last: int, max_timestamp: int) -> bool:
        settings = self.settings
        index = active.index
        return (
            self._after_roll
            or active.size + length > settings.segment_bytes
            or last - active.base > RELATIVE_OFFSET_MAX
            or max_timestamp - self._first_timestamp(active) > self._segment_ms()
            or (index is not None and index.entries() * 8 >= settings.index_bytes_max)
        )

    def _segment_ms(self) -> int:
        jitter = self.settings.segment_jitter_ms
        return self.settings.segment_ms - (self.uid * 2654435761 % jitter if jitter else 0)

    def _first_timestamp(self, segment: Segment) -> int:
        if segment.first_timestamp is None:
            segment.first_timestamp = reading.first_timestamp(self.reader(segment))
        return segment.first_timestamp

    def _close_segment(self, segment: Segment) -> None:
        if segment.size and segment.file is not None:
            save_index(self._host.pool.files, segment, is_closed=True)

    def _write(self, segment: Segment, position: int, parts: list[Buffer]) -> None:
        pool = self._host.pool
        if segment.file is None:
            if position:
                pool.get(segment)
            else:
                self._create(segment)
        assert segment.file is not None
        segment.file.write_at(position, parts)

    def _create(self, segment: Segment) -> None:
        files = self._host.pool.files
        files.make_dir(self.directory)
        file = self._host.pool.create(segment)
        self.directory_changed = True
        if file.size():
            file.cut(0)  # A former file of this name, not part of this log.

    def _reserve(self, segment: Segment, size: int) -> None:
        """Room for bytes that are written when the turn is durable, and can't be refused then."""
        files = self._host.pool.files
        files.make_dir(self.directory)
        files.open(segment.name(), create=True).allocate(size)
        self.directory_changed = True

    def _write_late(self, segment: Segment, position: int, parts: list[Buffer]) -> None:
        try:
            self._write(segment, position, parts)
        except OSError as error:
            # It is promised and can't be refused any more; the journal has it for the next start.
            raise FatalStorageError(f"{segment.name()}: {error}") from error

    def _refuse(self, turn: Turn, rest: Iterable[tuple[object, ...]], error: OSError) -> None:
        """The disk took no more batches: all that depends on them did not happen."""
        for op in rest:
            if op[0] in (_START, _SWAP, _MODE):
                _BEGIN[op[0]](self, turn, *op[1:])  # type: ignore[index]
        begun = self._begun
        self.marks, self._staged_end = begun.marks, begun.end_offset
        self.log_start = begun.log_start
        active = self.segments_list[-1]
        if active.size == 0 and len(self.segments_list) > 1 and active not in self.unsynced:
            self.segments_list.pop()
            turn.after.append(partial(self._unlink, active))
        else:
            turn.after.append(partial(self._cut_file, active, active.size))
        turn.refused.append(Refusal(self, self.end, StorageError(str(error))))

    def _begin_mark(self, turn: Turn, mark: Mark) -> None:
        self._begun.marks = self._begun.marks.add(mark)
        turn.body.add(items.encode_mark(items.MarkItem(self.uid, mark)))

    def _begin_cut(self, turn: Turn, position: Position) -> None:
        segment, byte = self._locate(position.offset)
        turn.body.add(items.encode_cut(items.Cut(self.uid, position, segment.base, byte)))
        begun = self._begun
        begun.marks = begun.marks.cut(position)
        if position.offset >= begun.end_offset:
            return
        begun.end_offset = position.offset
        self.readable_end = min(self.readable_end, position.offset)
        self.flushed_base = min(self.flushed_base, segment.base)
        self.cut_count += 1
        for gone in [s for s in self.segments_list if s.base > segment.base]:
            self.segments_list.remove(gone)
            self.unsynced.pop(gone, None)
            turn.after.append(partial(self._unlink, gone))
        segment.cut(byte, position.offset)
        turn.after.append(partial(self._cut_file, segment, byte))
        self._host.mark_unsynced(self, turn.now)
        self.unsynced[segment] = None

    def _locate(self, offset: int) -> tuple[Segment, int]:
        """The segment and byte at which the record with this offset begins, or would."""
        if offset >= self._begun.end_offset:
            active = self.segments_list[-1]
            return active, active.size
        segment = self.segments_list[reading.segment_at(self.segments_list, offset)]
        if segment.size == 0:
            return segment, 0
        byte = self.reader(segment).position(offset)
        return segment, byte

    def _begin_start(self, turn: Turn, log_start: int, epoch: int, change: int) -> None:
        begun = self._begun
        begun.log_start = log_start
        begun.marks = begun.marks.from_base(epoch, change)
        if log_start == begun.end_offset and self.segments_list[-1].size:
            self._close_segment(self.segments_list[-1])
            self.segments_list.append(Segment(self.directory, SegmentState(log_start, 0, -1)))
        while len(self.segments_list) > 1 and self.segments_list[1].base <= log_start:
            gone = self.segments_list.pop(0)
            self.unsynced.pop(gone, None)
            turn.after.append(partial(self._unlink, gone))
        first = self.segments_list[0].base
        turn.body.add(items.encode_start(items.Start(self.uid, log_start, first, epoch, change)))

    def _begin_swap(
        self, turn: Turn, bases: tuple[int, ...], size: int, max_timestamp: int
    ) -> None:
        kept = [s.base for s in self.segments_list]
        files = self._host.pool.files
        if not set(bases) <= set(kept):
            files.unlink(self.swap_name(bases[0]))  # Trimmed meanwhile.
            return
        # A name of its own, durable with the turn: a restart must not take the unfinished file of
        # the next compaction for this one.
        token = self._host.seq
        new = Segment(self.directory, SegmentState(bases[0], size, max_timestamp))
        new.suffix = f"{token}.swap"
        files.rename(self.swap_name(bases[0]), new.name())
        turn.sync_first[self.directory] = None
        turn.body.add(items.encode_swap(items.Swap(self.uid, token, bases, size, max_timestamp)))
        at = kept.index(bases[0])
        old = self.segments_list[at : at + len(bases)]
        self.segments_list[at : at + len(old)] = [new]
        turn.after.append(partial(self._swap_files, old, new))

    def _swap_files(self, old: list[Segment], new: Segment) -> None:
        pool = self._host.pool
        for segment in old:
            pool.unlink(segment)
        pool.files.rename(new.name(), new.name("log"))
        new.suffix = "log"
        for suffix in ("index", "timeindex"):
            if pool.files.exists(new.name(f"{suffix}.swap")):
                pool.files.rename(new.name(f"{suffix}.swap"), new.name(suffix))
                new.trusted_bytes = new.size
        self.directory_changed = True

    def _begin_mode(self, turn: Turn, is_async: bool) -> None:
        self.is_async = is_async
        turn.body.add(items.encode_mode(items.Mode(self.uid, is_async)))

    def _begin_reset(self, turn: Turn, base: Mark, log_start: int) -> None:
        for gone in self.segments_list:
            turn.after.append(partial(self._unlink, gone))
        self.segments_list = [Segment(self.directory, SegmentState(log_start, 0, -1))]
        self.unsynced.clear()
        self.damage = ()
        self.readable_end = log_start
        self.life += 1
        self.flushed_base = log_start
        begun = self._begun
        begun.marks, begun.log_start, begun.end_offset = Marks((base,)), log_start, log_start
        turn.body.add(items.encode_state(self.snapshot(items.OWN_TIME)))
        turn.facts.append(Fact(self.uid, items.OWN_TIME))

    def _unlink(self, segment: Segment) -> None:
        self._host.pool.unlink(segment)
        self.directory_changed = True

    def _cut_file(self, segment: Segment, size: int) -> None:
        if self._host.pool.files.exists(segment.name()):
            self._host.pool.get(segment).cut(size)

    def ended(self) -> bool:
        """The turn is durable and its afterwork is done; whether the stable end moved."""
        if self._is_held:
            self._is_held = False
            for segment in self.segments_list:
                segment.readable = segment.size
        self.readable_end = self._begun.end_offset
        return self._move_stable()

    def _move_stable(self) -> bool:
        begun = self._begun
        # What is staged now may have been cut since: nothing beyond that is promised.
        stable = min(begun.end, self.end)
        if stable == self.stable_end:
            return False
        self.stable_end = stable
        return True

    # ---- flushing (cleaner)

    def open_segment(self, segment: Segment) -> File:
        return self._host.pool.get(segment)

    def snapshot(self, as_of: int) -> items.State:
        """The log as begun; between turns that is as durable."""
        begun = self._begun
        return items.State(
            self.uid,
            as_of,
            self.topic_id,
            self.partition,
            self.is_async,
            begun.epoch,
            begun.vote,
            begun.log_start,
            begun.end_offset,
            self.commit,
            begun.marks,
            tuple(segment.state() for segment in self.segments_list),
            self.damage,
        )

    def flushed_note(self, as_of: int) -> items.Flushed:
        first = min(self.unsynced_bases())
        return items.Flushed(
            self.uid,
            as_of,
            self._begun.end_offset,
            tuple(s.state() for s in self.segments_list if s.base >= first),
        )

    def flush_noted(self, base: int, cut_count: int) -> None:
        """A note about the log when `base` was its active segment is durable."""
        if cut_count == self.cut_count:
            self.flushed_base = max(self.flushed_base, base)

    def resume(self) -> None:
        """The flush that a change to sync waited for is noted."""
        if self._is_paused:
            self._is_paused = False
            self._ops.insert(0, (_MODE, False))
            self._host.mark_dirty(self)

    # ---- reading

    def read(
        self, offset: int, bytes_max: int, end_offset: int, *, whole_first_batch: bool = True
    ) -> list[FileSlice]:
        """Slices of batches from the one that holds `offset` up to `end_offset` at the latest.

        Raises KafkaError (OFFSET_OUT_OF_RANGE) outside of the log, StorageError if it is damaged.
        """
        if not self.log_start <= offset <= self._staged_end:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if self.damage:
            raise StorageError("log is damaged")
        end_offset = min(end_offset, self.readable_end)
        if offset >= end_offset:
            return []
        return reading.read(self, offset, bytes_max, end_offset, whole_first_batch)

    def find_timestamp(self, timestamp: int, end_offset: int) -> FoundBatch | None:
        """The first batch below `end_offset` with a record at or after `timestamp`."""
        return reading.find_timestamp(self, timestamp, min(end_offset, self.readable_end))

    def find_max_timestamp(self, end_offset: int) -> FoundBatch | None:
        """The first batch below `end_offset` that has the greatest timestamp of all."""
        return reading.find_max_timestamp(self, min(end_offset, self.readable_end))


_BEGIN: dict[object, Callable[..., None]] = {
    _MARK: Log._begin_mark,
    _CUT: Log._begin_cut,
    _START: Log._begin_start,
    _SWAP: Log._begin_swap,
    _MODE: Log._begin_mode,
    _RESET: Log._begin_reset,
}
