"""Positions and marks: where entries that take no offset lie in a log, and what that implies.

A log is records with offsets and, between them, marks. A mark is (epoch, change, offset, voters,
log start); a position is (epoch, change, offset) with the epoch and change of the last mark at or
before it. Tuple order is log order. `Marks` is a value: every change gives a new one, so storage
can hold the staged, the written and the recovered one side by side at no cost.

Called by storage (what a journal says) and by Raft (what two logs share). Knows no bytes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from dmq.types import Mark, Position


@dataclass(frozen=True, slots=True)
class Marks:
    """The marks of one log, oldest first; the first is the base."""

    items: tuple[Mark, ...] = ()

    def __post_init__(self) -> None:
        for before, after in pairwise(self.items):
            assert _generation(before) < _generation(after), (before, after)
            assert before.offset <= after.offset, (before, after)

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Mark]:
        return iter(self.items)

    @property
    def base(self) -> Mark:
        return self.items[0]

    @property
    def last(self) -> Mark:
        return self.items[-1]

    def position(self, end_offset: int) -> Position:
        """The log end, given the offset that the next record takes."""
        if not self.items:
            return Position(-1, 0, end_offset)
        last = self.items[-1]
        return Position(last.epoch, last.change, end_offset)

    def add(self, mark: Mark) -> "Marks":
        """With one more mark at the end."""
        if self.items:
            last = self.items[-1]
            assert _generation(mark) > _generation(last), (last, mark)
            assert mark.offset >= last.offset, (last, mark)
        more = Marks.__new__(Marks)
        object.__setattr__(more, "items", (*self.items, mark))
        return more

    def epoch_at(self, offset: int) -> int:
        """The epoch that the record with this offset must carry; -1 below the base."""
        for mark in reversed(self.items):
            if mark.offset <= offset:
                return mark.epoch
        return -1

    def at(self, offset: int) -> Mark:
        """The last mark at or before the record with this offset; the base, for what lies below."""
        for mark in reversed(self.items):
            if mark.offset <= offset:
                return mark
        return self.items[0]

    def fits(self, offset: int, epoch: int) -> bool:
        """Whether a record with this offset may carry this epoch."""
        if offset < self.items[0].offset:
            return epoch <= self.items[0].epoch  # Older marks are trimmed: committed long ago.
        return epoch == self.epoch_at(offset)

    def has(self, p: Position, end_offset: int, log_start: int) -> bool:
        """Whether `p` is a position of this log (CONTAINS)."""
        if not self.items:
            return False
        generation = (p.epoch, p.change)
        if generation < _generation(self.items[0]) or p.offset < log_start:
            return True  # Below the base: committed, hence common.
        index = self._find(generation)
        if index is None:
            return False
        return self.items[index].offset <= p.offset <= self._stop(index, end_offset)

    def floor(self, p: Position, end_offset: int, log_start: int) -> Position | None:
        """The greatest position of this log that is <= p; None if that lies below the base."""
        for index in range(len(self.items) - 1, -1, -1):
            mark = self.items[index]
            generation = _generation(mark)
            if generation == (p.epoch, p.change):
                offset = min(p.offset, self._stop(index, end_offset))
                if offset >= max(mark.offset, log_start):
                    return Position(mark.epoch, mark.change, offset)
            elif generation < (p.epoch, p.change):
                offset = self._stop(index, end_offset)
                return Position(mark.epoch, mark.change, offset) if offset >= log_start else None
        return None

    def cut(self, p: Position) -> "Marks":
        """Without the marks beyond `p` (CUT); those at its offset stay if they are <= p."""
        return Marks(tuple(m for m in self.items if (m.epoch, m.change) <= (p.epoch, p.change)))

    def up_to(self, end_offset: int) -> "Marks":
        """Without the marks that lie beyond this offset: for a log that lost its unsynced tail."""
        return Marks(tuple(m for m in self.items if m.offset <= end_offset))

    def trim(self, log_start: int, commit: Position) -> "Marks":
        """From the last committed mark at or below the log start on (TRIM)."""
        base = 0
        for index, mark in enumerate(self.items):
            if (
                mark.offset <= log_start
                and Position(mark.epoch, mark.change, mark.offset) <= commit
            ):
                base = index
        return Marks(self.items[base:])

    def from_base(self, epoch: int, change: int) -> "Marks":
        """From the mark with this epoch and change on."""
        return Marks(tuple(m for m in self.items if (m.epoch, m.change) >= (epoch, change)))

    def before_change(self, offset: int) -> Position | None:
        """The end of this log without its first change of voters beyond `offset`; None: no change."""
        for before, mark in pairwise(self.items):
            if mark.offset > offset and mark.voters != before.voters:
                return Position(before.epoch, before.change, mark.offset)
        return None

    def last_change(self) -> tuple[Mark, Mark] | None:
        """The last mark that changed the voters, behind the one before it; None: all have the same."""
        for index in range(len(self.items) - 1, 0, -1):
            before, mark = self.items[index - 1], self.items[index]
            if mark.voters != before.voters:
                return before, mark
        return None

    def end_of_epoch(self, epoch: int, end_offset: int) -> tuple[int, int]:
        """(greatest epoch <= `epoch`, its end offset), for OffsetForLeaderEpoch; (-1, -1): unknown."""
        found = -1
        for mark in self.items:
            if mark.epoch > epoch:
                return (found, mark.offset) if found >= 0 else (-1, -1)
            found = mark.epoch
        return (found, end_offset) if found >= 0 else (-1, -1)

    def _find(self, generation: tuple[int, int]) -> int | None:
        for index in range(len(self.items) - 1, -1, -1):
            if _generation(self.items[index]) == generation:
                return index
            if _generation(self.items[index]) < generation:
                return None
        return None

    def _stop(self, index: int, end_offset: int) -> int:
        return self.items[index + 1].offset if index + 1 < len(self.items) else end_offset


def _generation(mark: Mark) -> tuple[int, int]:
    return mark.epoch, mark.change
