"""What a broker keeps: retention and compaction as a client sees them, with a real compactor.

Segments are tiny and the broker looks often. `DMQ_TEST_BOOTSTRAP` puts the tests to another broker,
which must then have `log.retention.check.interval.ms`, `log.initial.task.delay.ms` and
`log.cleaner.backoff.ms` of about 100.
"""

import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from string import ascii_letters, digits
from typing import Any

import pytest
from compat import topics
from compat.conftest import unique
from compat.eventually import eventually
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from dmq.testing import Broker

SETTINGS: dict[str, Any] = {
    "log.retention.check.interval.ms": 100,
    "log.cleaner.backoff.ms": 100,
    "group.initial.rebalance.delay.ms": 0,
}
HOUR_MS = 3_600_000
SEGMENT_BYTES = 1200
PATIENCE_S = 60.0
"""A compaction starts a process; on a loaded machine that takes its time."""

Make = Callable[..., "Topic"]


class Topic:
    """One partition, written and read with librdkafka."""

    def __init__(self, bootstrap: str, name: str, compression: str = "none") -> None:
        self.bootstrap = bootstrap
        self.name = name
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": compression,
                "linger.ms": 0,
                "log_level": 0,  # It may outlive its broker.
            }
        )

    def put(self, key: str, value: str | None, ago_ms: int = 0) -> None:
        """One record in a batch of its own; in a segment of its own, if it is `large`."""
        self._send(key, value, int(time.time() * 1000) - ago_ms)
        assert self._producer.flush(20) == 0

    def put_together(self, pairs: list[tuple[str, str | None]]) -> None:
        for key, value in pairs:
            self._send(key, value, int(time.time() * 1000))
        assert self._producer.flush(20) == 0

    def close_segment(self) -> None:
        """Whatever was written so far is not in the active segment any more."""
        for n in range(2):
            self.put("the end", large(f"{n}"))

    def _send(self, key: str, value: str | None, at_ms: int) -> None:
        self._producer.produce(
            self.name, value, key, partition=0, timestamp=at_ms, on_delivery=_is_delivered
        )

    def consumer(self, **settings: Any) -> Consumer:
        found = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "check.crcs": True,
                "fetch.wait.max.ms": 10,
                **settings,
            }
        )
        low, _ = found.get_watermark_offsets(TopicPartition(self.name, 0), timeout=20)
        found.assign([TopicPartition(self.name, 0, low)])
        return found

    def read(self) -> list[tuple[int, str, str | None]]:
        """Everything there is: (offset, key, value)."""
        consumer = self.consumer()
        try:
            found = []
            while (message := next_message(consumer)) is not None:
                found.append(plain(message))
            return found
        finally:
            consumer.close()

    def bounds(self) -> tuple[int, int]:
        consumer = self.consumer()
        try:
            low, high = consumer.get_watermark_offsets(TopicPartition(self.name, 0), timeout=20)
            return low, high
        finally:
            consumer.close()

    def until(
        self,
        is_so: Callable[[list[tuple[int, str, str | None]]], bool],
        what: str,
        patience_s: float = PATIENCE_S,
    ) -> None:
        last: list[tuple[int, str, str | None]] = []

        def look() -> bool:
            try:
                last[:] = self.read()
            except OvertakenError:
                return False
            return is_so(last)

        try:
            eventually(look, what, patience_s)
        except AssertionError as error:
            raise AssertionError(f"{error}; there is {last}") from None


class OvertakenError(Exception):
    """What the reader wanted next was deleted after it had asked where the log begins."""


def _is_delivered(error: KafkaError | None, message: Message) -> None:
    assert error is None, error


def large(text: str) -> str:
    """A value of which no two fit in a segment; what follows the text does not compress."""
    return text + "-" + "".join(random.Random(text).choices(ascii_letters + digits, k=1100))


