"""Which part of a log compaction may take, and how badly it is needed.

Owns the choice, as Kafka's log cleaner makes it: closed segments below the high watermark, from
the oldest on, none with a record younger than `min.compaction.lag.ms`; worth it when the part not
yet cleaned is large enough against the whole, or older than `max.compaction.lag.ms` allows. Pure:
values in, values out. The work itself is compaction_run.py, in a process of its own. Called by the
broker's housekeeping.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol


class Compactable(Protocol):
    """A segment, as far as the choice looks at it."""

    @property
    def base(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def max_timestamp(self) -> int:
        """Of its records; may cost a read, so it is asked for only where it matters."""
        ...


class Lag(NamedTuple):
    """What a topic asks of compaction."""

    min_dirty_ratio: float
    min_lag_ms: int
    max_lag_ms: int


class Candidate(NamedTuple):
    """What would be cleaned: the first `taken` segments, keys from `first_dirty` up to `end`."""

    taken: int
    first_dirty: int
    end: int
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool
    """Something in it waits longer than `max.compaction.lag.ms`."""

    @property
    def dirty_ratio(self) -> float:
        return self.dirty_bytes / (self.clean_bytes + self.dirty_bytes)


def choose(
    segments: Sequence[Compactable],
    *,
    log_start: int,
    clean_point: int,
    limit: int,
    lag: Lag,
    now: int,
    first_timestamp: Callable[[int], int],
) -> Candidate | None:
    """What of this log is worth cleaning; None if nothing is.

    `segments` end with the active one, which is left alone; so is all at or above `limit` (the
    high watermark, or the first segment that is not flushed). `clean_point` is where the last
    cleaning ended. `first_timestamp` is of the segment with this index.
    """
    first_dirty = clean_point if log_start <= clean_point <= segments[-1].base else log_start
    oldest_taken = now - lag.min_lag_ms
    clean_bytes = dirty_bytes = taken = 0
    is_overdue = False
    for at, (segment, following) in enumerate(pairwise(segments)):
        if following.base > limit:
            break
        if following.base > first_dirty:
            if lag.min_lag_ms > 0 and segment.max_timestamp > oldest_taken:
                break
            dirty_bytes += segment.size
            is_overdue = is_overdue or _waits_too_long(at, lag.max_lag_ms, now, first_timestamp)
        if segment.base < first_dirty:
            clean_bytes += segment.size
        taken = at + 1
    if not dirty_bytes:
        return None
    found = Candidate(
        taken, first_dirty, segments[taken].base, clean_bytes, dirty_bytes, is_overdue
    )
    return found if is_overdue or found.dirty_ratio > lag.min_dirty_ratio else None


def _waits_too_long(
    index: int, max_lag_ms: int, now: int, first_timestamp: Callable[[int], int]
) -> bool:
    if now <= max_lag_ms:
        return False  # The default is for ever: don't look.
    oldest = first_timestamp(index)
    return 0 <= oldest < now - max_lag_ms
