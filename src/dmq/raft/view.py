"""One log as the core knows it: marks and ends, never bytes.

Owns the rules CONTAINS, FLOOR, APPEND (where two logs part), CUT, TRIM and RESET, and the three ends:

    end       all that was said to the log
    begun     what the log took into its last turn: may be sent to others
    durable   what a sync covered and no cut took away: may be promised

    commit <= end always; commit may exceed durable, for others have it.

Every change but those that the caller made itself is noted in `writes` for the log outside. Takes no
decision about roles. Used by the roles; `Marks` does the arithmetic.
"""

from collections.abc import Iterator
from itertools import pairwise

from dmq.raft.marks import Marks
from dmq.raft.quorum import NOTHING
from dmq.raft.writes import AddMark, CutTo, ResetTo, Take, Trim, Write
from dmq.types import Mark, Position, Voter


def position_of(mark: Mark) -> Position:
    """Where a mark lies: the position of a log that ends with it."""
    return Position(mark.epoch, mark.change, mark.offset)


def start_position(marks: Marks, log_start: int) -> Position:
    """The lowest position that a log with this beginning can name; all below is committed."""
    if not marks.items:
        return NOTHING
    base = marks.base
    return Position(base.epoch, base.change, max(log_start, base.offset))


def unclean_epoch(marks: Marks) -> int:
    """The last epoch whose first mark is not its change 0: nobody else leaves that out (UNCLEAN).

    Of the base it is unknown; who is below the base gets a reset anyway.
    """
    found = -1
    for before, mark in pairwise(marks.items):
        if mark.change and mark.epoch != before.epoch:
            found = mark.epoch
    return found


