"""The only clock of a simulated cluster: one heap of events, in milliseconds.

Nothing happens between two events. Events of one moment happen in the order in which they were
planned, so a run is a function of its seed. There is no way to cancel an event: who planned it looks
whether it is still wanted.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

Action = Callable[..., None]


class Clock:
    """See the module."""

    __slots__ = ("_count", "_heap", "events", "now")

    def __init__(self) -> None:
        self.now = 0
        self.events = 0
        self._count = 0
        self._heap: list[tuple[int, int, Action, tuple[Any, ...]]] = []

    def at(self, when: int, action: Action, *args: Any) -> None:
        self._count += 1
        heappush(self._heap, (max(when, self.now), self._count, action, args))

    def after(self, delay_ms: int, action: Action, *args: Any) -> None:
        self._count += 1
        heappush(self._heap, (self.now + delay_ms, self._count, action, args))

    def run(self, until: int, is_done: Callable[[], bool] | None = None) -> bool:
        """Let time pass; True if `is_done` became true before the end."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            when, _, action, args = heappop(heap)
            self.now = when
            self.events += 1
            action(*args)
            if is_done is not None and is_done():
                return True
        self.now = until
        return is_done is not None and is_done()


class SkewedClock:
    """One broker's idea of the time: it runs at its own rate, never backwards."""

    __slots__ = ("_base", "_clock", "_rate", "_since")

    def __init__(self, clock: Clock, start: int) -> None:
        self._clock = clock
        self._base = start
        self._since = clock.now
        self._rate = 1000

    def now(self) -> int:
        return self._base + (self._clock.now - self._since) * self._rate // 1000

    def set_rate(self, per_mille: int) -> None:
        """1000 is right; more is fast."""
        self._base, self._since = self.now(), self._clock.now
        self._rate = per_mille

    def jump(self, forward_ms: int) -> None:
        """As a host that slept: time has passed, and nobody noticed."""
        self._base += forward_ms

    def to_world(self, local: int) -> int:
        """The world's time at which this clock shows `local`, or a little later."""
        ahead = local - self.now()
        if ahead <= 0:
            return self._clock.now
        return self._clock.now + -(-ahead * 1000 // self._rate)
