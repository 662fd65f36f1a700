"""Deadlines by name: what must happen when nobody says anything.

Soft: lost with the leadership, and set anew at full length by the next leader. Setting a timer again
moves it; a session that is moved with every heartbeat costs a dictionary entry, not a place in the
heap. Knows no clock: the machine asks what is due at a moment that it was told.
"""

import enum
import heapq
from typing import NamedTuple


class TimerKind(enum.IntEnum):
    """What a deadline is for."""

    SESSION = enum.auto()
    """A member of a classic group has been silent for too long."""
    JOIN = enum.auto()
    """A classic group has waited long enough for members to join."""
    SYNC = enum.auto()
    """A classic group has waited long enough for members to sync."""
    CONSUMER_SESSION = enum.auto()
    """A member of a consumer group has been silent for too long."""
    REVOCATION = enum.auto()
    """A member of a consumer group took too long to give partitions up."""
    REJOIN = enum.auto()
    """A classic member of a consumer group took too long to join again, or to sync."""
    EXPIRY = enum.auto()
    """Offsets are looked through for expired ones."""


class Timer(NamedTuple):
    """The name of a deadline."""

    kind: TimerKind
    group_id: str = ""
    member_id: str = ""


class Timers:
    """See the module."""

    __slots__ = ("_at", "_heap", "_queued", "_serial")

    def __init__(self) -> None:
        self._at: dict[Timer, int] = {}
        self._queued: dict[Timer, int] = {}
        """The moment that a timer has in the heap: at or before its own."""
        self._heap: list[tuple[int, int, Timer]] = []
        self._serial = 0

    def __contains__(self, timer: Timer) -> bool:
        return timer in self._at

    def __len__(self) -> int:
        return len(self._at)

    def set(self, timer: Timer, at: int) -> None:
        """Fire at that moment, and not when it was to fire before."""
        self._at[timer] = at
        queued = self._queued.get(timer)
        if queued is None or at < queued:
            self._push(timer, at)

    def cancel(self, timer: Timer) -> None:
        """Never fire; nothing if it was not set."""
        self._at.pop(timer, None)

    def next_at(self) -> int | None:
        """The moment of the next timer."""
        self._settle_top()
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: int) -> Timer | None:
        """A timer whose moment has come, which is then no longer set."""
        self._settle_top()
        if not self._heap or self._heap[0][0] > now:
            return None
        _, _, timer = heapq.heappop(self._heap)
        del self._queued[timer]
        del self._at[timer]
        return timer

    def _push(self, timer: Timer, at: int) -> None:
        self._serial += 1  # Timers of one moment fire in the order in which they were set.
        self._queued[timer] = at
        heapq.heappush(self._heap, (at, self._serial, timer))

    def _settle_top(self) -> None:
        """Make the top of the heap a timer that is set, at its own moment."""
        while self._heap:
            queued_at, _, timer = self._heap[0]
            if self._queued.get(timer) != queued_at:
                heapq.heappop(self._heap)  # Moved forward since: it has another entry.
                continue
            at = self._at.get(timer)
            if at == queued_at:
                return
            heapq.heappop(self._heap)
            del self._queued[timer]
            if at is not None:
                self._push(timer, at)
