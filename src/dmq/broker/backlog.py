"""What producers brought and no turn has made durable yet: how much there is, and when to wait.

Counts bytes and batches from staging to their end, answered or not: a producer that does not wait
for its answer (acks=0, a short timeout) holds memory all the same. At the bounds, and while the
journal is full, doors leave producers' sockets unread; `relieve` lets them go on. Partitions count,
the node relieves at the end of each turn, doors ask. Never refuses anything.
"""

from collections.abc import Callable

Pressure = Callable[[], float]

FULL = 1.0
"""The journal's pressure beyond which producers wait. Exactly 1 is a disk without room for spare
journal files: then they are told so instead."""


class Backlog:
    """See the module."""

    __slots__ = ("_bytes_max", "_count_max", "_pressure", "_waiting", "byte_count", "count")

    def __init__(self, bytes_max: int, count_max: int, pressure: Pressure) -> None:
        self._bytes_max = bytes_max
        self._count_max = count_max
        self._pressure = pressure
        self._waiting: list[Callable[[], None]] = []
        self.byte_count = 0
        self.count = 0

    @property
    def is_full(self) -> bool:
        return (
            self.byte_count > self._bytes_max
            or self.count >= self._count_max
            or self._pressure() > FULL
        )

    def add(self, size: int) -> None:
        self.byte_count += size
        self.count += 1

    def remove(self, size: int) -> None:
        self.byte_count -= size
        self.count -= 1
        assert self.byte_count >= 0
        assert self.count >= 0

    def when_relieved(self, callback: Callable[[], None]) -> None:
        """Call once, when there is room again."""
        self._waiting.append(callback)

    def relieve(self) -> None:
        """A turn has ended: let those go on who wait, if there is room."""
        if self._waiting and not self.is_full:
            waiting, self._waiting = self._waiting, []
            for callback in waiting:
                callback()
