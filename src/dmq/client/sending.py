"""The part that both producers share: librdkafka's producer, its thread, and its blocking calls.

A thread of ours serves the delivery reports, so that futures resolve without anybody polling.
`offer` never waits: a full buffer is told, and `when_room` calls back after the next reports.
Everything else here may block and says so by a timeout. Used by `Producer` and `AsyncProducer`
alone.

States: open → closed. `start` may come at any time before, once or often; transactions are
initialised by it or by the first transaction.
"""

import contextlib
import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, KafkaError, KafkaException
from confluent_kafka import Message as RawMessage
from confluent_kafka import Producer as RawProducer
from confluent_kafka import TopicPartition as RawPartition

from dmq.client.config import ProducerConfig
from dmq.client.errors import (
    BufferFullError,
    ClientError,
    ClosedError,
    ConnectionFailedError,
    SerializationError,
    TimedOutError,
    TransactionAbortedError,
    TransactionError,
    translate,
    translate_raised,
)
from dmq.client.message import NO_OFFSET, Headers, RecordMetadata, wire_headers
from dmq.errors import ConfigError

OnDelivery = Callable[[KafkaError | None, "RawMessage[Any, Any]"], None]

log = logging.getLogger("dmq.client")
librdkafka_log = logging.getLogger("dmq.client.librdkafka")

START_TIMEOUT_S = 20.0
"""How long `start` waits for a broker's first answer."""

SLICE_S = 0.2
"""Waits are cut into slices of this length, so that Ctrl-C is heard between them."""


