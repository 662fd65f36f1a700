"""The consumer against a real broker, in both group protocols: reading, progress, seeking, pausing."""

import contextlib
import itertools
import threading
import time
from collections.abc import Callable

import pytest
from client.reading import poll_until, read, values

from dmq.client import (
    JSON,
    ClientError,
    ClosedError,
    Consumer,
    ConsumerConfig,
    GroupError,
    GroupProtocol,
    OffsetError,
    OffsetResetPolicy,
    Producer,
    SerializationError,
    TopicPartition,
)

NewProducer = Callable[..., Producer]
NewConsumer = Callable[..., Consumer]

both = pytest.mark.parametrize("protocol", list(GroupProtocol))


def fill(producer: Producer, topic: str, count: int, partition: int = 0, start: int = 0) -> None:
    """Values "0", "1", ... that are their offsets."""
    for n in range(start, start + count):
        producer.send(topic, value=b"%d" % n, partition=partition)
    producer.flush(60)


def numbers(first: int, end: int) -> list[bytes]:
    return [b"%d" % n for n in range(first, end)]


@both
def test_commits_of_all_three_kinds_are_where_the_next_one_begins(
    new_producer: NewProducer, new_consumer: NewConsumer, topic: str, protocol: GroupProtocol
) -> None:
    fill(new_producer(), topic, 10)
    here = TopicPartition(topic, 0)

    def consumer() -> Consumer:
        made = new_consumer(group_protocol=protocol)
        made.subscribe([topic])
        return made

    first = consumer()
    assert values(read(first, 3)) == numbers(0, 3)
    assert first.commit() == {here: 3}
    assert first.committed() == {here: 3}
    first.close()

    second = consumer()
    messages = read(second, 4)
    assert values(messages) == numbers(3, 7)
    assert second.commit(messages[1]) == {here: 5}
    second.close()

    third = consumer()
    assert values(read(third, 5)) == numbers(5, 10)
    assert third.commit({(topic, 0): 9}) == {here: 9}
    third.close()

    last = consumer()
    assert values(read(last, 1)) == numbers(9, 10)
    assert last.commit(wait=False) == {here: 10}
    poll_until(lambda: last.committed() == {here: 10}, "the commit that nobody waits for", last)


@both
def test_what_is_in_hand_is_not_committed_by_itself(
    new_producer: NewProducer, new_consumer: NewConsumer, topic: str, protocol: GroupProtocol
) -> None:
    """An automatic commit covers what was read before the last poll; a crash repeats the rest."""
    fill(new_producer(), topic, 4)

    def settings() -> Consumer:
        made = new_consumer(
            group_protocol=protocol, enable_auto_commit=True, auto_commit_interval_ms=20
        )
        made.subscribe([topic])
        return made

    first = settings()
    read(first, 2)
    with contextlib.suppress(RuntimeError), first:
        read(first, 1)  # Coming back says that the first two are done.
        poll_until(lambda: first.committed(), "the automatic commit")
        assert first.committed() == {TopicPartition(topic, 0): 2}
        raise RuntimeError("the work on the third message fails")
    second = settings()
    assert values(read(second, 2)) == numbers(2, 4)
    second.close()  # An orderly end: these two are done.
    assert new_consumer().committed([(topic, 0)]) == {TopicPartition(topic, 0): 4}


def test_iteration_gives_message_after_message(
    new_producer: NewProducer, new_consumer: NewConsumer, topic: str
) -> None:
    fill(new_producer(), topic, 5)
    consumer = new_consumer()
    consumer.subscribe(topic)
    taken = []
    for message in consumer:
        taken.append(message)
        assert consumer.handed() == {TopicPartition(topic, 0): message.offset + 1}
        if len(taken) == 3:
            break
    assert values(taken) == numbers(0, 3)
    assert values(list(itertools.islice(consumer, 2))) == numbers(3, 5)


