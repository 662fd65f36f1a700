"""aiokafka behind the tests' `Client`; it lives on an event loop of its own."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError
from compat.clients.client import (
    COMPRESSIONS,
    FETCH_BYTES,
    FETCH_WAIT_MS,
    MAX_REQUEST_BYTES,
    TIMEOUT_S,
    Acks,
    ClientError,
    Compression,
    Place,
    Record,
    Stored,
)

T = TypeVar("T")


class AioKafka:
    name = "aiokafka"
    compressions = COMPRESSIONS
    reads = COMPRESSIONS
    is_idempotent = True

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._loop = asyncio.new_event_loop()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return self._loop.run_until_complete(asyncio.wait_for(work, TIMEOUT_S * 2))
        except KafkaError as error:
            raise ClientError(getattr(error, "errno", -1), repr(error)) from error

    def produce(
        self,
        topic: str,
        records: list[Record],
        *,
        partition: int | None = 0,
        compression: Compression = "none",
        acks: Acks = "all",
    ) -> list[Place]:
        return self._run(self._produce(topic, records, partition, compression, acks))

    async def _produce(
        self,
        topic: str,
        records: list[Record],
        partition: int | None,
        compression: Compression,
        acks: Acks,
    ) -> list[Place]:
        producer = AIOKafkaProducer(
            bootstrap_servers=self._bootstrap,
            compression_type=None if compression == "none" else compression,
            acks=acks if acks == "all" else int(acks),
            enable_idempotence=acks == "all",
            max_request_size=MAX_REQUEST_BYTES,
            max_batch_size=1 << 20,
            linger_ms=5,
            request_timeout_ms=15000,
        )
        await producer.start()
        try:
            futures = [
                await producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            await producer.flush()
            # Gathered whole, so that no failed future is left behind unread.
            sent = await asyncio.gather(*futures, return_exceptions=True)
        finally:
            await producer.stop()
        for one in sent:
            if isinstance(one, BaseException):
                raise one
        if acks == "0":
            return [Place(partition or 0, -1)] * len(records)
        return [Place(one.partition, one.offset) for one in sent]

    def consume(
        self,
        topic: str,
        *,
        partition: int = 0,
        offset: int = 0,
        count: int,
        max_bytes: int = FETCH_BYTES,
    ) -> list[Stored]:
        return self._run(self._consume(TopicPartition(topic, partition), offset, count, max_bytes))

    async def _consume(
        self, where: TopicPartition, offset: int, count: int, max_bytes: int
    ) -> list[Stored]:
        consumer = self._new_consumer(max_bytes)
        await consumer.start()
        try:
            consumer.assign([where])
            consumer.seek(where, offset)
            found: list[Stored] = []
            deadline = self._loop.time() + TIMEOUT_S
            while len(found) < count and self._loop.time() < deadline:
                batches = await consumer.getmany(timeout_ms=500)
                for batch in batches.values():
                    found += [self._stored(message) for message in batch]
        finally:
            await consumer.stop()
        return found[:count]

    def _new_consumer(self, max_bytes: int) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap,
            enable_auto_commit=False,
            auto_offset_reset="none",
            max_partition_fetch_bytes=max_bytes,
            fetch_max_bytes=max_bytes,
            fetch_max_wait_ms=FETCH_WAIT_MS,
        )

    @staticmethod
    def _stored(message: Any) -> Stored:
        return Stored(
            message.offset,
            Record(message.key, message.value, tuple(message.headers), message.timestamp),
            "append" if message.timestamp_type == 1 else "create",
        )

    def offsets(
        self, topic: str, *, partition: int = 0, timestamp_ms: int | None = None
    ) -> tuple[int, int, int | None]:
        return self._run(self._offsets(TopicPartition(topic, partition), timestamp_ms))

    async def _offsets(
        self, where: TopicPartition, timestamp_ms: int | None
    ) -> tuple[int, int, int | None]:
        consumer = self._new_consumer(FETCH_BYTES)
        await consumer.start()
        try:
            beginning = (await consumer.beginning_offsets([where]))[where]
            end = (await consumer.end_offsets([where]))[where]
            if timestamp_ms is None:
                return beginning, end, None
            found = (await consumer.offsets_for_times({where: timestamp_ms}))[where]
        finally:
            await consumer.stop()
        return beginning, end, None if found is None else found.offset

    def topics(self) -> set[str]:
        return self._run(self._topics())

    async def _topics(self) -> set[str]:
        consumer = self._new_consumer(FETCH_BYTES)
        await consumer.start()
        try:
            return set(await consumer.topics())
        finally:
            await consumer.stop()

    def close(self) -> None:
        self._loop.close()
