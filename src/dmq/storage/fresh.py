"""Batches that are in the files and still in memory: whoever sends them on need not read them.

Each log has its own, in order; together they are bounded, and the oldest go first. A log that takes
bytes back takes back all that it has here. Filled by layout.py, read by the broker's cargo.py.
"""

from collections import deque
from typing import NamedTuple, Protocol

from dmq.storage.files import Buffer

_PINNED_PART = 16
"""A batch counts for at least this part of the request that it is of, and that stays with it."""


class Fresh(NamedTuple):
    """A batch that is in the file and still in memory."""

    base: int
    next: int
    data: Buffer


class Holder(Protocol):
    """A log."""

    fresh: list[Fresh]


class FreshBatches:
    """What the logs of a store have in memory."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._runs: deque[tuple[Holder, int, int]] = deque()
        """What was added, oldest first: for a log, up to an offset, so many bytes."""
        self.size_bytes = 0

    def add(self, log: Holder, batches: list[Fresh]) -> None:
        """A run that the log has just written, behind all that it has here."""
        log.fresh += batches
        size = sum(map(_weight, batches))
        self._runs.append((log, batches[-1].next, size))
        self.size_bytes += size
        while self.size_bytes > self._bytes_max and len(self._runs) > 1:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        log, end, size = self._runs.popleft()
        self.size_bytes -= size
        kept = 0
        for batch in log.fresh:
            if batch.next > end:
                break
            kept += 1
        del log.fresh[:kept]


def _weight(batch: Fresh) -> int:
    return max(len(batch.data), backing(batch.data) // _PINNED_PART)


def backing(data: Buffer) -> int:
    """How many bytes of memory stay as long as somebody has these: all of the request that they are
    of."""
    return memoryview(data.obj).nbytes if isinstance(data, memoryview) else len(data)
