"""Batches that are in the files and still in memory: whoever sends them on need not read them.

Each log has its own, in order; together they are bounded, and the oldest go first. A log that takes
bytes back, or puts others in their place, lets go of all that it has here. Filled by layout.py, read by
the broker's cargo.py.
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from dmq.storage.files import Buffer

ENTRY_BYTES = 400
"""What a batch takes beside its bytes, about."""


class Fresh(NamedTuple):
    """A batch that is in the file and still in memory."""

    base: int
    next: int
    data: Buffer


class Holder(Protocol):
    """A log."""

    fresh: list[Fresh]


class _Run(NamedTuple):
    """What a log wrote in one go."""

    log: Holder
    end: int
    """The offset behind it."""
    size: int
    """In bytes, without the requests that it is a part of."""
    requests: tuple[int, ...]


class FreshBatches:
    """What the logs of a store have in memory. A request counts once, and as a whole: all of it stays as
    long as any part of it does."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._runs: deque[_Run] = deque()
        """Oldest first."""
        self._requests: dict[int, list[int]] = {}
        """By identity: how many runs are of it, and its size."""
        self.size_bytes = 0

    def add(self, log: Holder, batches: Sequence[Fresh]) -> None:
        """A run that the log has just written, behind all that it has here."""
        log.fresh += batches
        size, requests = 0, dict[int, int]()
        for batch in batches:
            size += ENTRY_BYTES
            if isinstance(batch.data, memoryview):
                requests[id(batch.data.obj)] = backing(batch.data)
            else:
                size += len(batch.data)
        self.size_bytes += size
        for request, length in requests.items():
            self._hold(request, length)
        self._runs.append(_Run(log, batches[-1].next, size, tuple(requests)))
        while self.size_bytes > self._bytes_max and len(self._runs) > 1:
            self._drop_oldest()

    def forget(self, log: Holder) -> None:
        """It takes some of it back."""
        if not log.fresh:
            return
        log.fresh.clear()
        runs, self._runs = self._runs, deque()
        for run in runs:
            if run.log is log:
                self._let_go(run)
            else:
                self._runs.append(run)

    def _hold(self, request: int, length: int) -> None:
        held = self._requests.get(request)
        if held is None:
            self._requests[request] = [1, length]
            self.size_bytes += length
        else:
            held[0] += 1

    def _let_go(self, run: _Run) -> None:
        self.size_bytes -= run.size
        for request in run.requests:
            held = self._requests[request]
            held[0] -= 1
            if not held[0]:
                self.size_bytes -= held[1]
                del self._requests[request]

    def _drop_oldest(self) -> None:
        run = self._runs.popleft()
        self._let_go(run)
        fresh = run.log.fresh
        count = 0
        while count < len(fresh) and fresh[count].next <= run.end:
            count += 1
        del fresh[:count]


def backing(data: Buffer) -> int:
    """How many bytes of memory stay as long as somebody has these: all of the request that they are
    of."""
    return memoryview(data.obj).nbytes if isinstance(data, memoryview) else len(data)
