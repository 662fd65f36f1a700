"""The producer against a real broker: futures, fields, batches, compression, backpressure, the end."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait

import pytest
from client.reading import read, values
from confluent_kafka import murmur2

from dmq.client import (
    JSON,
    AckMode,
    BufferFullError,
    ClosedError,
    CompressionType,
    Consumer,
    Producer,
    ProducerConfig,
    RecordMetadata,
    RecordTooLargeError,
    SerializationError,
    TimedOutError,
)

NewProducer = Callable[..., Producer]
NewConsumer = Callable[..., Consumer]


def test_a_future_tells_where_the_record_is(new_producer: NewProducer, topic: str) -> None:
    producer = new_producer()
    first = producer.send(topic, key=b"k", value=b"one", timestamp=1_700_000_000_000)
    second = producer.send(topic, key=b"k", value=b"two")
    metadata = first.result(30)
    assert metadata == (topic, 0, 0, 1_700_000_000_000)
    assert (metadata.topic, metadata.partition, metadata.offset) == (topic, 0, 0)
    after = second.result(30)
    assert after.offset == 1
    assert abs(after.timestamp - time.time() * 1000) < 600_000


def test_futures_resolve_without_polling_and_call_back(
    new_producer: NewProducer, topic: str
) -> None:
    told = threading.Event()
    delivery = new_producer().send(topic, value=b"x")
    delivery.add_done_callback(lambda _: told.set())
    assert told.wait(30)
    assert delivery.done()
    assert not delivery.cancel()


def test_all_fields_arrive(
    new_producer: NewProducer, new_consumer: NewConsumer, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(3)
    headers = [("trace", "abc"), ("trace", b"\x00\xff"), ("none", None)]
    producer = new_producer(value_serializer=JSON)
    producer.send(topic, {"n": 1}, key="k", headers=headers, partition=2, timestamp=77).result(30)
    producer.send(topic, None, key="k", headers={"a": "b"}, partition=2).result(30)
    consumer = new_consumer(value_deserializer=JSON)
    consumer.subscribe(topic)
    message, tombstone = read(consumer, 2)
    assert message.value == {"n": 1}
    assert message.raw_value == b'{"n":1}'
    assert message.key == b"k"
    assert message.headers == [("trace", b"abc"), ("trace", b"\x00\xff"), ("none", None)]
    assert message.header("trace") == b"\x00\xff"
    assert (message.partition, message.offset, message.timestamp) == (2, 0, 77)
    assert message.timestamp_type == "create"
    assert tombstone.value is None
    assert tombstone.headers == [("a", b"b")]


def test_keys_go_where_kafkas_own_client_sends_them(
    new_producer: NewProducer, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(5)
    producer = new_producer()
    keys = [f"key-{n}".encode() for n in range(50)]
    sent = {key: producer.send(topic, key=key, value=b"") for key in keys}
    assert {key: d.result(30).partition for key, d in sent.items()} == {
        key: murmur2(key, 5) for key in keys
    }


@pytest.mark.parametrize("compression", list(CompressionType))
def test_every_compression_is_read_back_in_order(
    new_producer: NewProducer, new_consumer: NewConsumer, topic: str, compression: CompressionType
) -> None:
    producer = new_producer(compression_type=compression, linger_ms=20, batch_size=100_000)
    wanted = [b"%d " % n * 100 for n in range(500)]
    for value in wanted:
        producer.send(topic, value=value)
    producer.flush(60)
    assert len(producer) == 0
    consumer = new_consumer()
    consumer.subscribe([topic])
    assert values(read(consumer, 500)) == wanted


@pytest.mark.parametrize("acks", list(AckMode))
def test_every_ack_mode_writes(
    new_producer: NewProducer, new_consumer: NewConsumer, topic: str, acks: AckMode
) -> None:
    metadata = new_producer(acks=acks).send(topic, value=b"x").result(30)
    assert metadata.offset == (-1 if acks is AckMode.NONE else 0)
    consumer = new_consumer()
    consumer.subscribe([topic])
    assert values(read(consumer, 1)) == [b"x"]


def test_a_full_buffer_makes_send_wait_and_nothing_is_lost(
    new_producer: NewProducer, topic: str
) -> None:
    producer = new_producer(buffer_records=10, linger_ms=0)
    most = 0
    deliveries = []
    for n in range(1_000):
        deliveries.append(producer.send(topic, value=b"%d" % n))
        most = max(most, sum(not delivery.done() for delivery in deliveries[-50:]))
    offsets = [delivery.result(30).offset for delivery in deliveries]
    assert offsets == list(range(1_000))
    assert most <= 10


def test_a_buffer_that_stays_full_raises(topic: str, closed_port: str) -> None:
    producer = Producer(ProducerConfig(closed_port, buffer_records=3, max_block_ms=50))
    deliveries = [producer.send(topic, value=b"x") for _ in range(3)]
    with pytest.raises(BufferFullError, match="buffer_records") as caught:
        producer.send(topic, value=b"x")
    assert caught.value.retriable
    with pytest.raises(TimedOutError, match="3 records"):
        producer.flush(0.01)
    with pytest.raises(TimedOutError, match="3 records"):
        producer.close(0)
    for delivery in deliveries:
        with pytest.raises(TimedOutError, match="closed before"):
            delivery.result(5)


def test_who_waits_for_room_sends_when_there_is_some(new_producer: NewProducer, topic: str) -> None:
    """Two threads and a buffer of one: each send waits for the other thread's record."""
    producer = new_producer(buffer_records=1, linger_ms=0)
    found: list[int] = []

    def send() -> None:
        found.extend(producer.send(topic, value=b"x").result(30).offset for _ in range(50))

    threads = [threading.Thread(target=send) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(100))


