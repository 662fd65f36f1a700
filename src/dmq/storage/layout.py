"""The layout of one log: what its begun turns say, in which segments its bytes lie.

Turns the operations of a turn into journal items and segment writes. Files are only extended
before the turn is durable; cuts, unlinks, renames, and all bytes of a log that is cut in this
turn, go to the turn's afterwork. Never stages and never promises anything: that is `Log`, which
is a layout with what its caller has said since.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from dmq.errors import FatalStorageError
from dmq.raft.marks import Marks
from dmq.storage import compaction_points, items, reading
from dmq.storage.files import Buffer, File
from dmq.storage.fresh import Fresh, FreshBatches
from dmq.storage.index import RELATIVE_OFFSET_MAX
from dmq.storage.items import BATCH_HEAD_SIZE, BATCH_ITEM, Kind, SegmentState
from dmq.storage.segment import (
    BadBatchError,
    Segment,
    SegmentFiles,
    SegmentReader,
    save_index,
    walk,
)
from dmq.storage.turn import Fact, Turn
from dmq.types import Mark, Position

if TYPE_CHECKING:
    from dmq.storage.salvage import Salvaged

LOGS = "logs"
RESERVE_BYTES_MAX = 16 * 1024 * 1024
"""Blocks are reserved for as much again as a segment has, and for this much at most."""


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
    may_use_reserve: bool = False
    """Goes on when the disk is below its reserve: what deletes others' data must be able to."""


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


class LayoutHost(Protocol):
    """What a layout needs of its store."""

    pool: SegmentFiles
    fresh: FreshBatches
    late_bytes_min: int
    uncached_bytes_min: int

    def mark_unsynced(self, log: Any, now: int) -> None: ...


BATCH, MARK, CUT, START, SWAP, MODE, RESET, ADOPT = range(8)
"""Kinds of operations."""
_BEGIN = (
    "",
    "_begin_mark",
    "_begin_cut",
    "_begin_start",
    "_begin_swap",
    "_begin_mode",
    "_begin_reset",
    "_begin_adopt",
)
"""The methods that turn an operation into items and files."""

_KIND = int(Kind.BATCH)

Op = tuple[Any, ...]
"""(kind, …); a batch is (BATCH, bytes, size, base offset, last offset, greatest timestamp)."""


