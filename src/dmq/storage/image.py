"""One log as the journal tells it: the newest STATE, then everything after it, in order of time.

Pure: items in, state and pending bytes out. A note (STATE or FLUSHED) speaks of the time `as_of`,
so it takes its place there and what happened between follows it. `pending` are record bytes that
the synced files may lack, already cut and trimmed as later items say. Called by recovery.
"""

from bisect import bisect_left
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from dmq.errors import CorruptError
from dmq.raft.marks import Marks
from dmq.storage import items
from dmq.storage.items import OWN_TIME, Damage, SegmentState

ORDER_BITS = 24
"""An order is seq << 24 | place in the record: when an item holds, among all of a log's items."""


class Event(NamedTuple):
    """A small item, and when it holds: at its place in its record, or just after `as_of`."""

    order: int
    item: items.Item
    number: int
    """Journal file that has it."""

    @property
    def seq(self) -> int:
        return self.order >> ORDER_BITS


Bytes = tuple[int, int, int, int, int, int, int, int]
"""A BATCH: order · segment · byte there · length · journal file and position that have the bytes ·
end offset · greatest timestamp. A plain tuple: a full journal may have half a million."""


def event_of(item: items.Item, order: int, number: int) -> Event:
    """When this item holds."""
    as_of = getattr(item, "as_of", OWN_TIME)
    if as_of != OWN_TIME:
        order = ((as_of + 1) << ORDER_BITS) - 1
    return Event(order, item, number)


@dataclass(slots=True)
class Told:
    """All that the journal tells of one log, in journal order."""

    events: list[Event] = field(default_factory=list)
    batches: list[Bytes] = field(default_factory=list)

    def before(self, seq: int) -> "Told":
        """Without what happened from the record `seq` on."""
        return Told(
            [event for event in self.events if event.seq < seq],
            [batch for batch in self.batches if batch[0] >> ORDER_BITS < seq],
        )


