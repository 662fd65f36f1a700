"""What the core wants done to its log, as values: the caller performs them, in order and at once.

They match the log's staging methods one by one. Nothing here is durable by itself; the caller tells
the core with `durable` when a turn's sync has returned.
"""

from typing import NamedTuple

from dmq.types import Mark, Position, Voter


class SetHard(NamedTuple):
    """Remember this epoch and vote."""

    epoch: int
    vote: Voter | None


class AddMark(NamedTuple):
    """Append this mark at the log's end."""

    mark: Mark


class CutTo(NamedTuple):
    """The log ends here: drop all that lies beyond."""

    position: Position


class Take(NamedTuple):
    """Append the records start <= offset < stop of the append message that was just handed in.

    The log's end offset is `stop` afterwards, also where compaction took the last records away.
    """

    start: int
    stop: int


class Trim(NamedTuple):
    """The log starts here; a mark that says so is committed."""

    log_start: int
    commit: Position


class ResetTo(NamedTuple):
    """Replace the log by the empty one that begins with this mark at this offset."""

    base: Mark
    log_start: int


Write = SetHard | AddMark | CutTo | Take | Trim | ResetTo
