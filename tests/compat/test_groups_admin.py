"""Groups as the admin clients of confluent-kafka and kafka-python see, move and delete them.

Runs unchanged against Apache Kafka with DMQ_TEST_BOOTSTRAP.
"""

from collections.abc import Iterator
from typing import Any

import kafka.errors
import pytest
from compat import topics
from compat.clients.client import Client, Record
from compat.clients.members import Member, join
from compat.conftest import NewTopic, unique
from compat.eventually import eventually
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient
from kafka import TopicPartition as PythonPartition

SETTLES_WITHIN_S = 45.0
KINDS = ("confluent-eager", "confluent-new")
PROTOCOLS = {
    "confluent-eager": ConsumerGroupType.CLASSIC,
    "confluent-new": ConsumerGroupType.CONSUMER,
}


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


@pytest.fixture
def python_admin(bootstrap: str) -> Iterator[Any]:
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    yield client
    client.close()


@pytest.fixture
def topic(confluent: Client, new_topic: NewTopic) -> str:
    """Two partitions with five records each."""
    name = new_topic(partitions=2)
    for partition in (0, 1):
        confluent.produce(name, [Record(None, b"x")] * 5, partition=partition)
    return name


def joined(kind: str, bootstrap: str, topic: str, group: str) -> Member:
    member = join(kind, bootstrap, topic, group)

    def has_all() -> bool:
        member.poll()
        return member.assigned() == {0, 1}

    eventually(has_all, "the member has both partitions", SETTLES_WITHIN_S)
    return member


def left(kind: str, bootstrap: str, topic: str, committed: dict[int, int]) -> str:
    """The name of a group that committed these offsets and is empty now."""
    group = unique("group")
    member = joined(kind, bootstrap, topic, group)
    for partition, offset in committed.items():
        member.commit(partition, offset)
    member.close()
    return group


def described(admin: AdminClient, group: str) -> Any:
    return admin.describe_consumer_groups([group])[group].result(15)


def wait_for(admin: AdminClient, group: str, state: Any) -> None:
    eventually(lambda: described(admin, group).state == state, f"{group} is {state}")


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_is_listed_and_described_as_it_lives(
    kind: str, bootstrap: str, topic: str, admin: AdminClient, python_admin: Any
) -> None:
    group = unique("group")
    member = joined(kind, bootstrap, topic, group)
    try:
        wait_for(admin, group, ConsumerGroupState.STABLE)
        found = described(admin, group)
        (one,) = found.members
        where = {(part.topic, part.partition) for part in one.assignment.topic_partitions}
        assert where == {(topic, 0), (topic, 1)}
        assert found.type == PROTOCOLS[kind]
        assert found.partition_assignor == ("range" if kind == "confluent-eager" else "uniform")
        stable = admin.list_consumer_groups(states={ConsumerGroupState.STABLE}).result()
        assert group in {listed.group_id for listed in stable.valid}
        with pytest.raises(KafkaException):
            admin.delete_consumer_groups([group])[group].result(15)
    finally:
        member.close()
    wait_for(admin, group, ConsumerGroupState.EMPTY)
    listed = {one["group_id"]: one for one in python_admin.list_groups()}
    assert listed[group]["group_state"].capitalize() == "Empty"
    of_type = admin.list_consumer_groups(types={PROTOCOLS[kind]}).result()
    assert group in {one.group_id for one in of_type.valid}


@pytest.mark.parametrize("kind", KINDS)
def test_offsets_are_read_moved_and_deleted_from_outside(
    kind: str, bootstrap: str, topic: str, admin: AdminClient, python_admin: Any
) -> None:
    group = left(kind, bootstrap, topic, {0: 2, 1: 4})
    wait_for(admin, group, ConsumerGroupState.EMPTY)
    assert lags(admin, group, topic) == {0: 3, 1: 1}
    moved = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 5)])
    admin.alter_consumer_group_offsets([moved])[group].result(15)
    assert lags(admin, group, topic) == {0: 0, 1: 1}
    first = PythonPartition(topic, 0)
    assert python_admin.list_group_offsets({group: [first]})[group][first].offset == 5
    answer = python_admin.delete_group_offsets(group, [first])
    assert answer[first] is kafka.errors.NoError
    assert lags(admin, group, topic) == {1: 1}


def lags(admin: AdminClient, group: str, topic: str) -> dict[int, int]:
    """How far behind the end each committed offset is; every partition has five records."""
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    found = asked[group].result(15).topic_partitions
    assert {part.topic for part in found} <= {topic}
    return {part.partition: 5 - part.offset for part in found if part.offset >= 0}


@pytest.mark.parametrize("kind", KINDS)
def test_a_deleted_group_is_forgotten(
    kind: str, bootstrap: str, topic: str, admin: AdminClient, python_admin: Any
) -> None:
    group = left(kind, bootstrap, topic, {0: 3})
    other = left(kind, bootstrap, topic, {0: 3})
    for one in (group, other):
        wait_for(admin, one, ConsumerGroupState.EMPTY)
    admin.delete_consumer_groups([group])[group].result(15)
    python_admin.delete_groups([other])
    assert not {group, other} & {one["group_id"] for one in python_admin.list_groups()}
    assert lags(admin, group, topic) == {}
    with pytest.raises(KafkaException):
        admin.delete_consumer_groups([group])[group].result(15)


@pytest.mark.parametrize("kind", KINDS)
def test_the_offsets_of_a_deleted_topic_go_with_it(
    kind: str, bootstrap: str, topic: str, admin: AdminClient, new_topic: NewTopic
) -> None:
    group = left(kind, bootstrap, topic, {0: 3, 1: 2})
    kept = new_topic()
    wait_for(admin, group, ConsumerGroupState.EMPTY)
    beside = ConsumerGroupTopicPartitions(group, [TopicPartition(kept, 0, 0)])
    admin.alter_consumer_group_offsets([beside])[group].result(15)
    topics.delete(bootstrap, topic)

    def of_topics() -> set[str]:
        asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
        return {part.topic for part in asked[group].result(15).topic_partitions}

    eventually(lambda: of_topics() == {kept}, "only the other topic's offset is left")
