"""`Producer`: sends records and tells by futures what became of them.

Safe to use from many threads. Records of one partition keep their order. The topic is created by
the first record where the broker allows it. Blocks only in `send` with a full buffer, `start`,
`flush`, `close` and transactions.
"""

import threading
import time
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaError
from confluent_kafka import Message as RawMessage

from dmq.client.config import ProducerConfig, checked
from dmq.client.errors import ClientError
from dmq.client.message import Headers, RecordMetadata
from dmq.client.sending import SLICE_S, Sending, outcome
from dmq.client.transaction import Transaction


class Delivery(Future[RecordMetadata]):
    """What becomes of a record: `result()` is its metadata, or raises a ClientError."""

    def cancel(self) -> bool:
        """False: a record that was sent can't be taken back."""
        return False

    def report(self, error: KafkaError | None, raw: "RawMessage[Any, Any]") -> None:
        told = outcome(error, raw)
        if isinstance(told, ClientError):
            self.set_exception(told)
        else:
            self.set_result(told)


class Producer:
    """Sends records. Close it, or use it in a `with`: what is in the buffer is sent before it ends."""

    def __init__(self, config: ProducerConfig | None = None) -> None:
        self.config = checked(config, ProducerConfig)
        self._sending = Sending(self.config)

    def start(self) -> Self:
        """Wait until a broker answers. Optional: `send` connects by itself. Raises
        ConnectionFailedError."""
        self._sending.start()
        return self

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Delivery:
        """Send a record; the future has its topic, partition, offset and timestamp.

        Without a partition: by the key's hash, as Kafka's own client, or any. Without a timestamp
        (milliseconds since 1970): now. Waits up to `max_block_ms` while the buffer is full. Raises
        BufferFullError, SerializationError, RecordTooLargeError.
        """
        delivery = Delivery()
        record = (topic, key, value, headers, partition, timestamp, delivery.report)
        if not self._sending.offer(*record):
            self._send_with_room(record)
        return delivery

    def _send_with_room(self, record: tuple[Any, ...]) -> None:
        deadline = time.monotonic() + self.config.max_block_ms / 1000
        while time.monotonic() < deadline:
            room = threading.Event()
            self._sending.when_room(room.set)
            if self._sending.offer(*record):
                return
            room.wait(min(SLICE_S, max(0.0, deadline - time.monotonic())))
        if not self._sending.offer(*record):
            raise self._sending.full(record[0])

    def flush(self, timeout: float | None = None) -> None:
        """Wait until every future is done, well or not. Raises TimedOutError."""
        self._sending.flush(timeout)

    def transaction(self) -> Transaction:
        """A block whose records, and offsets, become visible together or not at all."""
        return Transaction(self._sending)

    def __len__(self) -> int:
        """Records that wait or are under way."""
        return len(self._sending)

    def __bool__(self) -> bool:
        return True  # Also with nothing under way.

    def close(self, timeout: float | None = None) -> None:
        """Flush and end; what is not through by then fails. Closing again does nothing. Raises
        TimedOutError."""
        self._sending.close(timeout)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close(0)
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
