"""Transactional producers: three libraries behind one face.

All three speak version 1 of transactions (their epochs stay); version 2 is the Java client's.
Errors come out as `Fenced` when the library says that a newer producer has taken over, and as the
library's own otherwise. Called by the transaction tests.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

import aiokafka.errors
import kafka.errors
from aiokafka import AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from kafka import KafkaProducer
from kafka import TopicPartition as PythonPartition
from kafka.structs import OffsetAndMetadata

T = TypeVar("T")
TIMEOUT_S = 30.0
KINDS = ("confluent", "kafka-python", "aiokafka")
_FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)


class FencedError(Exception):
    """A newer producer has this transactional id."""


class Transactor(Protocol):
    """One producer with a transactional id, initialised."""

    def begin(self) -> None: ...
    def send(self, topic: str, values: list[bytes], partition: int = 0) -> None:
        """Sends, and waits until all are acknowledged."""

    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


class ConfluentTransactor:
    def __init__(self, bootstrap: str, name: str, timeout_ms: int = 60_000) -> None:
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": name,
                "transaction.timeout.ms": timeout_ms,
                "linger.ms": 0,
            }
        )
        self.producer.init_transactions(TIMEOUT_S)

    def _do(self, work: Any, *arguments: Any) -> None:
        try:
            work(*arguments)
        except KafkaException as error:
            if error.args[0].code() in _FENCED:
                raise FencedError from error
            raise

    def begin(self) -> None:
        self._do(self.producer.begin_transaction)

    def send(self, topic: str, values: list[bytes], partition: int = 0) -> None:
        errors: list[Any] = []

        def sent(error: Any, _: Any) -> None:
            if error is not None:
                errors.append(error)

        for value in values:
            self.producer.produce(topic, value, partition=partition, on_delivery=sent)
        assert self.producer.flush(TIMEOUT_S) == 0
        if errors:
            fatal = any(error.code() in (*_FENCED, KafkaError._FATAL) for error in errors)
            raise FencedError if fatal else KafkaException(errors[0])

    def send_offset(self, consumer: Any, topic: str, offset: int) -> None:
        where = [TopicPartition(topic, 0, offset)]
        metadata = consumer.consumer_group_metadata()
        self._do(self.producer.send_offsets_to_transaction, where, metadata, TIMEOUT_S)

    def commit(self) -> None:
        self._do(self.producer.commit_transaction, TIMEOUT_S)

    def abort(self) -> None:
        self._do(self.producer.abort_transaction, TIMEOUT_S)

    def close(self) -> None:
        self.producer.purge()
        self._do(self.producer.flush, 0)


class KafkaPythonTransactor:
    def __init__(self, bootstrap: str, name: str, timeout_ms: int = 60_000) -> None:
        self.producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=name,
            transaction_timeout_ms=timeout_ms,
            linger_ms=0,
        )
        self.producer.init_transactions()

    def _do(self, work: Any, *arguments: Any) -> None:
        try:
            work(*arguments)
        except (kafka.errors.ProducerFencedError, kafka.errors.InvalidProducerEpochError) as error:
            raise FencedError from error

    def begin(self) -> None:
        self._do(self.producer.begin_transaction)

    def send(self, topic: str, values: list[bytes], partition: int = 0) -> None:
        sent = [self.producer.send(topic, value, partition=partition) for value in values]
        for one in sent:
            self._do(one.get, TIMEOUT_S)

    def send_offset(self, consumer: Any, topic: str, offset: int) -> None:
        offsets = {PythonPartition(topic, 0): OffsetAndMetadata(offset, "", -1)}
        metadata = consumer.group_metadata()
        self._do(self.producer.send_offsets_to_transaction, offsets, metadata)

    def commit(self) -> None:
        self._do(self.producer.commit_transaction)

    def abort(self) -> None:
        self._do(self.producer.abort_transaction)

    def close(self) -> None:
        self.producer.close(timeout=0)


class AioTransactor:
    def __init__(self, bootstrap: str, name: str, timeout_ms: int = 60_000) -> None:
        self._loop = asyncio.new_event_loop()
        self._run(self._start(bootstrap, name, timeout_ms))

    async def _start(self, bootstrap: str, name: str, timeout_ms: int) -> None:
        self.producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=name,
            transaction_timeout_ms=timeout_ms,
        )
        await self.producer.start()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return self._loop.run_until_complete(asyncio.wait_for(work, TIMEOUT_S))
        except (aiokafka.errors.ProducerFenced, aiokafka.errors.InvalidProducerEpoch) as error:
            raise FencedError from error

    def begin(self) -> None:
        self._run(self.producer.begin_transaction())

    def send(self, topic: str, values: list[bytes], partition: int = 0) -> None:
        for value in values:
            self._run(self.producer.send_and_wait(topic, value, partition=partition))

    def send_offset(self, consumer: Any, topic: str, offset: int) -> None:
        """aiokafka names only the group: its offsets are fenced by the producer, not the member."""
        offsets = {AioPartition(topic, 0): offset}
        group: str = consumer._group_id
        self._run(self.producer.send_offsets_to_transaction(offsets, group))

    def commit(self) -> None:
        self._run(self.producer.commit_transaction())

    def abort(self) -> None:
        self._run(self.producer.abort_transaction())

    def close(self) -> None:
        self._run(self.producer.stop())
        self._loop.close()


def start(kind: str, bootstrap: str, name: str, **options: int) -> Any:
    """A producer of `kind` with the transactional id `name`; options: timeout_ms."""
    made: dict[str, Any] = {
        "confluent": ConfluentTransactor,
        "kafka-python": KafkaPythonTransactor,
        "aiokafka": AioTransactor,
    }
    return made[kind](bootstrap, name, **options)
