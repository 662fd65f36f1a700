"""The asyncio twins against a real broker: the loop stays free, cancelled polls lose nothing."""

import asyncio
import contextlib
import itertools
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from client.reading import PATIENCE_S

from dmq.client import (
    AsyncConsumer,
    AsyncProducer,
    BufferFullError,
    ClosedError,
    ConnectionFailedError,
    Consumer,
    ConsumerConfig,
    GroupProtocol,
    Message,
    ProducerConfig,
    TimedOutError,
    TopicPartition,
)


def run(work: Any) -> None:
    async def within() -> None:
        async with asyncio.timeout(90):
            await work

    asyncio.run(within())


@pytest.fixture
def consumer_of(servers: str, group: str) -> Callable[..., AsyncConsumer]:
    defaults: dict[str, Any] = {
        "bootstrap_servers": servers,
        "group_id": group,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
    }
    return lambda **settings: AsyncConsumer(ConsumerConfig(**defaults | settings))


async def fill(servers: str, topic: str, count: int, partition: int = 0) -> None:
    async with AsyncProducer(ProducerConfig(servers)) as producer:
        for n in range(count):
            await producer.send(topic, b"%d" % n, partition=partition)


async def read(consumer: AsyncConsumer, count: int) -> list[bytes]:
    messages: list[Message] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(messages) < count:
            messages += await consumer.poll(0.2, max_records=count - len(messages))
    return [message.value for message in messages]


@contextlib.asynccontextmanager
async def heartbeats() -> AsyncIterator[list[int]]:
    """How often the loop came round to somebody else."""
    beats = [0]

    async def beat() -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.Event().wait(), 0.005)
            beats[0] += 1

    task = asyncio.ensure_future(beat())
    try:
        yield beats
    finally:
        task.cancel()


def test_under_load_the_loop_stays_free_and_nothing_is_lost(
    servers: str, topic: str, consumer_of: Callable[..., AsyncConsumer]
) -> None:
    """A small buffer, so that `send` waits for room most of the time."""
    count = 5_000

    async def produce() -> list[int]:
        config = ProducerConfig(servers, buffer_records=100, linger_ms=1)
        async with AsyncProducer(config) as producer:
            futures = [await producer.send(topic, b"%d" % n) for n in range(count)]
            return [(await future).offset for future in futures]

    async def consume() -> list[bytes]:
        found = []
        async with consumer_of(metadata_refresh_ms=200) as consumer:
            await consumer.subscribe([topic])
            async for message in consumer:
                found.append(message.value)
                if len(found) == count:
                    return found
        return []

    async def both() -> None:
        async with heartbeats() as beats:
            offsets, found = await asyncio.gather(produce(), consume())
        assert offsets == list(range(count))
        assert found == [b"%d" % n for n in range(count)]
        assert beats[0] > 20

    run(both())


def test_a_long_poll_does_not_hold_the_loop_or_other_calls(
    servers: str, topic: str, consumer_of: Callable[..., AsyncConsumer]
) -> None:
    async def work() -> None:
        await fill(servers, topic, 1)
        async with consumer_of() as consumer:
            await consumer.assign([(topic, 0)])
            assert await read(consumer, 1) == [b"0"]
            poll = asyncio.ensure_future(consumer.poll(600))
            for _ in range(5):
                assert await consumer.lag() == {(topic, 0): 0}
            assert not poll.done()
            await fill(servers, topic, 1)
            assert [message.offset for message in await poll] == [1]

    run(work())


def test_a_cancelled_poll_loses_nothing_and_commits_nothing(
    servers: str, topic: str, consumer_of: Callable[..., AsyncConsumer]
) -> None:
    async def work() -> None:
        await fill(servers, topic, 200)
        seen: list[int] = []
        async with consumer_of(max_poll_records=7) as consumer:
            await consumer.assign([(topic, 0)])
            for patience_ms in itertools.cycle([0, 1, 2, 5, 20]):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(patience_ms / 1000):
                        seen += [message.offset for message in await consumer.poll(1)]
                if seen:
                    assert consumer.consumer.handed() == {(topic, 0): seen[-1] + 1}
                if len(seen) == 200:
                    break
        assert seen == list(range(200))

    run(work())


@pytest.mark.parametrize("protocol", list(GroupProtocol))
def test_callbacks_may_await_the_consumer(
    servers: str,
    topic: str,
    protocol: GroupProtocol,
    consumer_of: Callable[..., AsyncConsumer],
) -> None:
    async def work() -> None:
        await fill(servers, topic, 10)
        told: list[str] = []
        consumer = consumer_of(group_protocol=protocol)

        async def on_assign(partitions: list[TopicPartition]) -> None:
            told.append("assigned")
            for partition in partitions:
                await consumer.seek(partition, 6)

        async def on_revoke(partitions: list[TopicPartition]) -> None:
            told.append("revoked")
            await consumer.commit()

        async with consumer:
            await consumer.subscribe(topic, on_assign=on_assign, on_revoke=on_revoke)
            assert await read(consumer, 2) == [b"6", b"7"]
        assert told == ["assigned", "revoked"]
        async with consumer_of() as judge:
            assert await judge.committed([(topic, 0)]) == {TopicPartition(topic, 0): 8}

    run(work())


