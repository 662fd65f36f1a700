"""`AsyncProducer`: the producer with `await`; the loop is never blocked.

`send` puts the record into librdkafka's buffer at once and waits, without blocking, only while that
is full. Delivery reports come from librdkafka's thread in bursts: each burst wakes the loop once,
not once per record. What blocks (start, flush, close, transactions) runs in a thread of the
producer's own, one call after the other. A `close` that is cancelled goes on. For one event loop at a
time; it may be used on another when that has ended.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self, TypeVar

from confluent_kafka import KafkaError
from confluent_kafka import Message as RawMessage

from dmq.client import transaction
from dmq.client.aio_consumer import AsyncConsumer
from dmq.client.config import ProducerConfig, checked
from dmq.client.errors import ClientError
from dmq.client.message import Headers, RecordMetadata
from dmq.client.sending import SLICE_S, Sending, outcome

T = TypeVar("T")
AsyncDelivery = asyncio.Future[RecordMetadata]


class _Inbox:
    """Outcomes on their way from librdkafka's thread to the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._told: deque[tuple[AsyncDelivery, RecordMetadata | ClientError]] = deque()
        self._is_woken = False

    def put(self, future: AsyncDelivery, told: RecordMetadata | ClientError) -> None:
        """From any thread."""
        self._told.append((future, told))
        if not self._is_woken:
            self._is_woken = True
            self.wake(self._take)

    def wake(self, callback: Callable[[], None]) -> None:
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(callback)

    def _take(self) -> None:
        self._is_woken = False  # First: who puts from here on wakes us again.
        while self._told:
            future, told = self._told.popleft()
            if future.done():
                continue  # Cancelled: its waiter has gone. The record has not.
            if isinstance(told, ClientError):
                future.set_exception(told)
            else:
                future.set_result(told)


class AsyncProducer:
    """Sends records from an event loop. Close it, or use it in an `async with`."""

    def __init__(self, config: ProducerConfig | None = None) -> None:
        self.config = checked(config, ProducerConfig)
        self.sending = Sending(self.config)
        self._thread = ThreadPoolExecutor(1, "dmq-async-producer")
        self._inbox: _Inbox | None = None
        self._closing: asyncio.Future[None] | None = None

    async def start(self) -> Self:
        """Wait until a broker answers. Optional. Raises ConnectionFailedError."""
        await self.call(self.sending.start)
        return self

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> AsyncDelivery:
        """Send a record; returns, when there is room for it, a future of its metadata.

        Raises BufferFullError, SerializationError, RecordTooLargeError.
        """
        loop = asyncio.get_running_loop()
        inbox = self._inbox
        if inbox is None or inbox.loop is not loop:
            inbox = self._inbox = _Inbox(loop)
        future: AsyncDelivery = loop.create_future()

        def report(error: KafkaError | None, raw: "RawMessage[Any, Any]") -> None:
            inbox.put(future, outcome(error, raw))

        record = (topic, key, value, headers, partition, timestamp, report)
        if not self.sending.offer(*record):
            await self._send_with_room(inbox, record)
        return future

    async def _send_with_room(self, inbox: _Inbox, record: tuple[Any, ...]) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.config.max_block_ms / 1000
        while loop.time() < deadline:
            room = asyncio.Event()
            self.sending.when_room(lambda room=room: inbox.wake(room.set))  # type: ignore[misc]
            if self.sending.offer(*record):
                return
            wait_s = min(SLICE_S, max(0.0, deadline - loop.time()))
            try:
                async with asyncio.timeout(wait_s):
                    await room.wait()
            except TimeoutError:
                pass  # Look again: a report may have come between the two.
        if not self.sending.offer(*record):
            raise self.sending.full(record[0])

    async def send_and_wait(self, topic: str, value: Any = None, **rest: Any) -> RecordMetadata:
        """Send a record and wait for its acknowledgement."""
        return await (await self.send(topic, value, **rest))

    async def flush(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  As its twin.
        """Wait until every record is acknowledged or has failed. Raises TimedOutError."""
        await self.call(self.sending.flush, timeout)

    def transaction(self) -> "AsyncTransaction":
        """A block whose records, and offsets, become visible together or not at all."""
        return AsyncTransaction(self)

    def __len__(self) -> int:
        """Records that wait or are under way."""
        return len(self.sending)

    def __bool__(self) -> bool:
        return True  # Also with nothing under way.

    async def close(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  As its twin.
        """Flush and end. Closing again does nothing. Raises TimedOutError."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close(timeout))
        elif self._closing.done():
            return
        await asyncio.shield(self._closing)

    async def _close(self, timeout_s: float | None) -> None:
        try:
            await self.call(self.sending.close, timeout_s)
        finally:
            self._thread.shutdown(wait=False)

    async def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run what blocks in the producer's thread."""
        self.sending.check_open()
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    async def __aenter__(self) -> Self:
        try:
            return await self.start()
        except BaseException:
            await self.close(0)
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


class AsyncTransaction:
    """One transaction of a producer; use it once, in an `async with`."""

    def __init__(self, producer: AsyncProducer) -> None:
        self._producer = producer

    async def __aenter__(self) -> Self:
        await self._producer.call(self._producer.sending.begin)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        sending = self._producer.sending
        # A cancelled task waits too: a transaction that is half ended would block the next one.
        if error is None:
            await asyncio.shield(self._producer.call(transaction.commit, sending))
        else:
            await asyncio.shield(self._producer.call(transaction.give_up, sending, error))

    async def send_offsets(
        self, consumer: AsyncConsumer, offsets: Mapping[tuple[str, int], int] | None = None
    ) -> None:
        """Commit what the consumer has handed out (or these offsets) with the transaction."""
        sending = self._producer.sending
        await self._producer.call(transaction.send_offsets, sending, consumer.consumer, offsets)
