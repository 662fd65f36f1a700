"""Producers of three libraries behind one face, each on its own thread's time.

A producer reports every outcome by `ok(number, offset)` or `failed(number, error, definite)`, from
whatever thread its library uses. What is certain of an error is judged here: only an answer of the
broker to the one and only try tells that nothing was written, so only producers that never retry by
themselves have definite errors. Called by `client`.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any, Protocol

from confluent_kafka import KafkaException
from confluent_kafka import Producer as LibProducer

IMPATIENT_MS = 6000
"""What a plain producer of librdkafka has in flight must fail before its broker leaves the metadata, 9 s
after it was last heard: librdkafka takes such requests for ones that never arrived, and sends them again
whatever the number of retries (seen with 2.16; `_DESTROY_BROKER` in its rdkafka_request.c)."""
DEFINITE_CODES = {
    10,  # MESSAGE_TOO_LARGE
    19,  # NOT_ENOUGH_REPLICAS
    87,  # INVALID_RECORD
}
"""The broker's refusals of a whole batch, before anything was appended."""

Ok = Callable[[int, int], None]
Failed = Callable[[int, str, bool], None]


class DeadProducerError(Exception):
    """The library gave this producer up (a fatal error); a new one must take over."""


class Producer(Protocol):
    """One producer of a library."""

    def send(self, topic: str, partition: int, number: int, value: bytes) -> None:
        """Queue a record. Raises DeadProducerError; BufferError if it has to wait."""
        ...

    def close(self, patience_s: float) -> None:
        """Wait for the outcomes that are still open."""
        ...


class Confluent:
    """librdkafka. Plain: no retries of its own, one request at a time."""

    def __init__(
        self, bootstrap: str, options: dict[str, Any], is_idempotent: bool, ok: Ok, failed: Failed
    ) -> None:
        self._ok, self._failed = ok, failed
        self._may_be_definite = not is_idempotent
        self._fatal = ""
        plain = {"enable.idempotence": False, "max.in.flight": 1, "message.send.max.retries": 0}
        self._producer = LibProducer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "linger.ms": options["linger_ms"],
                "request.timeout.ms": 5000,
                "message.timeout.ms": options["patience_ms"],
                "socket.timeout.ms": 10_000 if is_idempotent else IMPATIENT_MS,
                "reconnect.backoff.max.ms": 1000,
                # It would go back to where it began when no broker answers; those may have left for good.
                "metadata.recovery.strategy": "none",
                "error_cb": self._on_error,
                "log_level": 0,
                **({"enable.idempotence": True} if is_idempotent else plain),
            }
        )
        self._ended = threading.Event()
        self._poller = threading.Thread(target=self._poll, daemon=True)
        self._poller.start()

    def _poll(self) -> None:
        while not self._ended.is_set():
            self._producer.poll(0.1)

    def _on_error(self, error: Any) -> None:
        if error.fatal():
            self._fatal = str(error)

    def send(self, topic: str, partition: int, number: int, value: bytes) -> None:
        if self._fatal:
            raise DeadProducerError(self._fatal)

        def delivered(error: Any, message: Any) -> None:
            if error is None:
                offset = message.offset()
                self._ok(number, -1 if offset is None or offset < 0 else offset)
            else:
                definite = self._may_be_definite and error.code() in DEFINITE_CODES
                self._failed(number, error.str(), definite)

        try:
            self._producer.produce(topic, value, partition=partition, on_delivery=delivered)
        except KafkaException as error:
            raise DeadProducerError(str(error)) from error

    def close(self, patience_s: float) -> None:
        self._producer.flush(patience_s)
        self._ended.set()
        self._poller.join()