def next_message(consumer: Consumer) -> Message | None:
    """The next record; None at the end of the partition."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is None:
            continue
        error = message.error()
        if error is None:
            return message
        if error.name() == "_AUTO_OFFSET_RESET":
            raise OvertakenError(error)
        assert error.name() == "_PARTITION_EOF", error
        return None
    raise AssertionError("neither a record nor the end")


def plain(message: Message) -> tuple[int, str, str | None]:
    key, value = message.key(), message.value()
    assert isinstance(key, bytes)
    offset = message.offset()
    assert offset is not None
    return offset, key.decode(), None if value is None else value.decode()


@pytest.fixture(scope="module")
def keeper() -> Iterator[str]:
    """Where a broker is that looks after its logs ten times a second."""
    if other := os.environ.get("DMQ_TEST_BOOTSTRAP"):
        yield other
        return
    with Broker(SETTINGS) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def make(keeper: str) -> Make:
    def create(compression: str = "none", **configs: Any) -> Topic:
        name = unique("kept")
        named = {key.replace("_", "."): str(value) for key, value in configs.items()}
        topics.create(keeper, name, 1, named)
        return Topic(keeper, name, compression)

    return create


def compacted(make: Make, compression: str = "none", **configs: Any) -> Topic:
    defaults = {
        "cleanup_policy": "compact",
        "min_cleanable_dirty_ratio": "0",
        "internal_segment_bytes": SEGMENT_BYTES,
    }
    return make(compression, **(defaults | configs))


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_compacted_topic_shows_only_the_last_values(make: Make, compression: str) -> None:
    topic = compacted(make, compression)
    for n in range(5):
        topic.put_together([(f"key-{k}", f"value-{k}-{n}" * 5) for k in range(4)])
    topic.close_segment()
    last = [(f"key-{k}", f"value-{k}-4" * 5) for k in range(4)]
    topic.until(
        lambda found: [(k, v) for _, k, v in found if k != "the end"] == last,
        "one record of each key",
    )
    offsets = [offset for offset, _, _ in topic.read()]
    assert offsets[:4] == [16, 17, 18, 19], "offsets stay"
    assert topic.bounds() == (0, 22)


def test_a_tombstone_takes_its_key_away_and_goes_itself_later(make: Make) -> None:
    topic = compacted(make, delete_retention_ms=500)
    topic.put("gone", "value")
    topic.put("kept", "value")
    topic.put("gone", None)
    topic.put("other", large("x"))
    topic.put("other", large("y"))
    topic.until(
        lambda found: [(k, v) for _, k, v in found if k == "gone"] == [("gone", None)],
        "only the tombstone is left",
    )

    def is_gone_for_good() -> bool:
        topic.put("other", large("z"))  # Something to clean, or the cleaner has no reason to look.
        return "gone" not in [key for _, key, _ in topic.read()]

    eventually(is_gone_for_good, "the tombstone is gone", PATIENCE_S)
    assert "kept" in [key for _, key, _ in topic.read()]


@pytest.mark.timeout(300)
def test_what_transactions_wrote_is_compacted_too(make: Make) -> None:
    topic = compacted(make, delete_retention_ms=500)
    settings = {"bootstrap.servers": topic.bootstrap, "transactional.id": topic.name}
    producer = Producer({**settings, "linger.ms": 0, "log_level": 0})
    producer.init_transactions(20)
    for n in range(6):
        producer.begin_transaction()
        for key in ("one", "two"):
            producer.produce(topic.name, large(f"{key}-{n}"), key, partition=0)
        assert producer.flush(20) == 0
        if n == 4:
            producer.abort_transaction(20)
        else:
            producer.commit_transaction(20)
    topic.close_segment()
    last = [("one", large("one-5")), ("two", large("two-5"))]

    def is_clean(found: list[tuple[int, str, str | None]]) -> bool:
        return [(key, value) for _, key, value in found if key != "the end"] == last

    # A log that was looked at while a transaction was open in it rests for a minute first.
    topic.until(is_clean, "one record of each key, and none that was aborted", 150.0)
    offsets = [offset for offset, *_ in topic.read()]
    assert offsets[:2] == [15, 16], "offsets stay"


def test_young_records_are_not_compacted_yet(make: Make) -> None:
    topic = compacted(make, min_compaction_lag_ms=HOUR_MS)
    for value in ("old", "old"):
        topic.put("a", large(value), ago_ms=2 * HOUR_MS)
    for value in ("young", "young", "young"):
        topic.put("b", large(value))
    topic.until(lambda found: len(found) == 4, "one of the old records is left")
    assert [key for _, key, _ in topic.read()] == ["a", "b", "b", "b"]


def test_old_segments_go_and_the_beginning_moves(make: Make) -> None:
    topic = make(internal_segment_bytes=SEGMENT_BYTES, retention_ms=HOUR_MS)
    for n in range(4):
        topic.put("k", large(f"{n}"), ago_ms=2 * HOUR_MS)
    topic.put("k", large("young"))
    eventually(lambda: topic.bounds() == (4, 5), "the beginning is the young record", PATIENCE_S)
    assert [offset for offset, _, _ in topic.read()] == [4]


def test_an_idle_topic_is_emptied_when_its_time_is_over(make: Make) -> None:
    topic = make(retention_ms=HOUR_MS)
    topic.put("k", "v", ago_ms=2 * HOUR_MS)
    eventually(lambda: topic.bounds() == (1, 1), "nothing is left", PATIENCE_S)
    topic.put("k", "w")
    assert topic.read() == [(1, "k", "w")]


def test_a_topic_keeps_its_size(make: Make) -> None:
    topic = make(
        internal_segment_bytes=SEGMENT_BYTES, retention_ms=-1, retention_bytes=5 * SEGMENT_BYTES
    )
    for n in range(30):
        topic.put("k", large(f"{n}"))
    # Five would be too few bytes, so the sixth stays: only what is wholly too much goes.
    eventually(lambda: topic.bounds()[0] >= 24, "the oldest are gone", PATIENCE_S)
    assert topic.bounds() == (24, 30)
    assert topic.read()[-1][0] == 29


def test_both_policies_at_once(make: Make) -> None:
    topic = compacted(make, cleanup_policy="compact,delete", retention_ms=HOUR_MS)
    topic.put("old", large("x"), ago_ms=2 * HOUR_MS)
    for value in ("1", "2", "3"):
        topic.put("a", large(value))
    topic.put("b", large("x"))
    topic.until(
        lambda found: [key for _, key, _ in found] == ["a", "b"],
        "the old one is gone, the last of the others is there",
    )
    assert topic.bounds() == (1, 5)


def test_a_reader_goes_on_while_its_log_is_compacted(make: Make) -> None:
    """It starts before, reads in small bites, and must miss no last value."""
    topic = compacted(make)
    consumer = topic.consumer(**{"fetch.message.max.bytes": 1000, "queued.min.messages": 1})
    seen: dict[str, str | None] = {}
    offsets: list[int] = []
    try:
        for n in range(40):
            topic.put_together([(f"k{k}", f"{n}-{k}-" + "x" * 40) for k in range(10)])
            message = next_message(consumer)
            if message is not None:
                offset, key, value = plain(message)
                offsets.append(offset)
                seen[key] = value
        topic.close_segment()
        topic.until(
            lambda found: len([key for _, key, _ in found if key != "the end"]) == 10,
            "one record of each key",
        )
        while (message := next_message(consumer)) is not None:
            offset, key, value = plain(message)
            offsets.append(offset)
            seen[key] = value
    finally:
        consumer.close()
    assert offsets == sorted(set(offsets))
    assert seen == {key: value for _, key, value in topic.read()}
    assert seen["k3"] == "39-3-" + "x" * 40


def test_what_was_compacted_and_deleted_stays_so_over_a_restart(tmp_path: Path) -> None:
    """The broker is killed: no orderly end writes anything down."""
    broker = Broker(SETTINGS | {"durability": "sync"}, data_dir=tmp_path, in_process=False)
    broker.start()
    try:
        configs = {"cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": "0"}
        configs |= {"internal.segment.bytes": str(SEGMENT_BYTES), "retention.ms": str(HOUR_MS)}
        topics.create(broker.bootstrap_servers, "t", 1, configs)
        topic = Topic(broker.bootstrap_servers, "t")
        topic.put("old", large("x"), ago_ms=2 * HOUR_MS)
        for n in range(6):
            topic.put(f"k{n % 2}", large(f"{n}"))
        topic.put("the end", large("x"))
        topic.until(lambda found: len(found) == 3, "one record of each key")
        before = topic.read(), topic.bounds()
        broker.kill()
        broker.start()
        again = Topic(broker.bootstrap_servers, "t")
        assert (again.read(), again.bounds()) == before
        again.put("k0", "new")
        assert again.read()[-1] == (8, "k0", "new")
        broker.stop()
    finally:
        broker.stop()
