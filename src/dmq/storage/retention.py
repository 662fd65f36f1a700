"""What `cleanup.policy=delete` may let go of: from where on a log is to be kept.

Owns the rules of age and size, as Kafka has them: whole segments only, oldest first, never beyond
the high watermark; the active segment counts too, but only as the last of all (the log then starts
at its end, in a new segment). Pure: values in, an offset out. What moves the log's start, and what
removes files, is somebody else. Called by the broker's housekeeping.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

UNLIMITED = -1


class Retained(Protocol):
    """A segment, as far as retention looks at it."""

    @property
    def base(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def max_timestamp(self) -> int:
        """Of its records; negative if none has one. May cost a read, so it is asked for last."""
        ...


class Retention(NamedTuple):
    """How much is kept; negative: no limit."""

    retention_ms: int
    retention_bytes: int


def new_log_start(
    segments: Sequence[Retained],
    *,
    end_offset: int,
    high_watermark: int,
    retention: Retention,
    now: int,
    seen_since: Callable[[int, int], int],
) -> int | None:
    """The offset below which all may go; None if everything is to stay.

    `seen_since` stands in where records have no timestamps: since when a segment, by its base, is
    known to have this size. It is asked about all such segments from the first that stays on.
    """
    excess_bytes = _excess(segments, retention.retention_bytes)
    start: int | None = None
    for at, segment in enumerate(segments):
        is_active = at + 1 == len(segments)
        next_base = end_offset if is_active else segments[at + 1].base
        if next_base > high_watermark or (is_active and not segment.size):
            break
        if segment.size > excess_bytes and not _is_expired(
            segment, retention.retention_ms, now, seen_since
        ):
            _note_untimed(segments[at:], seen_since)
            break
        excess_bytes -= segment.size
        start = next_base
    return start


def _excess(segments: Sequence[Retained], retention_bytes: int) -> int:
    if retention_bytes < 0:
        return UNLIMITED
    return sum(segment.size for segment in segments) - retention_bytes


def _is_expired(
    segment: Retained, retention_ms: int, now: int, seen_since: Callable[[int, int], int]
) -> bool:
    if retention_ms < 0:
        return False
    newest = segment.max_timestamp
    if newest < 0:
        newest = seen_since(segment.base, segment.size)
    return now - newest > retention_ms


def _note_untimed(segments: Sequence[Retained], seen_since: Callable[[int, int], int]) -> None:
    """Let the time of all segments without timestamps begin, not of one after the other."""
    if segments[0].max_timestamp < 0:
        for segment in segments:
            if segment.max_timestamp < 0:
                seen_since(segment.base, segment.size)
