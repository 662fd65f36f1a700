"""Transactions: all or nothing, also of offsets; what aborts, what fences, and chains of them."""

import contextlib
import os
import signal
import uuid
from collections.abc import Callable, Iterator

import pytest
from client.reading import poll_until, read, values

from dmq.client import (
    Consumer,
    ConsumerConfig,
    FencedError,
    GroupProtocol,
    IsolationLevel,
    Producer,
    ProducerConfig,
    TimedOutError,
    TopicPartition,
    TransactionAbortedError,
    TransactionError,
)
from dmq.client.sending import Sending
from dmq.testing import Broker

NewProducer = Callable[..., Producer]
NewConsumer = Callable[..., Consumer]


@pytest.fixture
def transactional(new_producer: NewProducer) -> NewProducer:
    def create(**settings: object) -> Producer:
        return new_producer(**{"transactional_id": uuid.uuid4().hex} | settings)

    return create


def test_committed_records_are_read_and_aborted_ones_are_not(
    transactional: NewProducer, new_consumer: NewConsumer, topic: str
) -> None:
    producer = transactional()
    with producer.transaction():
        producer.send(topic, value=b"one")
    with pytest.raises(LookupError, match="changed my mind"), producer.transaction():  # noqa: PT012
        assert producer.send(topic, value=b"never").result(30).offset == 2
        raise LookupError("changed my mind")
    with producer.transaction():
        last = producer.send(topic, value=b"two")
    assert last.done()  # A commit waits for every record of it.
    committed = new_consumer()
    committed.subscribe(topic)
    assert values(read(committed, 2)) == [b"one", b"two"]
    everything = new_consumer(
        group_id="everything", isolation_level=IsolationLevel.READ_UNCOMMITTED
    )
    everything.assign([(topic, 0)])
    assert values(read(everything, 3)) == [b"one", b"never", b"two"]


def test_an_open_transaction_is_not_read(
    transactional: NewProducer, new_consumer: NewConsumer, topic: str
) -> None:
    consumer = new_consumer()
    producer = transactional()
    with producer.transaction():
        producer.send(topic, value=b"x").result(30)
        consumer.assign([(topic, 0)])
        assert consumer.poll(0.5) == []
    assert values(read(consumer, 1)) == [b"x"]


@pytest.mark.parametrize("protocol", list(GroupProtocol))
def test_a_chain_is_exactly_once_though_its_work_fails(
    new_producer: NewProducer,
    transactional: NewProducer,
    new_consumer: NewConsumer,
    topic: str,
    protocol: GroupProtocol,
) -> None:
    """Every other attempt fails after its records and offsets were sent: nothing of it may be seen."""
    source, target = f"{topic}-in", f"{topic}-out"
    feeder = new_producer()
    for n in range(60):
        feeder.send(source, value=b"%d" % n)
    feeder.flush(60)
    consumer = new_consumer(group_protocol=protocol, max_poll_records=10)
    consumer.subscribe(source)
    producer = transactional()
    attempts = 0
    done = 0

    def work() -> None:
        nonlocal attempts, done
        messages = consumer.poll(0.2)
        if not messages:
            return
        attempts += 1
        with producer.transaction() as transaction:
            for message in messages:
                producer.send(target, value=b"out-" + message.value)
            transaction.send_offsets(consumer)
            if attempts % 2:
                raise RuntimeError("the work fails")
        done += len(messages)

    def step() -> bool:
        try:
            work()
        except RuntimeError:
            consumer.rewind()
        return done >= 60

    poll_until(step, "the whole input")
    assert done == 60
    assert attempts >= 2
    assert consumer.committed() == {TopicPartition(source, 0): 60}
    reader = new_consumer(group_id=f"{source}-judge")
    reader.assign([(target, 0)])
    assert values(read(reader, 60)) == [b"out-%d" % n for n in range(60)]
    assert reader.poll(0.3) == []


def test_offsets_can_be_given_by_hand(
    transactional: NewProducer, new_consumer: NewConsumer, new_producer: NewProducer, topic: str
) -> None:
    new_producer().send(topic, value=b"x").result(30)
    consumer = new_consumer()
    with transactional().transaction() as transaction:
        transaction.send_offsets(consumer, {(topic, 0): 1})
    assert consumer.committed([(topic, 0)]) == {TopicPartition(topic, 0): 1}


def test_a_second_producer_of_the_name_fences_the_first(
    transactional: NewProducer, new_consumer: NewConsumer, topic: str
) -> None:
    name = uuid.uuid4().hex
    old = transactional(transactional_id=name)
    with pytest.raises(FencedError, match="transactional id") as caught, old.transaction():  # noqa: PT012
        old.send(topic, value=b"old")
        new = transactional(transactional_id=name).start()
        with new.transaction():
            new.send(topic, value=b"new")
    assert caught.value.fatal
    consumer = new_consumer()
    consumer.assign([(topic, 0)])
    assert values(read(consumer, 1)) == [b"new"]


def test_a_record_that_fails_aborts_its_transaction(
    transactional: NewProducer, new_consumer: NewConsumer, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(max_message_bytes="1000")
    producer = transactional()
    with pytest.raises(TransactionAbortedError, match="again"), producer.transaction():  # noqa: PT012
        producer.send(topic, value=b"fits")
        producer.flush(30)
        producer.send(topic, value=b"x" * 5_000)
    for _ in range(2):  # librdkafka's sequence has a gap now; the next abort makes it a new one.
        with contextlib.suppress(TransactionAbortedError), producer.transaction():
            producer.send(topic, value=b"after")
    consumer = new_consumer()
    consumer.assign([(topic, 0)])
    assert values(read(consumer, 1)) == [b"after"]


def test_transactions_out_of_order_are_told(
    new_producer: NewProducer, transactional: NewProducer, topic: str
) -> None:
    with pytest.raises(TransactionError, match="transactional_id"), new_producer().transaction():
        pass
    producer = transactional().start()
    with pytest.raises(TransactionError, match=r"with producer\.transaction"):
        producer.send(topic, value=b"x")
    with (
        producer.transaction(),
        pytest.raises(TransactionError),
        producer.transaction(),
    ):
        pass


@contextlib.contextmanager
def standing_still(broker: Broker) -> Iterator[None]:
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(broker.pid, signal.SIGCONT)


@pytest.mark.parametrize("is_good", [True, False], ids=["commit", "abort"])
def test_after_an_end_that_was_late_the_next_transaction_waits_for_it(
    topic: str, is_good: bool
) -> None:
    with Broker(in_process=False) as broker:
        config = ProducerConfig(broker.bootstrap_servers, transactional_id=topic)
        with Producer(config) as producer:
            transaction = producer.transaction()
            transaction.__enter__()
            producer.send(topic, b"late").result(30)
            with standing_still(broker), pytest.MonkeyPatch.context() as patch:
                patch.setattr(Sending, "_timeout_s", 1.0)
                if is_good:
                    with pytest.raises(TimedOutError):
                        transaction.__exit__(None, None, None)
                else:
                    transaction.__exit__(ValueError, ValueError("work"), None)
            with producer.transaction():
                producer.send(topic, b"next")
        reading = ConsumerConfig(broker.bootstrap_servers, auto_offset_reset="earliest")
        with Consumer(reading) as consumer:
            consumer.assign([(topic, 0)])
            expected = [b"late", b"next"] if is_good else [b"next"]
            assert values(read(consumer, len(expected))) == expected
