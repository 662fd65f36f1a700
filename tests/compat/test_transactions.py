"""Transactions (version 1) as three libraries make them, and as they read them.

What is committed is seen as a whole, what is aborted by no careful reader, what is open by none
yet. Runs unchanged against Apache Kafka with DMQ_TEST_BOOTSTRAP.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from compat import topics
from compat.clients import members, transactors
from compat.clients.transactors import FencedError
from compat.conftest import NewTopic, unique
from compat.eventually import eventually
from compat.wire import Connection, only
from kafka import KafkaAdminClient, TopicPartition
from kafka.protocol.consumer import ListOffsetsRequest

Start = Callable[..., Any]
READS_WITHIN_S = 45.0
READ_COMMITTED = 1
# Apache Kafka looks for transactions that have run out of time every ten seconds.
ABORTED_WITHIN_S = 40.0


@pytest.fixture
def starting(bootstrap: str) -> Iterator[Start]:
    """Makes transactional producers, and sees to it that none outlives its test."""
    made: list[Any] = []

    def make(kind: str, name: str, **options: int) -> Any:
        producer = transactors.start(kind, bootstrap, name, **options)
        made.append(producer)
        return producer

    yield make
    for producer in made:
        with suppress(FencedError):  # A test may leave a producer that has been fenced.
            producer.close()


@pytest.fixture
def name() -> str:
    return unique("transactional")


@pytest.fixture
def admin(bootstrap: str) -> Iterator[Any]:
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    yield client
    client.close()


def last_stable_offset(bootstrap: str, topic: str) -> int:
    wanted = ListOffsetsRequest.ListOffsetsTopic
    part = wanted.ListOffsetsPartition(
        partition_index=0, current_leader_epoch=-1, timestamp=topics.LATEST
    )
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=READ_COMMITTED,
        topics=[wanted(name=topic, partitions=[part])],
        timeout_ms=10_000,
    )
    with Connection(bootstrap) as connection:
        return int(only(only(connection.call(request, 7).topics).partitions).offset)


def end_offset(bootstrap: str, topic: str) -> int:
    with Connection(bootstrap) as connection:
        return int(only(topics.list_offsets(connection, topic, [0], topics.LATEST)).offset)


def values_until(
    kind: str, bootstrap: str, topic: str, last: bytes, isolation: str = "read_committed"
) -> list[bytes | None]:
    """All that a new group of `kind` reads, up to the record `last`."""
    member = members.join(kind, bootstrap, topic, unique("group"), isolation=isolation)
    found: list[bytes | None] = []

    def turn() -> bool:
        found.extend(one.value for one in member.poll())
        return last in found

    try:
        eventually(turn, f"{kind} reads {last!r}", READS_WITHIN_S)
    finally:
        member.close()
    return found


def run(producer: Any, topic: str, values: list[bytes], *, commits: bool = True) -> None:
    producer.begin()
    producer.send(topic, values)
    if commits:
        producer.commit()
    else:
        producer.abort()


@pytest.mark.parametrize("kind", transactors.KINDS)
def test_the_committed_is_read_and_the_aborted_is_not(
    kind: str, bootstrap: str, starting: Start, name: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    producer = starting(kind, name)
    run(producer, topic, [b"a", b"b"])
    run(producer, topic, [b"lost"], commits=False)
    run(producer, topic, [b"c"])
    run(producer, topic, [b"lost too"], commits=False)
    run(producer, topic, [b"end"])
    for reader in members.ONE_OF_EACH:
        found = values_until(reader, bootstrap, topic, b"end")
        assert found == [b"a", b"b", b"c", b"end"], reader
    careless = values_until(
        "kafka-python-eager", bootstrap, topic, b"end", isolation="read_uncommitted"
    )
    assert careless == [b"a", b"b", b"lost", b"c", b"lost too", b"end"]


@pytest.mark.parametrize("kind", transactors.KINDS)
def test_an_open_transaction_holds_back_what_comes_after(
    kind: str, bootstrap: str, starting: Start, name: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    producer, another = starting(kind, name), starting(kind, f"{name}-another")
    run(producer, topic, [b"before"])
    eventually(lambda: last_stable_offset(bootstrap, topic) == 2, "the first is stable")
    producer.begin()
    producer.send(topic, [b"open"])
    run(another, topic, [b"after"])
    eventually(lambda: end_offset(bootstrap, topic) == 5, "record and marker of the other")
    assert last_stable_offset(bootstrap, topic) == 2
    producer.commit()
    eventually(lambda: last_stable_offset(bootstrap, topic) == 6, "all is stable")
    assert values_until("aiokafka", bootstrap, topic, b"after") == [b"before", b"open", b"after"]


@pytest.mark.parametrize("kind", transactors.KINDS)
def test_a_zombie_is_fenced_and_its_transaction_aborted(
    kind: str, bootstrap: str, starting: Start, name: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    zombie = starting(kind, name)
    zombie.begin()
    zombie.send(topic, [b"undead"])
    heir = starting(kind, name)
    eventually(lambda: last_stable_offset(bootstrap, topic) == 2, "the zombie's is aborted")
    with pytest.raises(FencedError):
        zombie.commit()
    run(heir, topic, [b"heir"])
    assert values_until("confluent-eager", bootstrap, topic, b"heir") == [b"heir"]


@pytest.mark.parametrize("kind", ["confluent", "kafka-python"])
def test_a_transaction_without_an_end_is_aborted_in_time(
    kind: str, bootstrap: str, starting: Start, name: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    producer = starting(kind, name, timeout_ms=10_000)
    producer.begin()
    producer.send(topic, [b"forgotten"])
    stable = "the transaction is aborted"
    eventually(lambda: last_stable_offset(bootstrap, topic) == 2, stable, ABORTED_WITHIN_S)
    run(starting(kind, name), topic, [b"next"])
    assert values_until("confluent-new", bootstrap, topic, b"next") == [b"next"]


@pytest.mark.parametrize(
    ("kind", "reader"),
    [
        ("confluent", "confluent-eager"),
        ("confluent", "confluent-new"),
        ("kafka-python", "kafka-python-eager"),
        ("aiokafka", "aiokafka"),
    ],
)
def test_offsets_are_committed_with_the_records_or_not_at_all(
    kind: str, reader: str, bootstrap: str, starting: Start, name: str, new_topic: NewTopic
) -> None:
    source, target, group = new_topic(), new_topic(), unique("group")
    run(starting(kind, f"{name}-source"), source, [b"1", b"2"])
    chain = starting(kind, name)
    member = members.join(reader, bootstrap, source, group)
    seen: list[members.Seen] = []
    try:

        def turn() -> bool:
            seen.extend(member.poll())
            return len(seen) == 2

        eventually(turn, "both are read", READS_WITHIN_S)
        consumer = member.consumer  # type: ignore[attr-defined]
        for ending in (chain.abort, chain.commit):
            chain.begin()
            chain.send(target, [b"out of " + (one.value or b"") for one in seen])
            chain.send_offset(consumer, source, 2)
            if ending == chain.abort:
                ending()
                assert member.committed(0) is None
            else:
                ending()
        assert eventually(lambda: member.committed(0), "the offset is there") == 2
    finally:
        member.close()
    found = values_until(reader, bootstrap, target, b"out of 2")
    assert found == [b"out of 1", b"out of 2"]


@pytest.mark.parametrize("kind", transactors.KINDS)
def test_open_transactions_can_be_looked_at(
    kind: str, starting: Start, name: str, new_topic: NewTopic, admin: Any
) -> None:
    topic = new_topic()
    producer = starting(kind, name)
    producer.begin()
    producer.send(topic, [b"x"])
    described = admin.describe_transactions([name])[name]
    assert described.state.value == "Ongoing"
    assert {tuple(one) for one in described.topic_partitions} == {(topic, 0)}
    assert described.transaction_timeout_ms == 60_000
    by_broker = admin.list_transactions()
    everything = [one for listing in by_broker.values() for one in listing]
    (listed,) = [one for one in everything if one.transactional_id == name]
    assert (listed.state.value, listed.producer_id) == ("Ongoing", described.producer_id)
    where = TopicPartition(topic, 0)
    (active,) = admin.describe_producers([where])[where].active_producers
    assert (active.producer_id, active.current_transaction_start_offset) == (
        described.producer_id,
        0,
    )
    assert active.producer_epoch == described.producer_epoch
    producer.commit()

    def is_complete() -> bool:
        return bool(admin.describe_transactions([name])[name].state.value == "CompleteCommit")

    eventually(is_complete, "the transaction is complete")
    (active,) = admin.describe_producers([where])[where].active_producers
    assert active.current_transaction_start_offset == -1
