"""Deadlines: what is to happen at which moment, in order, without a clock.

The runtime asks `next_deadline` how long it may sleep and calls `run` with the time when it wakes.
"""

import heapq
from collections.abc import Callable
from itertools import count


class Timer:
    """One thing to do at one moment, unless cancelled before."""

    __slots__ = ("callback", "deadline")

    def __init__(self, deadline: int, callback: Callable[[], None]) -> None:
        self.deadline = deadline
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class Timers:
    """A heap of timers; cancelled ones fall out when their time comes or when they are too many."""

    __slots__ = ("_heap", "_numbers", "on_earlier")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timer]] = []
        self._numbers = count()  # Equal deadlines run in the order they were set.
        self.on_earlier: Callable[[int], None] = lambda deadline: None
        """Called when a new timer is the first one due."""

    def __len__(self) -> int:
        return len(self._heap)

    def at(self, deadline: int, callback: Callable[[], None]) -> Timer:
        """Call `callback` when the time is `deadline` (ms) or later."""
        timer = Timer(deadline, callback)
        heapq.heappush(self._heap, (deadline, next(self._numbers), timer))
        if self._heap[0][2] is timer:
            self.on_earlier(deadline)
        if len(self._heap) > 1024 and len(self._heap) & 1023 == 0:
            self._compact()
        return timer

    def _compact(self) -> None:
        live = [entry for entry in self._heap if entry[2].callback is not None]
        if len(live) <= len(self._heap) // 2:
            heapq.heapify(live)
            self._heap = live

    def next_deadline(self) -> int | None:
        while self._heap and self._heap[0][2].callback is None:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def run(self, now: int) -> None:
        """Call everything that is due."""
        while self._heap and self._heap[0][0] <= now:
            timer = heapq.heappop(self._heap)[2]
            callback, timer.callback = timer.callback, None
            if callback is not None:
                callback()
