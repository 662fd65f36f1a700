"""confluent-kafka (librdkafka) behind the tests' `Client`."""

from typing import Any

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
from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaException,
    Producer,
    TopicPartition,
)


class Confluent:
    name = "confluent"
    compressions = COMPRESSIONS
    reads = COMPRESSIONS
    is_idempotent = True

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._producers: dict[tuple[str, str], Producer] = {}
        self._consumers: dict[int, Consumer] = {}

    def _producer(self, compression: str, acks: str) -> Producer:
        key = (compression, acks)
        if key not in self._producers:
            self._producers[key] = Producer(
                {
                    "bootstrap.servers": self._bootstrap,
                    "compression.type": compression,
                    "acks": acks,
                    "enable.idempotence": acks == "all",
                    "message.max.bytes": MAX_REQUEST_BYTES,
                    "linger.ms": 5,
                    "message.timeout.ms": 20000,
                    "topic.metadata.refresh.fast.interval.ms": 50,
                }
            )
        return self._producers[key]

    def consumer(self, max_bytes: int = FETCH_BYTES) -> Consumer:
        if max_bytes not in self._consumers:
            self._consumers[max_bytes] = Consumer(
                {
                    "bootstrap.servers": self._bootstrap,
                    "group.id": "unused",
                    "enable.auto.commit": False,
                    "auto.offset.reset": "error",
                    "fetch.message.max.bytes": max_bytes,
                    "fetch.max.bytes": max(max_bytes, MAX_REQUEST_BYTES),
                    "message.max.bytes": MAX_REQUEST_BYTES,
                    "check.crcs": True,
                    "fetch.wait.max.ms": FETCH_WAIT_MS,
                }
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
        places: dict[int, Place | ClientError] = {}

        def delivered(index: int, error: Any, message: Any) -> None:
            if error is not None:
                places[index] = ClientError(error.code(), error.str())
            else:
                offset = message.offset()
                places[index] = Place(message.partition(), -1 if offset is None else offset)

        for index, record in enumerate(records):
            producer.produce(
                topic,
                value=record.value,
                key=record.key,
                partition=-1 if partition is None else partition,
                headers=list(record.headers),
                timestamp=record.timestamp_ms or 0,
                on_delivery=lambda error, message, index=index: delivered(index, error, message),
            )
        assert producer.flush(TIMEOUT_S) == 0, "records are still in the producer's queue"
        for place in places.values():
            if isinstance(place, ClientError):
                raise place
        return [places[index] for index in range(len(records))]  # type: ignore[misc]

    def consume(
        self,
        topic: str,
        *,
        partition: int = 0,
        offset: int = 0,
        count: int,
        max_bytes: int = FETCH_BYTES,
    ) -> list[Stored]:
        consumer = self.consumer(max_bytes)
        consumer.assign([TopicPartition(topic, partition, offset)])
        found: list[Stored] = []
        while len(found) < count:
            messages = consumer.consume(min(count - len(found), 10_000), TIMEOUT_S)
            if not messages:
                break
            found += [self._stored(message) for message in messages]
        consumer.unassign()
        return found

    @staticmethod
    def _stored(message: Any) -> Stored:
        if message.error() is not None:
            raise ClientError(message.error().code(), message.error().str())
        kind, timestamp_ms = message.timestamp()
        headers = tuple(message.headers() or ())
        return Stored(
            message.offset(),
            Record(message.key(), message.value(), headers, timestamp_ms),
            "append" if kind == TIMESTAMP_LOG_APPEND_TIME else "create",
        )

    def offsets(
        self, topic: str, *, partition: int = 0, timestamp_ms: int | None = None
    ) -> tuple[int, int, int | None]:
        consumer = self.consumer()
        try:
            beginning, end = consumer.get_watermark_offsets(
                TopicPartition(topic, partition), timeout=TIMEOUT_S, cached=False
            )
            if timestamp_ms is None:
                return beginning, end, None
            wanted = TopicPartition(topic, partition, timestamp_ms)
            (found,) = consumer.offsets_for_times([wanted], timeout=TIMEOUT_S)
        except KafkaException as error:
            raise ClientError(error.args[0].code(), error.args[0].str()) from error
        return beginning, end, found.offset if found.offset >= 0 else None

    def topics(self) -> set[str]:
        return set(self.consumer().list_topics(timeout=TIMEOUT_S).topics)

    def close(self) -> None:
        for consumer in self._consumers.values():
            consumer.close()
        self._producers.clear()