class Room:
    """Who waits for room in the buffer; told after every round of delivery reports."""

    def __init__(self) -> None:
        self._callbacks: deque[Callable[[], None]] = deque()

    def when(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    def tell(self) -> None:
        while self._callbacks:
            with contextlib.suppress(IndexError):  # Another thread told the last one.
                self._callbacks.popleft()()


class Sending:
    """A producer of librdkafka with its thread."""

    def __init__(self, config: ProducerConfig) -> None:
        self.config = config
        self.is_closed = False
        self._room = Room()
        self._trouble = Trouble()
        self._has_initialised = False
        self._unfinished: tuple[str, Callable[..., None]] | None = None
        """A commit or an abort that was not through in its time: librdkafka goes on with it, and takes
        nothing else before it has told how that ended."""
        self._lock = threading.Lock()
        self._stop = threading.Event()
        properties = config.librdkafka() | {
            "error_cb": self._trouble.note,
            "logger": librdkafka_log,
        }
        self._raw: RawProducer = made(lambda: RawProducer(properties))
        self._thread = threading.Thread(
            target=_serve,
            args=(self._raw, self._stop, self._room, self._trouble),
            name="dmq-producer",
            daemon=True,
        )
        self._thread.start()
        # Also of a producer that nobody closed: its thread must not outlive it.
        self._finalizer = weakref.finalize(self, self._stop.set)

    def __len__(self) -> int:
        """Records that wait or are under way."""
        return len(self._raw)

    def start(self) -> None:
        """Wait until a broker answers. Raises ConnectionFailedError, FencedError."""
        self.check_open()
        await_broker(self._raw, self.config.bootstrap_servers, self._trouble)
        if self.config.transactional_id is not None:
            self._initialise_transactions()

    def check_open(self) -> None:
        if self.is_closed:
            raise ClosedError("this producer is closed; make a new one to send more")

    # --- records

    def offer(
        self,
        topic: str,
        key: Any,
        value: Any,
        headers: Headers | None,
        partition: int | None,
        timestamp: int | None,
        on_delivery: OnDelivery,
    ) -> bool:
        """Put a record into the buffer; False when that is full. Never waits."""
        self.check_open()
        config = self.config
        try:
            self._raw.produce(
                topic,
                value=_encoded(config.value_serializer, value, topic, "value"),
                key=_encoded(config.key_serializer, key, topic, "key"),
                partition=-1 if partition is None else partition,
                on_delivery=on_delivery,
                timestamp=0 if timestamp is None else timestamp,
                headers=wire_headers(headers),
            )
        except BufferError:
            return False
        except KafkaException as raised:
            raise translate_raised(raised, f"send to {topic!r}") from raised
        return True

    def when_room(self, callback: Callable[[], None]) -> None:
        """Call back, from some thread, when records have left the buffer."""
        self._room.when(callback)

    def full(self, topic: str) -> BufferFullError:
        config = self.config
        return BufferFullError(
            f"send to {topic!r}: {len(self)} records are waiting or under way, and there was no room "
            f"for {config.max_block_ms} ms. Send slower, wait for the futures, or raise buffer_records "
            f"({config.buffer_records:,}) or buffer_bytes ({config.buffer_bytes:,}).{self._trouble}",
            retriable=True,
        )

    def flush(self, timeout_s: float | None) -> None:
        """Wait until every record is acknowledged or has failed. Raises TimedOutError."""
        self.check_open()
        left = self._flush(timeout_s)
        if left:
            raise TimedOutError(
                f"flush: {left} records are still under way after {timeout_s} s. They are sent on; "
                f"flush again, or allow more time.{self._trouble}",
                retriable=True,
            )

    def _flush(self, timeout_s: float | None) -> int:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            wait_s = SLICE_S
            if deadline is not None:
                wait_s = max(0.0, min(wait_s, deadline - time.monotonic()))
            try:
                left = self._raw.flush(wait_s)
            except KafkaException as raised:  # A fatal error; the records' futures have it too.
                self._trouble.note(raised.args[0])
                continue
            self._room.tell()
            if not left or (deadline is not None and time.monotonic() >= deadline):
                return left

    def close(self, timeout_s: float | None) -> None:
        """Flush, and end. Records that are not through by then fail. Raises TimedOutError."""
        if self.is_closed:
            return
        self.is_closed = True  # First: while others go on sending, a flush has no end.
        try:
            left = self._flush(timeout_s)
        except BaseException:  # Ctrl-C: what is left may still be sent by another close.
            self.is_closed = False
            raise
        if left:
            self._raw.purge()
            self._raw.flush(SLICE_S)
        self._stop.set()
        self._thread.join()
        self._room.tell()
        if left:
            raise TimedOutError(
                f"close: {left} records were not acknowledged within {timeout_s} s and have failed."
                f"{self._trouble}"
            )

    # --- transactions, all of them blocking

    def begin(self) -> None:
        self.check_open()
        if self.config.transactional_id is None:
            raise TransactionError("transactions need a transactional_id in the ProducerConfig")
        self._initialise_transactions()
        self._finish()
        self._transact("begin the transaction", self._raw.begin_transaction)

    def commit(self) -> None:
        self._end("commit the transaction", self._raw.commit_transaction)

    def abort(self) -> None:
        self._end("abort the transaction", self._raw.abort_transaction)

    def _end(self, doing: str, call: Callable[..., None]) -> None:
        self._unfinished = (doing, call)
        try:
            self._transact(doing, call, self._timeout_s)
        except ClientError as error:
            if not error.retriable:
                self._unfinished = None
            raise
        self._unfinished = None

    def _finish(self) -> None:
        """Wait for the end of the last transaction; who ran it was told that it is not known."""
        if self._unfinished is not None:
            try:
                self._end(*self._unfinished)
            except TransactionAbortedError:
                self.abort()

    def send_offsets(self, offsets: Iterable[RawPartition], group: object) -> None:
        self._transact(
            "commit offsets in the transaction",
            self._raw.send_offsets_to_transaction,
            list(offsets),
            group,
            self._timeout_s,
        )

    def _initialise_transactions(self) -> None:
        with self._lock:
            if not self._has_initialised:
                self._transact(
                    f"open transactions as {self.config.transactional_id!r}",
                    self._raw.init_transactions,
                    self._timeout_s,
                )
                self._has_initialised = True

    @property
    def _timeout_s(self) -> float:
        return self.config.request_timeout_ms / 1000

    def _transact(self, doing: str, call: Callable[..., None], *arguments: Any) -> None:
        """Call; what librdkafka says can be tried again is tried again, until its time is over."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                call(*arguments)
            except KafkaException as raised:
                error = translate_raised(raised, doing)
                if not error.retriable or time.monotonic() >= deadline:
                    raise error from raised
                self._stop.wait(0.05)  # Whatever it is, it needs a moment to pass.
            else:
                return


class Trouble:
    """The last thing that librdkafka complained about, for the text of a later failure."""

    def __init__(self) -> None:
        self.last: KafkaError | None = None

    def note(self, error: KafkaError) -> None:
        self.last = error

    def __str__(self) -> str:
        return "" if self.last is None else f" The last trouble: {self.last.str()}."


def made(make: Callable[[], Any]) -> Any:
    """A client of librdkafka. Raises ConfigError."""
    try:
        return make()
    except KafkaException as raised:
        raise ConfigError([str(raised.args[0].str())]) from raised


def await_broker(raw: Any, servers: object, trouble: Trouble) -> None:
    """Wait for a first answer. Raises ConnectionFailedError."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while not _answers(raw):
        if time.monotonic() >= deadline:
            raise ConnectionFailedError(
                f"no broker answered at {servers} within {START_TIMEOUT_S:.0f} s. Is one running "
                f"there? (`dmq up` starts one.){trouble}",
                retriable=True,
            )


def _answers(raw: Any) -> bool:
    """Whether a broker has told its cluster's name, which is in the first answer of every broker."""
    try:
        return bool(raw.cluster_id(timeout=SLICE_S))
    except KafkaException as raised:
        if raised.args[0].code() == KafkaError._TIMED_OUT:
            return False
        raise translate_raised(raised, "connect") from raised


def outcome(error: KafkaError | None, raw: "RawMessage[Any, Any]") -> RecordMetadata | ClientError:
    """What a delivery report says."""
    topic = raw.topic()
    assert topic is not None
    if error is not None:
        return translate(error, f"send to {topic!r}")
    partition = raw.partition()
    assert partition is not None
    offset = raw.offset()
    if offset is None or offset < 0:
        offset = NO_OFFSET
    kind, timestamp_ms = raw.timestamp()
    if kind == TIMESTAMP_NOT_AVAILABLE:
        timestamp_ms = -1
    return RecordMetadata(topic, partition, offset, timestamp_ms)


def _encoded(serializer: Any, value: Any, topic: str, what: str) -> bytes | None:
    if value is None:
        return None
    try:
        data: bytes = serializer.to_bytes(value, topic)
    except Exception as error:
        raise SerializationError(f"the {what} for {topic!r} can't be written: {error}") from error
    return data


def _serve(raw: RawProducer, stop: threading.Event, room: Room, trouble: Trouble) -> None:
    """Serve delivery reports until the end. Holds no reference to its producer."""
    while not stop.is_set():
        try:
            raw.poll(SLICE_S)
        except KafkaException as raised:
            # A fatal error, once: whatever is called next is told it too, and raises it there.
            trouble.note(raised.args[0])
        room.tell()