class Layout:
    """Segments and begun state of one log."""

    __slots__ = (
        "_after_roll",
        "_begun",
        "_files_from",
        "_host",
        "_is_late",
        "_rolled",
        "commit",
        "cut_count",
        "damage",
        "directory_changed",
        "flushed_base",
        "fresh",
        "gaps",
        "is_async",
        "is_leading",
        "is_read_soon",
        "is_recovering",
        "is_swapping",
        "life",
        "partition",
        "plain_from",
        "readable_end",
        "repair_count",
        "safe_end",
        "segments_list",
        "settings",
        "swap_count",
        "topic_id",
        "uid",
        "unsynced",
    )

    def __init__(self, host: LayoutHost, state: items.State, settings: LogSettings) -> None:
        self._host = host
        self.uid = state.uid
        self.topic_id: UUID = state.topic_id
        self.partition = state.partition
        self.settings = settings
        self.is_async = state.is_async
        self.fresh: list[Fresh] = []
        """Batches that are in the files and still in memory, in order."""
        self.is_read_soon = True
        """Whether clients are likely to read what is written now; a follower's bytes nobody does."""
        self.is_leading = False
        """Whether what is written now is sent to others."""
        self.plain_from = state.end_offset
        """No batch from here on has a producer with an id: this much is known without a look."""
        self.damage = state.damage
        self.is_recovering = state.is_recovering
        """An async log that may have lost acknowledged records: grants no vote, does not stand.
        Whoever knows it to be well again says so, and asks for a flush."""
        self.commit: Position = state.commit
        """A hint that is stored with the log; the broker sets it, nobody relies on it."""
        self._begun = Begun(state)
        self.segments_list = [Segment(self.directory, s) for s in state.segments]
        self.readable_end = state.end_offset
        """Records below this are in the files."""
        self._after_roll = False
        self._files_from: int | None = None
        """Files from here on stay, though the log begins later; None: none does."""
        self._is_late = False
        """Bytes of the turn under way are not in the files yet: the worker that syncs it writes."""
        self._rolled: Segment | None = None
        """The segment that the last batch of this turn began, if it did."""
        self.unsynced: dict[Segment, None] = {}
        """Segments written since the last flush began."""
        self.directory_changed = False
        self.flushed_base = state.segments[-1].base
        """Segments below this are flushed by a durable note: the journal never writes them again."""
        self.safe_end = state.end_offset
        """Of an async log: durable facts say that a loss of power takes no record below this."""
        self.cut_count = 0
        self.swap_count = 0
        """Rises whenever a compacted file takes the place of others."""
        self.repair_count = 0
        """How often bad bytes were written anew: who read before may have met them still."""
        self.is_swapping = False
        """A compacted file was given, and neither has its place yet nor was it discarded."""
        self.life = 0
        """Rises with every reset: a flush of a former life says nothing about this one."""
        self.gaps: tuple[tuple[int, int], ...] = ()
        """Offsets that were in bad bytes when this process gave those up, each from and to before."""

    @property
    def directory(self) -> str:
        return f"{LOGS}/{self.uid}"

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments_list)

    def reader(self, segment: Segment) -> SegmentReader:
        return SegmentReader(self._host.pool, segment, self.settings.index_interval_bytes)

    def swap_name(self, base: int, kind: str = "") -> str:
        """Where compaction puts the file that is to replace the segment `base`; with a kind, of the
        index that goes with it; with a token, the name that the journal knows."""
        return f"{self.directory}/{base:020d}.{kind}{'.' if kind else ''}swap"

    def salvage_name(self, base: int) -> str:
        """Where the good bytes of a damaged segment are put together."""
        return f"{self.directory}/{base:020d}.salvage.swap"

    def open_segment(self, segment: Segment) -> File:
        return self._host.pool.get(segment)

    def unsynced_bases(self) -> list[int]:
        """Bases of the segments that a flush must still sync; the active one always counts."""
        return [s.base for s in (*self.unsynced, self.segments_list[-1])]

    # ---- a turn's operations

    def _begin_small(self, turn: Turn, op: Op) -> None:
        getattr(self, _BEGIN[op[0]])(turn, *op[1:])

    def _begin_batches(self, turn: Turn, ops: list[Op], at: int, is_held: bool) -> int:
        """One run of batches into one segment; returns the next operation. Raises OSError."""
        segment = self._segment_for(turn, ops[at])
        run = self._run(ops, at, segment.size)
        parts = [op[1] for op in run]
        start = position = segment.size
        size = start + sum(op[2] for op in run)
        if is_held:
            self._reserve(segment, size)
            turn.after.append(partial(self._write_late, segment, start, parts))
        else:
            self._put(turn, segment, parts, size)
        if self.is_async:
            self._host.mark_unsynced(self, turn.now)
        self.unsynced[segment] = None
        interval = self.settings.index_interval_bytes
        for _, _, length, base, last, max_timestamp in run:
            segment.note(position, length, base, last, max_timestamp, interval)
            position += length
        if not is_held:
            self._keep_in_memory([Fresh(op[3], op[4] + 1, op[1]) for op in run])
        segment.size = size
        end = self._begun.end_offset = run[-1][4] + 1
        if not self.is_async:
            length, greatest = BATCH_HEAD_SIZE + size - start, max(op[5] for op in run)
            turn.body.add(
                BATCH_ITEM.pack(_KIND, length, self.uid, segment.base, start, end, greatest)
            )
            for data in parts:
                turn.body.add(data)
        return at + len(run)

    def _run(self, ops: list[Op], at: int, size: int) -> list[Op]:
        """The batches from `at` on that go into one segment; the first one always does."""
        room = self.settings.segment_bytes
        run: list[Op] = []
        for op in ops[at:] if at else ops:
            size += op[2] if op[0] == BATCH else 0
            if op[0] != BATCH or (run and size > room):
                break
            run.append(op)
        return run

    def _begin_one(self, turn: Turn, op: Op) -> None:
        """A single batch of a log that is not held: what most turns are made of. Raises OSError."""
        _, data, length, base, last, max_timestamp = op
        segment = self._segment_for(turn, op)
        start = segment.size
        self._put(turn, segment, (data,), start + length)
        self.unsynced[segment] = None
        segment.note(start, length, base, last, max_timestamp, self.settings.index_interval_bytes)
        segment.size = start + length
        self._keep_in_memory([Fresh(base, last + 1, data)])
        self._begun.end_offset = last + 1
        if self.is_async:
            self._host.mark_unsynced(self, turn.now)
            return
        length += BATCH_HEAD_SIZE
        turn.body.add(
            BATCH_ITEM.pack(_KIND, length, self.uid, segment.base, start, last + 1, max_timestamp)
        )
        turn.body.add(data)

    def _keep_in_memory(self, batches: list[Fresh]) -> None:
        """For those who are to be sent them, if there are any."""
        if self.is_leading and len(self._begun.marks.last.voters) > 1:
            self._host.fresh.add(self, batches)

    def forget_fresh(self) -> None:
        """Nobody needs it any more, or the files are to have other bytes than memory has."""
        if self.fresh:
            self._host.fresh.forget(self)

    def _put(self, turn: Turn, segment: Segment, parts: Sequence[Buffer], size: int) -> None:
        """Write the bytes that make the segment this long, now or beside the loop."""
        start = segment.size
        file = self._opened(segment, start)
        # Who has followers sends them these bytes before its own sync, perhaps out of the file.
        is_alone = len(self._begun.marks.last.voters) == 1
        is_late = is_alone and size - start >= self._host.late_bytes_min
        # What follows late bytes is late too, or a reader would find a hole before it.
        if (is_late or self._is_late) and self._is_reserved(segment, file, size):
            self._is_late = True
            turn.write_late(file, start, parts)
        else:
            assert not self._is_late
            file.write_at(start, parts, is_cached=self._has_reader(size - start))
            segment.readable = size

    def _has_reader(self, length: int) -> bool:
        """Whether so many bytes at the end are to stay in the page cache."""
        # What producers with ids wrote is read again for their next snapshot.
        is_plain = self.plain_from <= self._begun.end_offset
        return self.is_read_soon or not is_plain or length < self._host.uncached_bytes_min

    def _is_reserved(self, segment: Segment, file: File, size: int) -> bool:
        """Have blocks for this size. Raises OSError if there are none."""
        if size <= segment.reserved:
            return True
        ahead = min(size + min(size, RESERVE_BYTES_MAX), self.settings.segment_bytes)
        try:
            is_done = file.reserve(max(ahead, size))
        except OSError:
            ahead = size
            is_done = file.reserve(size)
        if is_done:
            segment.reserved = max(ahead, size)
        return is_done

    def _segment_for(self, turn: Turn, op: Op) -> Segment:
        """The active segment, or a new one if this batch must begin one."""
        _, _, length, base, last, max_timestamp = op
        active = self.segments_list[-1]
        if active.size == 0 or not self._must_roll(active, length, last, max_timestamp):
            return active
        self._after_roll = False
        self._close_segment(active)
        if active.reserved > active.size:
            turn.after.append(partial(self._cut_file, active, active.size))  # Gives blocks back.
        segment = self._rolled = Segment(self.directory, SegmentState(base, 0, -1))
        self.segments_list.append(segment)
        return segment

    def _must_roll(self, active: Segment, length: int, last: int, max_timestamp: int) -> bool:
        settings = self.settings
        index = active.index
        return (
            self._after_roll
            or active.size + length > settings.segment_bytes
            or last - active.base > RELATIVE_OFFSET_MAX
            or 0 <= self._first_timestamp(active) < max_timestamp - self._segment_ms()
            or (index is not None and index.entries() * 8 >= settings.index_bytes_max)
        )

    def _segment_ms(self) -> int:
        jitter = self.settings.segment_jitter_ms
        return self.settings.segment_ms - (self.uid * 2654435761 % jitter if jitter else 0)

    def _first_timestamp(self, segment: Segment) -> int:
        if segment.first_timestamp is None:
            segment.first_timestamp = self.reader(segment).first_timestamp()
        return segment.first_timestamp

    def _close_segment(self, segment: Segment) -> None:
        segment.hints.clear()
        if segment.size and segment.file is not None:
            save_index(self._host.pool.files, segment, is_closed=True)
            if segment.trusted_bytes == segment.size:
                segment.index = None  # Who reads behind loads it again.

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
        self.safe_end = min(self.safe_end, position.offset)
        self.readable_end = min(self.readable_end, position.offset)
        self.flushed_base = min(self.flushed_base, segment.base)
        self.cut_count += 1
        for gone in [s for s in self.segments_list if s.base > segment.base]:
            self.segments_list.remove(gone)
            self.unsynced.pop(gone, None)
            turn.after.append(partial(self._unlink, gone))
        segment.cut(byte, position.offset)
        turn.after.append(partial(self._cut_file, segment, byte))
        if self.is_async:
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
        try:
            byte = self.reader(segment).position(offset)
        except BadBatchError:
            byte = self._walk_to(segment, offset)
        return segment, byte

    def _walk_to(self, segment: Segment, offset: int) -> int:
        """As `SegmentReader.position`, where bytes behind `offset` are bad. Raises BadBatchError if
        those before it are, too, and StorageError if nobody can tell."""
        file = self._host.pool.get_any(segment)
        byte, following = 0, segment.base
        try:
            for place in walk(file, 0, min(segment.readable, file.size())):
                if place.last_offset >= offset:
                    return place.position
                byte, following = place.position + place.size, place.last_offset + 1
        except BadBatchError:
            if following == offset:
                return byte
            raise
        if following != offset:
            raise BadBatchError(segment.name(), byte, segment.readable)
        return byte

    def place_of(self, offset: int) -> tuple[int, int]:
        """Base of the segment, and the byte in it, where the record with this offset lies, or would.
        Raises StorageError."""
        segment, byte = self._locate(offset)
        return segment.base, byte

    def _is_amid_batch(self, segment: Segment, byte: int, offset: int) -> bool:
        """Whether a batch lies across this offset; one without records can, that compaction left."""
        if byte >= segment.readable:
            return False
        try:
            place = next(walk(self._host.pool.get_any(segment), byte, segment.readable))
        except BadBatchError:
            return False  # Whatever was there is to go.
        return place.base_offset < offset <= place.last_offset

    def can_cut(self, offset: int) -> bool:
        """Whether the log can end at this offset; not if the bytes before it are bad, or compaction
        left a batch that lies across.

        Raises StorageError or OSError if nobody can tell, for want of a descriptor for one: whoever
        took that for a no would throw the whole log away.
        """
        try:
            segment, byte = self._locate(offset)
        except BadBatchError:
            return False
        return not self._is_amid_batch(segment, byte, offset)

    def _begin_start(self, turn: Turn, log_start: int, epoch: int, change: int) -> None:
        begun = self._begun
        begun.log_start = log_start
        begun.marks = begun.marks.from_base(epoch, change)
        start = self._files_start(log_start)
        if log_start == begun.end_offset and self.segments_list[-1].size:
            if start < log_start:
                self._after_roll = True  # What comes next does not stay with what is to go.
            else:
                self._close_segment(self.segments_list[-1])
                self.segments_list.append(Segment(self.directory, SegmentState(log_start, 0, -1)))
        while len(self.segments_list) > 1 and self.segments_list[1].base <= start:
            gone = self.segments_list.pop(0)
            self.unsynced.pop(gone, None)
            turn.after.append(partial(self._unlink, gone))
        first = self.segments_list[0].base
        turn.body.add(items.encode_start(items.Start(self.uid, log_start, first, epoch, change)))

    def _files_start(self, log_start: int) -> int:
        """Below this no file need stay."""
        return log_start if self._files_from is None else min(log_start, self._files_from)

    def has_file_below(self, offset: int) -> bool:
        """Whether the first segment lies below `offset` as a whole."""
        first = self.segments_list[0]
        is_only = len(self.segments_list) == 1
        end = self._begun.end_offset if is_only else self.segments_list[1].base
        return bool(first.size or not is_only) and end <= offset

    def _begin_swap(self, turn: Turn, swap: items.Swap) -> None:
        new = Segment(self.directory, SegmentState(swap.bases[0], swap.size, swap.max_timestamp))
        new.suffix = f"{swap.token}.swap"
        kept = [s.base for s in self.segments_list]
        is_there = set(swap.bases) <= set(kept) and swap.bases[-1] < self.flushed_base
        if self.damage or not is_there:
            # Trimmed meanwhile, or cut; or what is bad is spoken of by its place in the old files.
            self.discard_swap(swap)
            return
        self.swap_count += 1
        self.forget_fresh()  # It has what compaction left out.
        turn.body.add(items.encode_swap(swap))
        at = kept.index(swap.bases[0])
        old = self.segments_list[at : at + len(swap.bases)]
        self.segments_list[at : at + len(old)] = [new]
        for gone in old:
            self.unsynced.pop(gone, None)  # As one is that was repaired.
        turn.after.append(partial(self._swap_files, old, new))

    def _begin_mode(self, turn: Turn, is_async: bool) -> None:
        self.is_async = is_async
        self.safe_end = self._begun.end_offset  # The journal has it, or a flush that it waited for.
        turn.body.add(items.encode_mode(items.Mode(self.uid, is_async)))

    def _begin_reset(self, turn: Turn, base: Mark, log_start: int) -> None:
        for gone in self.segments_list:
            turn.after.append(partial(self._unlink, gone))
        turn.after.append(partial(compaction_points.forget, self._host.pool.files))
        self.segments_list = [Segment(self.directory, SegmentState(log_start, 0, -1))]
        self.unsynced.clear()
        self.damage = ()
        self.readable_end = self.safe_end = log_start
        self.life += 1
        self.flushed_base = log_start
        begun = self._begun
        begun.marks, begun.log_start, begun.end_offset = Marks((base,)), log_start, log_start
        turn.body.add(items.encode_state(self.snapshot(items.OWN_TIME)))
        turn.facts.append(Fact(self.uid, items.OWN_TIME))

    def _begin_adopt(self, turn: Turn, found: "Salvaged") -> None:
        """Files without bad bytes take the places of damaged ones: those are given up.

        They do before the turn is durable. After a crash in between they lack bytes that the
        journal knows of, which is damage as before.
        """
        files = self._host.pool.files
        is_fit = found.life == self.life and found.cut_count == self.cut_count
        is_fit = is_fit and found.damage == self.damage  # Else others have sent what was missing.
        is_fit = is_fit and all(segment in found.synced for segment in self.unsynced)
        for old, state in found.files:
            if not is_fit or old not in self.segments_list:
                files.unlink(self.salvage_name(old.base))
                continue
            self._host.pool.unlink_indexes(old)
            files.rename(self.salvage_name(old.base), old.name())
            new = Segment(self.directory, state)
            self.segments_list[self.segments_list.index(old)] = new
        if not is_fit:
            return
        self.unsynced.clear()
        self.forget_fresh()  # It may have what is given up.
        self.damage, self.gaps = (), found.gaps
        self.safe_end = self._begun.end_offset
        self.flushed_base = self.segments_list[-1].base
        self.life += 1
        turn.sync_first[LOGS] = None  # The folder too may have been made anew.
        turn.sync_first[self.directory] = None
        turn.body.add(items.encode_state(self.snapshot(items.OWN_TIME)))
        turn.facts.append(Fact(self.uid, items.OWN_TIME))

    # ---- files

    def _write(self, segment: Segment, position: int, parts: Sequence[Buffer]) -> None:
        self._opened(segment, position).write_at(position, parts)

    def _opened(self, segment: Segment, position: int) -> File:
        """The file to write to at this position; at 0 it is made."""
        if segment.file is None:
            if position:
                return self._host.pool.get(segment)
            self._create(segment)
        assert segment.file is not None
        return segment.file

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

    def _unlink(self, segment: Segment) -> None:
        self._host.pool.unlink(segment)
        self.directory_changed = True

    def _cut_file(self, segment: Segment, size: int) -> None:
        segment.reserved = min(segment.reserved, size)
        if self._host.pool.files.exists(segment.name()):
            file = self._host.pool.get_any(segment)
            if file.size() >= size:  # Its end may be missing: that it is damaged was noted.
                file.cut(size)

    def discard_swap(self, swap: items.Swap) -> None:
        """The journal does not speak of it, and will not."""
        files = self._host.pool.files
        for kind in ("", str(swap.token), "index", "timeindex"):
            name = self.swap_name(swap.bases[0], kind)
            if files.exists(name):
                files.unlink(name)
        self.is_swapping = False

    def _swap_files(self, old: list[Segment], new: Segment) -> None:
        pool = self._host.pool
        pool.unlink_indexes(old[0])
        # Before anything goes that it stands for.
        pool.files.rename(new.name(), new.name("log"))
        for segment in old[1:]:
            pool.unlink(segment)
        new.suffix = "log"
        for suffix in ("index", "timeindex"):
            if pool.files.exists(new.name(f"{suffix}.swap")):
                pool.files.rename(new.name(f"{suffix}.swap"), new.name(suffix))
                new.trusted_bytes = new.size
        self.directory_changed = True
        self.is_swapping = False

    # ---- flushing

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
            self.is_recovering,
        )

    def flushed_note(self, as_of: int) -> items.Flushed:
        first = min(self.unsynced_bases())
        return items.Flushed(
            self.uid,
            as_of,
            self._begun.end_offset,
            tuple(s.state() for s in self.segments_list if s.base >= first),
        )

    def flush_noted(self, base: int, end_offset: int, cut_count: int) -> None:
        """A note about the log when `base` was its active segment is durable."""
        if cut_count == self.cut_count:
            self.flushed_base = max(self.flushed_base, base)
            self.safe_end = max(self.safe_end, end_offset)
