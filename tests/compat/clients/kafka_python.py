"""kafka-python behind the tests' `Client`."""

import time
from typing import Any

from compat.clients.client import (
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
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.codec import has_lz4, has_snappy, has_zstd
from kafka.errors import KafkaError


def _supported() -> tuple[Compression, ...]:
    """kafka-python takes its codecs from packages that need not be there."""
    optional: dict[Compression, bool] = {
        "snappy": has_snappy(),
        "lz4": has_lz4(),
        "zstd": has_zstd(),
    }
    return ("none", "gzip", *(name for name, is_there in optional.items() if is_there))


def _failure(error: KafkaError) -> ClientError:
    return ClientError(getattr(error, "errno", None) or -1, repr(error))


class KafkaPython:
    name = "kafka-python"
    compressions = _supported()
    reads = _supported()
    is_idempotent = True

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._producers: dict[tuple[str, str], Any] = {}
        self._consumers: dict[int, Any] = {}

    def _producer(self, compression: str, acks: str) -> Any:
        key = (compression, acks)
        if key not in self._producers:
            self._producers[key] = KafkaProducer(
                bootstrap_servers=self._bootstrap,
                compression_type=None if compression == "none" else compression,
                acks=acks if acks == "all" else int(acks),
                enable_idempotence=acks == "all",
                max_request_size=MAX_REQUEST_BYTES,
                linger_ms=5,
                delivery_timeout_ms=20000,
                request_timeout_ms=15000,
                max_block_ms=20000,
            )
        return self._producers[key]

    def _consumer(self, max_bytes: int) -> Any:
        if max_bytes not in self._consumers:
            self._consumers[max_bytes] = KafkaConsumer(
                bootstrap_servers=self._bootstrap,
                group_id=None,
                enable_auto_commit=False,
                auto_offset_reset="none",
                max_partition_fetch_bytes=max_bytes,
                fetch_max_bytes=max_bytes,
                fetch_max_wait_ms=FETCH_WAIT_MS,
                max_poll_records=100_000,
            )
        return self._consumers[max_bytes]

    def produce(
        self,
        topic: str,
        records: list[Record],
        *,
        partition: int | None = 0,
        compression: Compression = "none",
        acks: Acks = "all",
    ) -> list[Place]:
        producer = self._producer(compression, acks)
        try:
            futures = [
                producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            producer.flush(timeout=TIMEOUT_S)
            sent = [future.get(timeout=TIMEOUT_S) for future in futures]
        except KafkaError as error:
            # A refused batch is the end of an idempotent kafka-python producer.
            self._producers.pop((compression, acks)).close(timeout=0)
            raise _failure(error) from error
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
        consumer = self._consumer(max_bytes)
        where = TopicPartition(topic, partition)
        consumer.assign([where])
        consumer.seek(where, offset)
        found: list[Stored] = []
        deadline = time.monotonic() + TIMEOUT_S
        try:
            while len(found) < count and time.monotonic() < deadline:
                for batch in consumer.poll(timeout_ms=500).values():
                    found += [self._stored(message) for message in batch]
        except KafkaError as error:
            raise _failure(error) from error
        return found[:count]

    @staticmethod
    def _stored(message: Any) -> Stored:
        headers = tuple((key, value) for key, value in message.headers)
        return Stored(
            message.offset,
            Record(message.key, message.value, headers, message.timestamp),
            "append" if message.timestamp_type == 1 else "create",
        )

    def offsets(
        self, topic: str, *, partition: int = 0, timestamp_ms: int | None = None
    ) -> tuple[int, int, int | None]:
        consumer = self._consumer(FETCH_BYTES)
        where = TopicPartition(topic, partition)
        beginning = consumer.beginning_offsets([where])[where]
        end = consumer.end_offsets([where])[where]
        if timestamp_ms is None:
            return beginning, end, None
        found = consumer.offsets_for_times({where: timestamp_ms})[where]
        return beginning, end, None if found is None else found.offset

    def topics(self) -> set[str]:
        return set(self._consumer(FETCH_BYTES).topics())

    def close(self) -> None:
        for producer in self._producers.values():
            producer.close(timeout=5)
        for consumer in self._consumers.values():
            consumer.close()