def test_a_message_reads_as_attributes_and_as_a_mapping(
    new_producer: NewProducer, new_consumer: NewConsumer, topic: str
) -> None:
    new_producer().send(topic, key=b"k", value=b"v", headers={"h": "1"}, timestamp=5).result(30)
    consumer = new_consumer()
    consumer.subscribe(topic)
    (message,) = read(consumer, 1)
    assert message["topic"] == message.topic == topic
    assert message.topic_partition == (topic, 0)
    assert dict(message) == {
        "topic": topic,
        "partition": 0,
        "offset": 0,
        "timestamp": 5,
        "timestamp_type": "create",
        "key": b"k",
        "value": b"v",
        "headers": [("h", b"1")],
        "leader_epoch": message.leader_epoch,
    }
    assert set(message) == message.keys()
    assert message.get("nothing") is None
    with pytest.raises(KeyError):
        message["nothing"]
    assert repr(message) == f"Message({topic}-0 offset 0, key=b'k', value=b'v')"


def test_bytes_that_are_no_such_value_hurt_only_who_reads_them(
    new_producer: NewProducer, new_consumer: NewConsumer, topic: str
) -> None:
    producer = new_producer()
    for value in (b'{"a":1}', b"not json", b'{"a":2}'):
        producer.send(topic, value=value)
    producer.flush(30)
    consumer = new_consumer(value_deserializer=JSON)
    consumer.subscribe(topic)
    good, bad, after = read(consumer, 3)
    assert (good.value, after.value) == ({"a": 1}, {"a": 2})
    with pytest.raises(SerializationError, match=f"{topic}-0 offset 1"):
        _ = bad.value
    assert bad.raw_value == b"not json"


@both
def test_seeking(
    new_producer: NewProducer, new_consumer: NewConsumer, topic: str, protocol: GroupProtocol
) -> None:
    producer = new_producer()
    began = int(time.time() * 1000) - 60_000  # Recent: else retention may take them meanwhile.
    for n in range(10):
        producer.send(topic, value=b"%d" % n, timestamp=began + 1_000 * (n + 1))
    producer.flush(30)
    consumer = new_consumer(group_protocol=protocol)
    consumer.subscribe([topic])
    here = (topic, 0)
    read(consumer, 10)
    assert consumer.position(here) == 10
    consumer.seek(here, 4)
    assert consumer.handed() == {}
    assert values(read(consumer, 2)) == numbers(4, 6)
    assert consumer.position(here) == 6
    consumer.seek_to_beginning()
    assert values(read(consumer, 2)) == numbers(0, 2)
    consumer.seek_to_time(began + 8_000)
    assert values(read(consumer, 2)) == numbers(7, 9)
    consumer.commit({here: 3})
    consumer.rewind()
    assert values(read(consumer, 1)) == numbers(3, 4)
    consumer.seek_to_end([here])
    assert consumer.poll(0.3) == []
    fill(producer, topic, 1, start=10)
    assert values(read(consumer, 1)) == numbers(10, 11)


def test_a_seek_while_partitions_are_assigned_says_where_to_begin(
    new_producer: NewProducer, new_consumer: NewConsumer, topic: str
) -> None:
    fill(new_producer(), topic, 5)
    consumer = new_consumer()
    consumer.subscribe(topic, on_assign=lambda found: [consumer.seek(p, 3) for p in found])  # type: ignore[arg-type,return-value]
    assert values(read(consumer, 2)) == numbers(3, 5)


@both
def test_paused_partitions_wait_and_others_are_read(
    new_producer: NewProducer,
    new_consumer: NewConsumer,
    new_topic: Callable[..., str],
    protocol: GroupProtocol,
) -> None:
    topic = new_topic(2)
    producer = new_producer()
    consumer = new_consumer(group_protocol=protocol)
    consumer.subscribe([topic])
    poll_until(lambda: len(consumer.assignment()) == 2, "both partitions", consumer)
    consumer.pause([(topic, 0)])
    assert consumer.paused() == [(topic, 0)]
    fill(producer, topic, 5, partition=0)
    fill(producer, topic, 5, partition=1)
    assert {m.partition for m in read(consumer, 5)} == {1}
    assert consumer.poll(0.5) == []
    assert consumer.lag() == {(topic, 0): 5, (topic, 1): 0}
    consumer.resume([(topic, 0)])
    assert values(read(consumer, 5)) == numbers(0, 5)
    consumer.pause()
    assert len(consumer.paused()) == 2
    fill(producer, topic, 1, partition=1, start=5)
    assert consumer.poll(0.5) == []
    consumer.resume()
    assert values(read(consumer, 1)) == numbers(5, 6)


