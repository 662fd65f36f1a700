"""`AsyncConsumer`: the consumer with `await`; the loop is never blocked.

One thread of its own does everything, call after call, and waits in short slices, so that a
`commit` or a `pause` is not behind a long `poll`. A `poll` that is cancelled loses nothing: what it
had fetched comes with the next one, and is not committed before; a `close` that is cancelled goes on.
Callbacks of `subscribe` may be
plain functions or coroutines; they run on the loop, and may call this consumer.
"""

import asyncio
import functools
import inspect
import queue
import re
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self, TypeVar

from dmq.client.config import ConsumerConfig
from dmq.client.consumer import Consumer, Offsets, Partitions
from dmq.client.errors import ClosedError
from dmq.client.message import Message
from dmq.client.rebalances import OnRebalance
from dmq.types import TopicPartition

T = TypeVar("T")
_Calls = queue.SimpleQueue[Callable[[], None] | None]
OnRebalanceAsync = Callable[[list[TopicPartition]], Awaitable[None] | None]

_POLL_SLICE_S = 0.05
"""How long a call may have to wait for the thread while a poll has nothing to return."""


class AsyncConsumer:
    """Reads messages on an event loop. Close it, or use it in an `async with`."""

    def __init__(self, config: ConsumerConfig | None = None) -> None:
        self.consumer = Consumer(config)
        self.config = self.consumer.config
        self._thread = ThreadPoolExecutor(1, "dmq-async-consumer")
        self._fetch: asyncio.Future[list[Message]] | None = None
        """Under way, maybe left behind by a poll that was cancelled."""
        self._left: deque[Message] = deque()
        """Fetched and not handed out yet."""
        self._calls: _Calls | None = None
        """While a callback runs, which the thread waits for: what the thread does meanwhile."""
        self._closing: asyncio.Future[None] | None = None

    async def start(self) -> Self:
        """Wait until a broker answers. Optional. Raises ConnectionFailedError."""
        await self._call(self.consumer.start)
        return self

    # --- what to read

    async def subscribe(
        self,
        topics: str | Iterable[str] = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        on_assign: OnRebalanceAsync | None = None,
        on_revoke: OnRebalanceAsync | None = None,
        on_lost: OnRebalanceAsync | None = None,
    ) -> None:
        """Share these topics with the group, or all whose whole name matches the pattern."""
        on_assign_there, on_revoke_there, on_lost_there = map(
            self._on_loop, (on_assign, on_revoke, on_lost)
        )
        await self._call(
            lambda: self.consumer.subscribe(
                topics,
                pattern=pattern,
                on_assign=on_assign_there,
                on_revoke=on_revoke_there,
                on_lost=on_lost_there,
            )
        )

    async def unsubscribe(self) -> None:
        await self._call(self.consumer.unsubscribe)

    async def assign(self, partitions: Partitions | Offsets) -> None:
        """Read these partitions, whatever others do; with a mapping, from these offsets."""
        await self._call(self.consumer.assign, partitions)

    async def assignment(self) -> list[TopicPartition]:
        return await self._call(self.consumer.assignment)

    def _on_loop(self, callback: OnRebalanceAsync | None) -> OnRebalance | None:
        """The callback for librdkafka's thread: runs on the loop, and waits for it."""
        if callback is None:
            return None
        loop = asyncio.get_running_loop()

        async def run(partitions: list[TopicPartition], calls: _Calls) -> None:
            self._calls = calls
            try:
                answer = callback(partitions)
                if inspect.isawaitable(answer):
                    await answer
            finally:
                self._calls = None  # On the loop, where calls are made: none comes after the end.
                calls.put(None)

        def wait(partitions: list[TopicPartition]) -> None:
            calls: _Calls = queue.SimpleQueue()
            done = asyncio.run_coroutine_threadsafe(run(partitions, calls), loop)
            while (call := calls.get()) is not None:
                call()
            done.result()

        return wait

    # --- reading

    async def poll(
        self,
        timeout: float = 1.0,  # noqa: ASYNC109  As its twin.
        *,
        timeout_ms: float | None = None,
        max_records: int | None = None,
    ) -> list[Message]:
        """The messages that are there, `max_poll_records` at most; waits for the first of them."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (timeout if timeout_ms is None else timeout_ms / 1000)
        limit = max_records or self.config.max_poll_records
        while True:
            messages = self._take(limit)
            if messages:
                return messages
            wait_s = max(0.0, min(_POLL_SLICE_S, deadline - loop.time()))
            await self._bring(wait_s, limit)
            if loop.time() >= deadline:
                return self._take(limit)

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Message after message, for ever. Messages count as read one by one."""
        while True:
            messages = self._take(1)
            for message in messages:
                yield message
            if not messages:
                await self._bring(_POLL_SLICE_S, self.config.max_poll_records)

    def _take(self, limit: int) -> list[Message]:
        """Hand out what was fetched, but for paused partitions."""
        taken: list[Message] = []
        held: list[Message] = []
        paused = set(self.consumer.paused()) if self._left else set()
        while self._left and len(taken) < limit:
            message = self._left.popleft()
            (held if message.topic_partition in paused else taken).append(message)
        self._left.extendleft(reversed(held))
        self.consumer.hand_out(taken)
        return taken

    async def _bring(self, wait_s: float, limit: int) -> None:
        """Fetch. When we are cancelled here the fetch goes on, and what it brings is not lost."""
        if self._fetch is None:
            self._fetch = asyncio.ensure_future(self._call(self.consumer.fetch, wait_s, limit))
            self._fetch.add_done_callback(self._brought)
        fetch = self._fetch
        try:
            await asyncio.shield(fetch)
        finally:
            if fetch.done():  # Its own callback may be behind us, if it was done before we came.
                self._brought(fetch)

    def _brought(self, fetch: "asyncio.Future[list[Message]]") -> None:
        if self._fetch is not fetch:
            return  # Somebody has seen it already.
        self._fetch = None
        if fetch.cancelled() or fetch.exception() is not None:
            return
        self._drop(self.consumer.gone())
        self._left.extend(fetch.result())

    def _drop(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Forget what was fetched of these."""
        gone = set(partitions)
        if gone:
            left = (m for m in self._left if (m.topic, m.partition) not in gone)
            self._left = deque(left)

    async def _settle(self) -> None:
        """Wait for the fetch that a cancelled poll has left behind."""
        if self._fetch is not None:
            await asyncio.wait([self._fetch])

    # --- progress

    async def commit(
        self,
        offsets: Message | Offsets | None = None,
        *,
        message: Message | None = None,
        wait: bool = True,
    ) -> dict[TopicPartition, int]:
        """Commit all that was handed out, one message, or these offsets. See `Consumer.commit`."""
        return await self._call(lambda: self.consumer.commit(offsets, message=message, wait=wait))

    async def committed(self, partitions: Partitions | None = None) -> dict[TopicPartition, int]:
        return await self._call(self.consumer.committed, partitions)

    async def position(self, partition: tuple[str, int]) -> int | None:
        return await self._call(self.consumer.position, partition)

    async def lag(self) -> dict[TopicPartition, int]:
        return await self._call(self.consumer.lag)

    # --- going elsewhere, and backpressure

    async def seek(self, partition: tuple[str, int], offset: int) -> None:
        """Read on from there. Partitions must be assigned, or just being so (in `on_assign`)."""
        await self._go([partition], self.consumer.seek, partition, offset)

    async def seek_to_beginning(self, partitions: Partitions | None = None) -> None:
        await self._go(partitions, self.consumer.seek_to_beginning, partitions)

    async def seek_to_end(self, partitions: Partitions | None = None) -> None:
        await self._go(partitions, self.consumer.seek_to_end, partitions)

    async def seek_to_time(self, timestamp_ms: int, partitions: Partitions | None = None) -> None:
        """To the first message of that time (milliseconds since 1970) or later; else to the end."""
        await self._go(partitions, self.consumer.seek_to_time, timestamp_ms, partitions)

    async def rewind(self) -> None:
        """Go back to the committed offsets, as after an aborted transaction."""
        await self._go(None, self.consumer.rewind)

    async def _go(
        self, partitions: Partitions | None, call: Callable[..., None], *arguments: Any
    ) -> None:
        if self._calls is None:  # There, the fetch is what waits for us.
            await self._settle()
        await self._call(call, *arguments)
        moved = {m.topic_partition for m in self._left} if partitions is None else partitions
        self._drop(moved)

    async def pause(self, partitions: Partitions | None = None) -> None:
        """Read no more of these (of all) until `resume`, and stay a member: go on polling."""
        await self._call(self.consumer.pause, partitions)

    async def resume(self, partitions: Partitions | None = None) -> None:
        """Read these (all that are paused) again, from where they were."""
        await self._call(self.consumer.resume, partitions)

    def paused(self) -> list[TopicPartition]:
        return self.consumer.paused()

    # --- the end, and what all calls share

    async def close(self, *, is_done: bool = True) -> None:
        """Leave the group at once. See `Consumer.close`."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close(is_done=is_done))
        elif self._closing.done():
            return
        await asyncio.shield(self._closing)

    async def _close(self, *, is_done: bool) -> None:
        await self._settle()
        try:
            await self._call(lambda: self.consumer.close(is_done=is_done))
        finally:
            self._thread.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        try:
            return await self.start()
        except BaseException:
            await self.close()
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close(is_done=error is None)

    async def _call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run it in the consumer's thread, also while that waits for a callback (librdkafka would
        let another thread wait until the callback has ended)."""
        loop = asyncio.get_running_loop()
        if self._calls is not None:
            answer: Future[T] = Future()
            self._calls.put(functools.partial(_answer, answer, function, *arguments))
            return await asyncio.wrap_future(answer)
        try:
            return await loop.run_in_executor(self._thread, function, *arguments)
        except RuntimeError as error:
            if self._closing is not None:
                raise ClosedError("this consumer is closed; make a new one to read more") from error
            raise


def _answer(answer: "Future[T]", function: Callable[..., T], *arguments: Any) -> None:
    try:
        answer.set_result(function(*arguments))
    except BaseException as error:  # noqa: BLE001  Told to the coroutine that waits for it.
        answer.set_exception(error)