class Image:
    """A log being put together. Valid once a STATE was applied."""

    def __init__(self, uid: int, *, may_lack: bool = False) -> None:
        self.uid = uid
        self.may_lack = may_lack
        """A lost record may have been the note that let older ones go: what is left begins anywhere."""
        self.state: items.State | None = None
        self.state_time = -1
        self.state_number = -1
        self.segments: dict[int, tuple[int, int]] = {}
        """Base -> size, greatest timestamp."""
        self.end_offset = 0
        self.flush_segment = 0
        self.flush_byte = 0
        self.pending: list[Bytes] = []
        self.swaps: list[items.Swap] = []
        self.was_async = False
        """At some time since the flush point: its files may have more than the journal knows."""

    @property
    def known(self) -> items.State:
        assert self.state is not None
        return self.state

    def apply_all(self, told: Told) -> None:
        """Apply all that the journal tells, in order of time, from the newest STATE on."""
        events = sorted(told.events, key=_order)
        for at in range(len(events) - 1, -1, -1):
            if isinstance(events[at].item, items.State):
                break
        else:
            return
        batches = told.batches
        done = bisect_left(batches, events[at].order, key=_order)
        for event in events[at:]:
            until = bisect_left(batches, event.order, lo=done, key=_order)
            self._batches(batches[done:until])
            done = until
            self.apply(event)
        self._batches(batches[done:])

    def apply(self, event: Event) -> None:
        item = event.item
        if isinstance(item, items.State):
            self._state(item, event)
            return
        handler = _HANDLERS.get(type(item))
        if handler is None:
            raise CorruptError(f"journal item {type(item).__name__} speaks of no log")
        getattr(self, handler)(item)

    def _state(self, item: items.State, event: Event) -> None:
        self.state = item
        self.state_time, self.state_number = event.seq, event.number
        self.segments = {base: (size, greatest) for base, size, greatest in item.segments}
        self.end_offset = item.end_offset
        last = item.segments[-1]
        self.flush_segment, self.flush_byte = last.base, last.size
        self.pending = []
        self.swaps = []
        self.was_async = item.is_async

    def _batches(self, batches: list[Bytes]) -> None:
        if not batches:
            return
        segments = self.segments
        unknown = items.UNKNOWN_TIMESTAMP
        for _, segment, byte, length, _, _, _, greatest in batches:
            if byte and (segment in segments or not self.may_lack):
                before = segments[segment][1]
                if before > greatest or before == unknown:
                    greatest = before
            elif byte:
                greatest = unknown
            segments[segment] = (byte + length, greatest)
        self.end_offset = batches[-1][6]
        self.pending += batches

    def _hard(self, item: items.Hard) -> None:
        self.state = self.known._replace(epoch=item.epoch, vote=item.vote)

    def _mark(self, item: items.MarkItem) -> None:
        self.state = self.known._replace(marks=self.known.marks.add(item.mark))

    def _mode(self, item: items.Mode) -> None:
        self.state = self.known._replace(is_async=item.is_async)
        self.was_async = item.is_async  # A change to sync waits for a flush of all before it.

    def _cut(self, item: items.Cut) -> None:
        self.state = self.known._replace(marks=self.known.marks.cut(item.position))
        if item.position.offset >= self.end_offset:
            return
        self.end_offset = item.position.offset
        place = (item.segment, item.byte)
        for base in [base for base in self.segments if base > item.segment]:
            del self.segments[base]
        self.segments[item.segment] = (item.byte, items.UNKNOWN_TIMESTAMP if item.byte else -1)
        kept = [p for p in self.pending if p[1:3] < place]
        if kept and kept[-1][1] == item.segment:
            last = kept[-1]
            kept[-1] = (*last[:3], min(last[3], item.byte - last[2]), *last[4:])
        self.pending = kept
        if place < (self.flush_segment, self.flush_byte):
            self.flush_segment, self.flush_byte = place

    def _start(self, item: items.Start) -> None:
        known = self.known
        self.state = known._replace(
            log_start=item.log_start,
            marks=known.marks.from_base(item.base_epoch, item.base_change),
        )
        for base in [base for base in self.segments if base < item.segment]:
            del self.segments[base]
        if item.segment not in self.segments:
            self.segments[item.segment] = (0, -1)
        self.pending = [p for p in self.pending if p[1] >= item.segment]
        if self.flush_segment < item.segment:
            self.flush_segment, self.flush_byte = item.segment, 0
        self.end_offset = max(self.end_offset, item.segment)

    def _swap(self, item: items.Swap) -> None:
        for base in item.bases:
            self.segments.pop(base, None)
        self.segments[item.bases[0]] = (item.size, item.max_timestamp)
        self.segments = dict(sorted(self.segments.items()))
        self.swaps.append(item)

    def _flushed(self, item: items.Flushed) -> None:
        for base, size, greatest in item.segments:
            self.segments[base] = (size, greatest)
        last = item.segments[-1]
        self.flush_segment, self.flush_byte = last.base, last.size
        self.end_offset = item.end_offset
        self.pending = []
        self.was_async = self.known.is_async

    def doubt(self) -> None:
        """The journal lost what came next: a cut may be among it, and all beyond the commit point
        may have been written anew, flushed or not. The files must be read again from there on."""
        known = self.known
        offset = known.log_start
        commit = known.marks.floor(known.commit, self.end_offset, known.log_start)
        if commit is not None and commit[:2] == known.commit[:2]:
            offset = commit.offset  # Else the hint speaks of what was to replace our tail.
        below = [base for base in self.segments if base <= offset]
        start = min(max(below, default=min(self.segments)), self.flush_segment)
        self.segments = {base: told for base, told in self.segments.items() if base < start}
        self.segments[start] = (0, -1)
        self.flush_segment, self.flush_byte = start, 0
        self.end_offset = start

    def lose_tail(self, segments: dict[int, tuple[int, int]], end_offset: int) -> None:
        """The files of an async log have this, whatever was written once."""
        known = self.known
        log_start = known.log_start
        marks = known.marks.up_to(end_offset)
        if end_offset < log_start or not len(marks):
            # Not even what was kept on purpose: an empty log at its start.
            end_offset = max(log_start, known.marks.base.offset)
            segments = {end_offset: (0, -1)}
            marks = Marks(tuple(m for m in known.marks if m.offset <= end_offset))
        self.segments = segments
        self.end_offset = end_offset
        self.state = known._replace(marks=marks)

    def final(self, damage: tuple[Damage, ...]) -> items.State:
        """The recovered state."""
        known = self.known
        end = known.marks.position(self.end_offset)
        return known._replace(
            end_offset=self.end_offset,
            commit=min(known.commit, end),
            segments=tuple(SegmentState(b, *self.segments[b]) for b in sorted(self.segments)),
            damage=damage,
        )


_order = itemgetter(0)

_HANDLERS = {
    items.Hard: "_hard",
    items.MarkItem: "_mark",
    items.Mode: "_mode",
    items.Cut: "_cut",
    items.Start: "_start",
    items.Swap: "_swap",
    items.Flushed: "_flushed",
}