class KafkaPython:
    """kafka-python. Plain: no retries, one request at a time."""

    def __init__(
        self, bootstrap: str, options: dict[str, Any], is_idempotent: bool, ok: Ok, failed: Failed
    ) -> None:
        from kafka import KafkaProducer

        self._ok, self._failed = ok, failed
        self._may_be_definite = not is_idempotent
        self._is_idempotent = is_idempotent
        plain = {"retries": 0, "max_in_flight_requests_per_connection": 1}
        self._is_dead = ""
        self._producer: Any = KafkaProducer(
            bootstrap_servers=bootstrap.split(","),
            acks="all",
            enable_idempotence=is_idempotent,
            linger_ms=options["linger_ms"],
            request_timeout_ms=min(5000, options["patience_ms"] - 1000),
            delivery_timeout_ms=options["patience_ms"],
            max_block_ms=5000,
            reconnect_backoff_max_ms=1000,
            **({} if is_idempotent else plain),
        )

    def send(self, topic: str, partition: int, number: int, value: bytes) -> None:
        from kafka.errors import KafkaError, KafkaTimeoutError

        if self._is_dead:
            raise DeadProducerError(self._is_dead)
        try:
            future = self._producer.send(topic, value=value, partition=partition)
        except KafkaTimeoutError as error:
            raise BufferError(str(error)) from error
        except KafkaError as error:
            raise DeadProducerError(repr(error)) from error
        future.add_callback(lambda sent: self._ok(number, sent.offset))
        future.add_errback(lambda error: self._on_error(number, error))

    def _on_error(self, number: int, error: Exception) -> None:
        code = getattr(error, "errno", -1)
        self._failed(number, repr(error), self._may_be_definite and code in DEFINITE_CODES)
        if self._is_idempotent:
            # Its sequence has a hole now; whether the library mends it is not what is tested here.
            self._is_dead = repr(error)

    def close(self, patience_s: float) -> None:
        from kafka.errors import KafkaError

        with contextlib.suppress(KafkaError):
            self._producer.flush(timeout=patience_s)
        self._producer.close(timeout=1)


class AioKafka:
    """aiokafka, idempotent only: it always retries by itself. On a loop of its own in a thread."""

    def __init__(
        self, bootstrap: str, options: dict[str, Any], is_idempotent: bool, ok: Ok, failed: Failed
    ) -> None:
        assert is_idempotent
        self._ok, self._failed = ok, failed
        self._fatal = ""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._open: set[asyncio.Task[None]] = set()
        self._producer: Any = self._call(self._start(bootstrap, options), 60)

    def _call(self, work: Any, patience_s: float) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(patience_s)

    async def _start(self, bootstrap: str, options: dict[str, Any]) -> Any:
        from aiokafka import AIOKafkaProducer

        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            acks="all",
            enable_idempotence=True,
            linger_ms=options["linger_ms"],
            request_timeout_ms=options["patience_ms"],
            metadata_max_age_ms=5000,
        )
        await producer.start()
        return producer

    def send(self, topic: str, partition: int, number: int, value: bytes) -> None:
        from aiokafka.errors import KafkaError

        if self._fatal:
            raise DeadProducerError(self._fatal)
        try:
            future = self._call(self._producer.send(topic, value, partition=partition), 60)
        except KafkaError as error:
            raise DeadProducerError(repr(error)) from error
        except TimeoutError as error:
            raise DeadProducerError("aiokafka took no record for a minute") from error
        self._loop.call_soon_threadsafe(self._await, number, future)

    def _await(self, number: int, future: Any) -> None:
        task = self._loop.create_task(self._outcome(number, future))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _outcome(self, number: int, future: Any) -> None:
        from aiokafka.errors import KafkaError

        try:
            sent = await future
        except KafkaError as error:
            self._failed(number, repr(error), False)
            self._fatal = repr(error)
        else:
            self._ok(number, sent.offset)

    async def _stop(self, patience_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._producer.flush(), patience_s)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._producer.stop(), 5)
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    def close(self, patience_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            self._call(self._stop(patience_s), patience_s + 10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


LIBRARIES: dict[str, Callable[..., Producer]] = {
    "confluent": Confluent,
    "kafka-python": KafkaPython,
    "aiokafka": AioKafka,
}