class LogView:
    """See the module."""

    __slots__ = (
        "_turn_end",
        "_unclean",
        "begun",
        "commit",
        "durable",
        "end",
        "log_start",
        "losses",
        "marks",
        "writes",
    )

    def __init__(
        self, marks: Marks, end_offset: int, log_start: int, commit: Position = NOTHING
    ) -> None:
        """A log as found at start, all of it durable; `commit` is the hint stored with it.

        The hint may be newer than the log: it may speak of what was to replace our tail. So it counts
        only as far as we have the very (epoch, change) that it names; else we begin at the base.
        """
        self.marks = marks
        self.end = marks.position(end_offset)
        self.log_start = log_start
        self.durable = self.begun = self._turn_end = self.end
        hint = marks.floor(commit, end_offset, log_start) or NOTHING
        start = start_position(marks, log_start)
        self.commit: Position = max(start, hint) if hint[:2] == commit[:2] else start
        self.losses = 0
        """How often committed positions had to be given up after an unclean election."""
        self.writes: list[Write] = []
        self._unclean: tuple[Marks, int] = (marks, unclean_epoch(marks))

    @property
    def unclean_epoch(self) -> int:
        """The last epoch in this log that began with a loss."""
        if self._unclean[0] is not self.marks:
            self._unclean = (self.marks, unclean_epoch(self.marks))
        return self._unclean[1]

    @property
    def voters(self) -> tuple[Voter, ...]:
        """Those of the last mark, committed or not."""
        return self.marks.items[-1].voters if self.marks.items else ()

    @property
    def are_voters_settled(self) -> bool:
        """Whether all who may have what was committed are among our voters.

        Of the changes of voters only the last may not be committed, for the one before had to be when
        it was written. If it may be taken back, and took a voter away, that one counts still.
        """
        change = self.marks.last_change()
        if change is None or position_of(change[1]) <= self.commit:
            return True
        return set(change[0].voters) <= set(self.voters)

    # ---- looking

    def has(self, p: Position) -> bool:
        """CONTAINS. Below our start all is committed, hence common: but nothing that comes after our
        commit in another log can lie there, unless that log lost what we had committed."""
        end, items = self.end, self.marks.items
        if p[2] < self.log_start and items:
            return p[:2] <= self.commit[:2]
        if p[0] == end[0] and p[1] == end[1] and items:  # Nearly always: after the last mark.
            return items[-1].offset <= p[2] <= end[2]
        return self.marks.has(p, end.offset, self.log_start)

    def floor(self, p: Position) -> Position | None:
        return self.marks.floor(p, self.end.offset, self.log_start)

    def is_below_start(self, p: Position) -> bool:
        """Whether an append can't begin at `p` any more: it would need what was let go."""
        base = self.marks.base
        return p[:2] < (base.epoch, base.change) or p.offset < self.log_start

    # ---- growing

    def appended(self, end_offset: int) -> Position:
        """The caller appended records up to here itself."""
        assert end_offset > self.end.offset, (end_offset, self.end)
        assert not self.writes, self.writes  # They belong before these records.
        self.end = Position(self.end[0], self.end[1], end_offset)
        return self.end

    def add_mark(self, mark: Mark) -> None:
        assert mark.offset == self.end.offset, (mark, self.end)
        self.marks = self.marks.add(mark)
        self.end = position_of(mark)
        self.writes.append(AddMark(mark))

    def is_lost_to(self, unclean_epoch: int) -> bool:
        """Whether a log with this unclean epoch may lack what we believe to be committed."""
        return unclean_epoch > self.commit.epoch

    def join(
        self, prev: Position, marks: tuple[Mark, ...], end: Position, unclean_epoch: int = -1
    ) -> bool:
        """Take the part of another log that follows `prev`, which we have, to `end` (APPEND).

        False if only a reset helps: the logs part below our start, in spite of all that was
        committed, and that is possible only after an unclean election.

        If we have `end` too there is nothing to do: the message is old or came twice, and what
        we hold beyond it may be newer than it is, so NOTHING is cut. Otherwise the logs part
        somewhere in between, and all of ours beyond that place goes.
        """
        if prev == self.end and not marks and end >= prev:
            if end > prev:
                self.writes.append(Take(prev.offset, end.offset))
                self.end = end
            return True
        if self.is_only_reset_left(prev, end, unclean_epoch):
            return False
        if self.has(end):
            return True
        steps = list(_steps(prev, marks, end))
        parting, index = self._parting(prev, steps)
        if parting != self.end:
            self.cut(parting, may_lose=self.is_lost_to(unclean_epoch))
        for p, mark in steps[index:]:
            if mark is not None:
                self.add_mark(mark)
            elif p.offset > self.end.offset:
                self.writes.append(Take(self.end.offset, p.offset))
                self.end = self.end._replace(offset=p.offset)
        assert self.end == end, (self.end, end)
        return True

    def is_only_reset_left(self, prev: Position, end: Position, unclean_epoch: int) -> bool:
        """What lies below our start is not common to a log that lost what we have committed."""
        if not self.is_lost_to(unclean_epoch):
            return False
        return self.is_below_start(prev) or self.is_below_start(end)

    def parting(self, prev: Position, marks: tuple[Mark, ...], end: Position) -> Position | None:
        """Where our log parts from the one that follows `prev` to `end`; None if ours goes on in it."""
        if self.has(end):
            return None
        parting, _ = self._parting(prev, list(_steps(prev, marks, end)))
        return parting if parting != self.end else None

    def _parting(
        self, prev: Position, steps: list[tuple[Position, Mark | None]]
    ) -> tuple[Position, int]:
        """The greatest common position, and the first step that leads beyond it."""
        common = prev
        for index, (p, mark) in enumerate(steps):
            if self.has(p):
                common = p
                continue
            if mark is None:
                ours = self.floor(p)
                if ours is not None and ours[:2] == p[:2] and ours > common:
                    common = ours
            return common, index
        raise AssertionError((prev, steps, self.end))

    # ---- shrinking

    def cut(self, p: Position, *, may_lose: bool = False) -> None:
        """End at `p`; voters and log start fall back with the marks (CUT)."""
        if p < self.commit:
            assert may_lose, (p, self.commit, self.end)
            self.commit = p
            self.losses += 1
        self.marks = self.marks.cut(p)
        assert self.marks.position(p.offset) == p, (self.marks, p)
        self._end_at(p)
        self.writes.append(CutTo(p))

    def refused(self, marks: Marks, end_offset: int, log_start: int) -> None:
        """The disk took less than it was told: this is what the log is, a prefix of ours."""
        self.marks, self.log_start = marks, log_start
        end = marks.position(end_offset)
        assert end >= self.durable, (end, self.durable)
        self._end_at(end)
        self.commit = min(self.commit, end)  # All that is left below it is committed still.

    def _end_at(self, p: Position) -> None:
        self.end = p
        self.durable = min(self.durable, p)
        self.begun = min(self.begun, p)
        # A sync that is under way covers what was cut; its return must not bring it back.
        self._turn_end = min(self._turn_end, p)

    def reset(self, base: Mark, log_start: int) -> None:
        """Begin again, empty, at a committed place above all that we have committed (RESET)."""
        self.marks = Marks((base,))
        self.log_start = log_start
        self.end = self.commit = Position(base.epoch, base.change, log_start)
        self.durable = self.begun = self._turn_end = NOTHING
        self.writes.append(ResetTo(base, log_start))

    # ---- committing

    def commit_to(self, p: Position) -> bool:
        """Move the commit point up, and the log start if a mark that is now committed says so."""
        if p <= self.commit:
            return False
        assert self.has(p), (p, self.end)
        passed = self.commit
        self.commit = p
        if passed[:2] == p[:2]:
            return True  # No mark in between.
        starts = [m.log_start for m in self.marks if passed < position_of(m) <= p]
        if starts and starts[-1] > self.log_start:
            self._trim(starts[-1])
        return True

    def _trim(self, log_start: int) -> None:
        assert log_start <= self.commit.offset, (log_start, self.commit)
        self.log_start = log_start
        self.marks = self.marks.trim(log_start, self.commit)
        self.writes.append(Trim(log_start, self.commit))

    # ---- the turn

    def turn_begins(self) -> None:
        """The log took all that it was told into a turn."""
        self.begun = self._turn_end = self.end

    def turn_ends(self, stable: Position) -> bool:
        """The log is durable up to `stable`; whether that moved our durable end.

        What was cut or reset since the turn began is not brought back (ACK's second check).
        """
        p = min(stable, self._turn_end)
        if not self.has(p):
            p = self.floor(p) or NOTHING
        if p <= self.durable:
            return False
        self.durable = p
        return True


def _steps(
    prev: Position, marks: tuple[Mark, ...], end: Position
) -> Iterator[tuple[Position, Mark | None]]:
    """An append's contents in order: records up to a position, then the mark there, and so on."""
    at = prev
    for mark in marks:
        yield at._replace(offset=mark.offset), None
        at = position_of(mark)
        yield at, mark
    yield at._replace(offset=end.offset), None
