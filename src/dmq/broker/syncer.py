"""Work beside the loop: one thread that syncs turns, a few that warm cold pages and flush, one that
opens batches.

A thread must win the interpreter lock to report, so each piece of work reports once. Called by the
runtime only.
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

Work = Callable[[], object]
Done = Callable[[BaseException | None], None]


class Syncer:
    """A thread for the syncs that answers wait for, apart from all other work."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: queue.SimpleQueue[tuple[Work, Done] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="dmq-sync", daemon=True)
        self._thread.start()

    def submit(self, work: Work, done: Done) -> None:
        """Run `work` in the thread, then `done` in the loop with the exception it raised or None."""
        self._queue.put((work, done))

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            work, done = item
            error = _failure_of(work)
            if self._loop.is_closed():
                return
            self._loop.call_soon_threadsafe(done, error)

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()


class Workers:
    """A few threads for work whose delay nobody's answer waits for."""

    def __init__(self, loop: asyncio.AbstractEventLoop, count: int) -> None:
        self._loop = loop
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="dmq-work")
        self._is_closed = False

    def submit(self, work: Work, done: Done) -> None:
        """Run `work` in a thread, then `done` in the loop; neither, if this is closed before."""
        if self._is_closed:
            return  # The last steps of an end: what is done may ask for more.

        def run() -> None:
            error = _failure_of(work)
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(done, error)

        self._pool.submit(run)

    def soon(self, callback: Callable[[], None]) -> None:
        """Call in the loop's next pass."""
        self._loop.call_soon(callback)

    def close(self) -> None:
        """What has begun ends; what waits never begins."""
        self._is_closed = True
        self._pool.shutdown(wait=True, cancel_futures=True)


def _failure_of(work: Work) -> BaseException | None:
    """Run it; what it raised is judged in the loop's thread, whatever it is."""
    try:
        work()
    except BaseException as error:  # noqa: BLE001
        return error
    return None
