"""Batches that are in the files and still in memory: whoever sends them on need not read them.

Each log has its own, in order; together they are bounded, and the oldest go first. A log lets go of all
that it has here when all followers were sent it, and when it takes bytes back or puts others in their
place. Filled by layout.py, read by the broker's cargo.py.
"""

from collections import OrderedDict
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


class _Run:
    """What a log wrote in one go."""

    __slots__ = ("end", "log", "requests", "size")

    def __init__(self, log: Holder, end: int, size: int, requests: tuple[int, ...]) -> None:
        self.log = log
        self.end = end
        """The offset behind it."""
        self.size = size
        """In bytes, without the requests that it is a part of."""
        self.requests = requests


class FreshBatches:
    """What the logs of a store have in memory. A request counts once, and as a whole: all of it stays as
    long as any part of it does."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._runs: OrderedDict[_Run, None] = OrderedDict()
        """Oldest first."""
        self._of: dict[Holder, list[_Run]] = {}
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
        run = _Run(log, batches[-1].next, size, tuple(requests))
        self._runs[run] = None
        self._of.setdefault(log, []).append(run)
        while self.size_bytes > self._bytes_max and len(self._runs) > 1:
            self._drop_oldest()

    def forget(self, log: Holder) -> None:
        """All that it has here."""
        log.fresh.clear()
        for run in self._of.pop(log, ()):
            del self._runs[run]
            self._let_go(run)

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
        run, _ = self._runs.popitem(last=False)
        self._let_go(run)
        its_runs, fresh = self._of[run.log], run.log.fresh
        assert its_runs.pop(0) is run
        if not its_runs:
            del self._of[run.log]
        count = 0
        while count < len(fresh) and fresh[count].next <= run.end:
            count += 1
        del fresh[:count]


def backing(data: Buffer) -> int:
    """How many bytes of memory stay as long as somebody has these: all of the request that they are
    of."""
    return memoryview(data.obj).nbytes if isinstance(data, memoryview) else len(data)