def test_closing_sends_what_is_left_and_ends(servers: str, topic: str) -> None:
    with Producer(ProducerConfig(servers, linger_ms=10_000)) as producer:
        delivery = producer.send(topic, value=b"x")
        assert not delivery.done()
    assert delivery.result(0).offset == 0
    producer.close()
    with pytest.raises(ClosedError):
        producer.send(topic, value=b"x")
    with pytest.raises(ClosedError):
        producer.flush()


def test_values_that_are_no_bytes_are_refused_at_once(
    new_producer: NewProducer, topic: str
) -> None:
    producer = new_producer()
    with pytest.raises(SerializationError, match="value_serializer=JSON"):
        producer.send(topic, value={"n": 1})
    with pytest.raises(SerializationError, match="key for"):
        producer.send(topic, key=1, value=b"")
    with pytest.raises(SerializationError, match="header 'h' is int"):
        producer.send(topic, value=b"", headers={"h": 1})
    assert len(producer) == 0


def test_records_that_are_too_large_say_so(
    new_producer: NewProducer, new_topic: Callable[..., str]
) -> None:
    with pytest.raises(RecordTooLargeError, match="max_record_bytes") as here:
        new_producer(max_record_bytes=1_000).send("any", value=b"x" * 2_000)
    topic = new_topic(max_message_bytes="1000")
    with pytest.raises(RecordTooLargeError, match=r"max\.message\.bytes") as there:
        new_producer().send(topic, value=b"x" * 2_000).result(30)
    assert here.value.code == there.value.code == 10
    assert not there.value.retriable


def test_many_threads_share_a_producer(new_producer: NewProducer, topic: str) -> None:
    producer = new_producer()
    offsets: list[int] = []

    def send() -> None:
        sent = [producer.send(topic, value=b"x") for _ in range(500)]
        offsets.extend(delivery.result(60).offset for delivery in sent)

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(offsets) == list(range(2_000))


def test_a_forgotten_producer_leaves_no_thread(servers: str) -> None:
    before = threading.active_count()
    producer = Producer(ProducerConfig(servers))
    (thread,) = [t for t in threading.enumerate() if t.name == "dmq-producer"][-1:]
    assert threading.active_count() == before + 1
    del producer
    thread.join(10)
    assert not thread.is_alive()


def test_closing_ends_though_others_go_on_sending(servers: str, topic: str) -> None:
    producer = Producer(ProducerConfig(servers))
    sent: list[Future[RecordMetadata]] = []
    refused: list[ClosedError] = []

    def send() -> None:
        try:
            while True:
                sent.append(producer.send(topic, b"x"))
        except ClosedError as error:
            refused.append(error)

    threads = [threading.Thread(target=send) for _ in range(2)]
    for thread in threads:
        thread.start()
    wait([producer.send(topic, b"first")], timeout=30)
    producer.close(30)
    for thread in threads:
        thread.join(30)
    assert len(refused) == 2
    assert wait(sent, timeout=30).not_done == set()


def test_a_megabyte_goes_through_with_every_default(new_producer: NewProducer, topic: str) -> None:
    producer = new_producer()
    assert producer.send(topic, b"x" * 1_000_000).result(timeout=30).offset == 0
    producer.flush(timeout=30)
    producer.close(timeout=30)