def test_lag_counts_from_the_position_the_commit_or_the_policy(
    new_producer: NewProducer, new_consumer: NewConsumer, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(2)
    fill(new_producer(), topic, 10, partition=0)
    consumer = new_consumer()
    consumer.commit({(topic, 0): 4})
    consumer.assign([(topic, 0), (topic, 1)])
    assert consumer.lag() == {(topic, 0): 6, (topic, 1): 0}
    read(consumer, 2)
    assert consumer.lag()[TopicPartition(topic, 0)] == 4
    assert consumer.bounds((topic, 0)) == (0, 10)
    newcomer = new_consumer(group_id="nobody", auto_offset_reset=OffsetResetPolicy.LATEST)
    newcomer.assign([(topic, 0)])
    assert newcomer.lag() == {(topic, 0): 0}


def test_polls_give_no_more_than_they_should_and_do_not_wait_for_more(
    new_producer: NewProducer, new_consumer: NewConsumer, topic: str
) -> None:
    fill(new_producer(), topic, 20)
    consumer = new_consumer(max_poll_records=7)
    consumer.subscribe(topic)
    sizes = []
    while sum(sizes) < 20:
        sizes.append(len(consumer.poll(timeout_ms=60_000)))  # The last ones come without a wait.
    assert max(sizes) <= 7


@both
def test_patterns_find_topics_by_their_whole_names(
    new_producer: NewProducer,
    new_consumer: NewConsumer,
    topic: str,
    new_topic: Callable[..., str],
    protocol: GroupProtocol,
) -> None:
    wanted = [new_topic(suffix=".a"), new_topic(suffix=".b")]
    other = new_topic(suffix=".a.not")
    producer = new_producer()
    for name in [other, *wanted]:
        producer.send(name, value=name.encode()).result(30)
    consumer = new_consumer(group_protocol=protocol, metadata_refresh_ms=200)
    consumer.subscribe(pattern=rf"{topic}\.[ab]")
    assert {m.topic for m in read(consumer, 2)} == set(wanted)
    assert {p.topic for p in consumer.assignment()} == set(wanted)


@both
def test_a_topic_that_comes_later_is_read_when_it_is_there(
    new_producer: NewProducer, new_consumer: NewConsumer, topic: str, protocol: GroupProtocol
) -> None:
    consumer = new_consumer(group_protocol=protocol, metadata_refresh_ms=200)
    consumer.subscribe(topic)
    assert consumer.poll(0.5) == []
    new_producer().send(topic, value=b"at last").result(30)
    assert values(read(consumer, 1)) == [b"at last"]


def test_without_a_group_partitions_are_assigned_by_hand(
    new_producer: NewProducer, servers: str, topic: str
) -> None:
    fill(new_producer(), topic, 5)
    with Consumer(ConsumerConfig(servers, auto_offset_reset="earliest")) as consumer:
        consumer.assign({(topic, 0): 3})
        assert values(read(consumer, 2)) == numbers(3, 5)
        consumer.assign([(topic, 0)])
        assert values(read(consumer, 5)) == numbers(0, 5)
        for call in (lambda: consumer.subscribe(topic), consumer.commit, consumer.committed):
            with pytest.raises(GroupError, match="group_id"):
                call()
    with pytest.raises(ClosedError):
        consumer.poll()


def test_without_a_policy_a_missing_offset_is_told(
    new_producer: NewProducer, new_consumer: NewConsumer, topic: str
) -> None:
    fill(new_producer(), topic, 1)
    consumer = new_consumer(auto_offset_reset=OffsetResetPolicy.NONE)
    consumer.subscribe(topic)
    with pytest.raises(OffsetError, match="auto_offset_reset"):
        poll_until(lambda: False, "the error", consumer)


def test_seeking_in_somebody_elses_partition_is_refused(new_consumer: NewConsumer) -> None:
    with pytest.raises(ClientError, match="on_assign"):
        new_consumer().seek(("elsewhere", 0), 1)
    with pytest.raises(ClientError, match="at least one topic"):
        new_consumer().subscribe([])


@pytest.mark.parametrize("reading", ["poll", "iteration", "lag"])
def test_a_close_of_another_thread_ends_what_is_under_way(
    new_producer: NewProducer, new_consumer: NewConsumer, topic: str, reading: str
) -> None:
    new_producer().send(topic, b"x").result(30)
    consumer = new_consumer()
    consumer.subscribe([topic])
    read(consumer, 1)
    under_way = threading.Event()
    ended: list[BaseException] = []

    def go_on() -> None:
        try:
            while True:
                under_way.set()
                if reading == "poll":
                    consumer.poll(60)
                elif reading == "iteration":
                    next(iter(consumer))
                else:
                    consumer.lag()
        except ClientError as error:
            ended.append(error)

    thread = threading.Thread(target=go_on, daemon=True)
    thread.start()
    assert under_way.wait(30)
    closing = threading.Thread(target=consumer.close, daemon=True)
    closing.start()
    closing.join(30)
    thread.join(30)
    assert not closing.is_alive()
    assert [type(error) for error in ended] == [ClosedError]


def test_position_and_lag_know_of_a_seek_before_the_next_message(
    new_producer: NewProducer, new_consumer: NewConsumer, topic: str
) -> None:
    fill(new_producer(), topic, 10)
    place = TopicPartition(topic, 0)
    consumer = new_consumer()
    consumer.subscribe([topic])
    read(consumer, 4)
    consumer.commit()
    read(consumer, 4)
    consumer.seek(place, 7)
    assert (consumer.position(place), consumer.lag()) == (7, {place: 3})
    consumer.seek_to_end()
    assert (consumer.position(place), consumer.lag()) == (10, {place: 0})
    consumer.seek_to_beginning()
    assert (consumer.position(place), consumer.lag()) == (None, {place: 10})
    assert values(read(consumer, 2)) == numbers(0, 2)
    assert (consumer.position(place), consumer.lag()) == (2, {place: 8})
    consumer.rewind()
    assert (consumer.position(place), consumer.lag()) == (4, {place: 6})
    with pytest.raises(OffsetError, match="-1 is no offset"):
        consumer.seek(place, -1)
    by_hand = new_consumer(group_id=None, auto_offset_reset="latest")
    by_hand.assign({place: 9})
    assert (by_hand.position(place), by_hand.lag()) == (9, {place: 1})


@both
def test_partitions_that_are_not_assigned_can_not_be_paused_but_those_that_come_can(
    new_producer: NewProducer, new_consumer: NewConsumer, topic: str, protocol: GroupProtocol
) -> None:
    fill(new_producer(), topic, 1)
    consumer = new_consumer(group_protocol=protocol)
    with pytest.raises(ClientError, match=f"pause: {topic}-0 is not assigned"):
        consumer.pause([(topic, 0)])
    assert consumer.paused() == []
    consumer.subscribe([topic], on_assign=consumer.pause)
    poll_until(consumer.assignment, "the partition is assigned", consumer)
    assert consumer.paused() == [(topic, 0)]
    assert consumer.poll(1) == []
    consumer.resume()
    assert values(read(consumer, 1)) == [b"0"]


def test_names_that_other_clients_have_are_taken(
    new_producer: NewProducer, new_consumer: NewConsumer, topic: str
) -> None:
    fill(new_producer(), topic, 3)
    consumer = new_consumer()
    consumer.subscribe([topic])
    messages = poll_until(consumer.assignment, "the partition is assigned", consumer)
    while not messages:
        messages = consumer.poll(timeout=30, max_records=1)
    assert consumer.commit(message=messages[0]) == {(topic, 0): 1}
    assert consumer.commit(offsets={(topic, 0): 2}) == {(topic, 0): 2}
    with pytest.raises(TypeError, match="commit takes a message or"):
        consumer.commit(messages)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="max_records is 0"):
        consumer.poll(0, max_records=0)