def test_seek_pause_and_iteration_agree(
    servers: str, topic: str, consumer_of: Callable[..., AsyncConsumer]
) -> None:
    """An iteration fetches ahead: what it has in store obeys `seek`, `pause` and `commit` too."""

    async def work() -> None:
        await fill(servers, topic, 20)
        async with consumer_of() as consumer:
            await consumer.assign([(topic, 0)])
            messages = aiter(consumer)
            assert [(await anext(messages)).offset for _ in range(3)] == [0, 1, 2]
            assert await consumer.commit() == {(topic, 0): 3}
            await consumer.seek((topic, 0), 10)
            assert (await anext(messages)).offset == 10
            await consumer.pause()
            assert consumer.paused() == [(topic, 0)]
            assert await consumer.poll(0.3) == []
            await consumer.resume()
            assert (await anext(messages)).offset == 11
            await consumer.rewind()
            assert (await anext(messages)).offset == 3
            await consumer.seek_to_beginning()
            assert (await consumer.poll(10))[0].offset == 0
            await messages.aclose()  # type: ignore[attr-defined]

    run(work())


def test_transactions(servers: str, topic: str, consumer_of: Callable[..., AsyncConsumer]) -> None:
    async def work() -> None:
        source, target = f"{topic}-in", f"{topic}-out"
        await fill(servers, source, 3)
        config = ProducerConfig(servers, transactional_id=uuid.uuid4().hex)
        async with AsyncProducer(config) as producer, consumer_of() as consumer:
            await consumer.subscribe(source)
            for is_good in (False, True):
                found = await read(consumer, 3)
                with contextlib.suppress(LookupError):
                    async with producer.transaction() as transaction:
                        for value in found:
                            await producer.send(target, b"out-" + value)
                        await transaction.send_offsets(consumer)
                        if not is_good:
                            raise LookupError
                if not is_good:
                    assert await consumer.committed() == {}
                    await consumer.rewind()
            assert await consumer.committed() == {TopicPartition(source, 0): 3}
        async with consumer_of(group_id=None) as judge:
            await judge.assign([(target, 0)])
            assert await read(judge, 3) == [b"out-0", b"out-1", b"out-2"]
            assert await judge.poll(0.3) == []

    run(work())


def test_what_goes_wrong_is_told_on_the_loop(
    closed_port: str, servers: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dmq.client.sending.START_TIMEOUT_S", 0.5)

    async def work() -> None:
        with pytest.raises(ConnectionFailedError, match="dmq up"):
            await AsyncConsumer(ConsumerConfig(closed_port)).__aenter__()
        producer = AsyncProducer(ProducerConfig(closed_port, buffer_records=1, max_block_ms=50))
        future = await producer.send(topic, b"x")
        with pytest.raises(BufferFullError):
            await producer.send(topic, b"x")
        with pytest.raises(TimedOutError):
            await producer.close(0)
        with pytest.raises(TimedOutError, match="closed before"):
            await future
        with pytest.raises(ClosedError):
            await producer.send(topic, b"x")
        consumer = AsyncConsumer(ConsumerConfig(servers))
        await consumer.close()
        await consumer.close()
        with pytest.raises(ClosedError):
            await consumer.poll()

    run(work())


def test_the_plain_consumer_reads_what_the_async_producer_sends(servers: str, topic: str) -> None:
    run(fill(servers, topic, 3))
    with Consumer(ConsumerConfig(servers, auto_offset_reset="earliest")) as consumer:
        consumer.assign([(topic, 0)])
        assert next(iter(consumer)).value == b"0"


def test_a_producer_goes_on_on_another_loop(servers: str, topic: str) -> None:
    producer = AsyncProducer(ProducerConfig(servers))

    async def send(offset: int) -> None:
        assert (await producer.send_and_wait(topic, b"x")).offset == offset

    run(send(0))
    run(send(1))
    run(producer.close())


def test_a_close_that_is_cancelled_goes_on(
    servers: str, topic: str, consumer_of: Callable[..., AsyncConsumer]
) -> None:
    async def work() -> None:
        producer, consumer = AsyncProducer(ProducerConfig(servers)), consumer_of()
        sent = await producer.send(topic, b"x")
        await consumer.subscribe(topic)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(consumer.poll(60), 0.01)  # Its fetch is under way.
        for client in (producer, consumer):
            closing = asyncio.ensure_future(client.close())
            await asyncio.sleep(0)
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
            await client.close()
        assert (await sent).offset == 0
        with pytest.raises(ClosedError):
            consumer.consumer.poll(0)

    run(work())
