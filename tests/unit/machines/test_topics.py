"""Creating and deleting topics, adding partitions. Codes are what a real Kafka 4.3 answered."""

import uuid

import pytest
from unit.machines.cluster_of import Cluster

from dmq.errors import ErrorCode
from dmq.machines.commands import (
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    MorePartitions,
    NewTopic,
    PartitionsCreated,
    TopicDeleted,
)
from dmq.machines.topics import PARTITIONS_PER_COMMAND_MAX
from dmq.types import METADATA_TOPIC, METADATA_TOPIC_ID, NIL_UUID, Voter


@pytest.mark.parametrize(
    ("name", "more", "code", "said"),
    [
        ("", {}, 17, "the empty string is not allowed"),
        (".", {}, 17, "'.' is not allowed"),
        ("..", {}, 17, "'..' is not allowed"),
        ("x" * 250, {}, 17, "249"),
        ("a b", {}, 17, "ASCII letters"),
        ("a/b", {}, 17, "ASCII letters"),
        ("a\n", {}, 17, "ASCII letters"),
        ("é", {}, 17, "ASCII letters"),
        ("there", {}, 36, "Topic 'there' already exists."),
        ("a_b", {}, 17, "collides with 'a.b'"),
        (METADATA_TOPIC, {}, 42, "can't be created"),
        ("z", {"partitions": 0}, 37, "partitions"),
        ("z", {"partitions": -2}, 37, "partitions"),
        ("z", {"replicas": 0}, 38, "1 or more"),
        ("z", {"replicas": -2}, 38, "1 or more"),
        ("z", {"replicas": 4}, 38, "3 are registered"),
        ("z", {"partitions": 2, "assignments": ((0, (1,)), (1, (1,)))}, 42, "must both be -1"),
        ("z", {"replicas": 1, "assignments": ((0, (1,)),)}, 42, "must both be -1"),
        ("z", {"assignments": ((0, (1,)), (2, (1,)))}, 39, "without a gap"),
        ("z", {"assignments": ((1, (1,)),)}, 39, "without a gap"),
        ("z", {"assignments": ((0, (1,)), (0, (1,)))}, 39, "Partition 0"),
        ("z", {"assignments": ((0, (1, 1)),)}, 39, "broker 1 twice"),
        ("z", {"assignments": ((0, (7,)),)}, 39, "broker 7"),
        ("z", {"assignments": ((0, (-1,)),)}, 39, "broker -1"),
        ("z", {"assignments": ((0, ()),)}, 39, "empty list of replicas"),
        ("z", {"assignments": ((0, (1,)), (1, (1, 2)))}, 39, "2 replica(s)"),
        ("z", {"configs": (("nope", "1"),)}, 40, "Unknown topic config name: nope"),
        ("z", {"configs": (("retention.ms", None),)}, 40, "must not be null"),
        ("z", {"configs": (("retention.ms", "x"),)}, 40, "Invalid value x"),
        ("z", {"partitions": PARTITIONS_PER_COMMAND_MAX + 1, "replicas": 1}, 44, "at most 10000"),
    ],
)
def test_refused(name: str, more: dict[str, object], code: int, said: str) -> None:
    cluster = Cluster(3)
    cluster.create("there")
    cluster.create("a.b")
    before = len(cluster.log)
    created = cluster.create(name, **more)  # type: ignore[arg-type]
    assert created.error is not None
    assert created.error.code == code
    assert said in str(created.error)
    assert len(cluster.log) == before


def test_created() -> None:
    cluster = Cluster(3)
    created = cluster.create("t", 4, 2, configs=(("retention.ms", " 5 "),))
    assert (created.error, created.partitions, created.replication_factor) == (None, 4, 2)
    topic = cluster.state.topics["t"]
    assert cluster.state.topics_by_id[created.topic_id] is topic
    assert topic.config == created.config == {"retention.ms": "5"}
    assert len(topic.partitions) == 4
    for partition in topic.partitions:
        assert len(partition.replicas) == 2
        assert partition.founders == tuple(
            Voter(node, cluster.state.brokers[node].directory) for node in partition.replicas
        )
        assert not partition.is_moving


@pytest.mark.parametrize(("brokers", "replicas"), [(1, 1), (2, 1), (3, 3), (5, 3)])
def test_the_default_replication_factor_is_never_two(brokers: int, replicas: int) -> None:
    created = Cluster(brokers).create("t")
    assert (created.partitions, created.replication_factor) == (1, replicas)


def test_the_default_numbers_come_with_the_command() -> None:
    cluster = Cluster(3)
    topic = NewTopic("t", cluster.uuid())
    (created,) = cluster.do(
        CreateTopics((topic,), default_partitions=7, default_replication_factor=2)
    )
    assert (created.partitions, created.replication_factor) == (7, 2)


def test_brokers_that_are_up_get_replicas_first() -> None:
    cluster = Cluster(3)
    topics = (NewTopic("t", cluster.uuid(), 9, 1), NewTopic("u", cluster.uuid(), 6, 3))
    created = cluster.do(CreateTopics(topics, usable=(1, 3)))
    assert [topic.error for topic in created] == [None, None]
    for topic in cluster.state.topics.values():
        assert {partition.replicas[0] for partition in topic.partitions} == {1, 3}
    for partition in cluster.state.topics["u"].partitions:
        assert sorted(partition.replicas) == [1, 2, 3]
        assert [founder.node for founder in partition.founders] == list(partition.replicas)


def test_more_partitions_while_a_broker_is_down() -> None:
    cluster = Cluster(3)
    cluster.create("t", 3, 3)
    (grown,) = cluster.do(CreatePartitions((MorePartitions("t", 5),), usable=(2, 3)))
    assert grown.error is None
    added = cluster.state.topics["t"].partitions[3:]
    assert {partition.replicas[0] for partition in added} == {2, 3}
    assert {partition.replicas[-1] for partition in added} <= {1, 2, 3}


@pytest.mark.parametrize(
    ("brokers", "replicas", "up", "is_made"),
    [
        (3, 3, (2,), False),
        (2, 2, (1,), False),
        (2, 1, (1,), True),
        (5, 5, (1, 2), False),
        (5, 5, (1, 2, 5), True),
        (4, 4, (1, 2), False),
        (3, 1, (), False),
        (3, 4, (1, 2, 3), False),
    ],
)
def test_without_a_majority_that_is_up_there_is_no_topic(
    brokers: int, replicas: int, up: tuple[int, ...], is_made: bool
) -> None:
    cluster = Cluster(brokers)
    topic = NewTopic("t", cluster.uuid(), 3, replicas)
    (created,) = cluster.do(CreateTopics((topic,), usable=up))
    assert (created.error is None) == is_made
    if created.error is not None:
        assert created.error.code is ErrorCode.INVALID_REPLICATION_FACTOR
        assert not cluster.state.topics


def test_assigned_by_hand() -> None:
    cluster = Cluster(3)
    created = cluster.create("t", assignments=((1, (2, 3)), (0, (3, 1))))
    assert (created.error, created.partitions, created.replication_factor) == (None, 2, 2)
    assert [p.replicas for p in cluster.state.topics["t"].partitions] == [(3, 1), (2, 3)]


def test_validate_only_changes_nothing() -> None:
    cluster = Cluster()
    created = cluster.create("t", 3, configs=(("segment.ms", "5"),), validate_only=True)
    assert (created.error, created.partitions) == (None, 3)
    assert not cluster.state.topics


def test_a_name_twice_in_one_request_creates_neither() -> None:
    cluster = Cluster()
    topics = (
        NewTopic("d", cluster.uuid()),
        NewTopic("e", cluster.uuid()),
        NewTopic("d", cluster.uuid()),
    )
    duplicate, other = cluster.do(CreateTopics(topics))
    assert (duplicate.name, other.name) == ("d", "e")
    assert duplicate.error is not None
    assert duplicate.error.code.name == "INVALID_REQUEST"
    assert list(cluster.state.topics) == ["e"]


def test_names_that_collide_in_one_request() -> None:
    cluster = Cluster()
    topics = (NewTopic("a.b", cluster.uuid()), NewTopic("a_b", cluster.uuid()))
    first, second = cluster.do(CreateTopics(topics))
    assert first.error is None
    assert second.error is not None
    assert second.error.code.name == "INVALID_TOPIC_EXCEPTION"


def test_a_failed_topic_does_not_keep_its_name_from_others() -> None:
    cluster = Cluster()
    topics = (NewTopic("a.b", cluster.uuid(), 0), NewTopic("a_b", cluster.uuid()))
    _, second = cluster.do(CreateTopics(topics))
    assert second.error is None


def test_a_deleted_topic_frees_its_name() -> None:
    cluster = Cluster()
    old = cluster.create("a.b", configs=(("retention.ms", "5"),))
    cluster.do(DeleteTopics((("a.b", NIL_UUID),)))
    assert not cluster.state.topics
    assert not cluster.state.topics_by_id
    assert not cluster.state.configs
    assert not cluster.state.collisions
    assert not cluster.state.loads
    new = cluster.create("a_b")
    assert new.error is None
    again = cluster.create("a_b")
    assert again.error is not None
    assert new.topic_id != old.topic_id


def deleted(cluster: Cluster, *targets: tuple[str | None, uuid.UUID]) -> list[TopicDeleted]:
    return cluster.do(DeleteTopics(targets))


def test_deletion_is_refused() -> None:
    cluster = Cluster()
    topic_id = cluster.create("t").topic_id
    stranger = cluster.uuid()
    results = deleted(
        cluster,
        ("zz", NIL_UUID),
        (None, stranger),
        ("t", stranger),
        (None, NIL_UUID),
        ("", NIL_UUID),
    )
    codes = [result.error.code.name for result in results if result.error is not None]
    assert codes == [
        "UNKNOWN_TOPIC_OR_PARTITION",
        "UNKNOWN_TOPIC_ID",
        "INVALID_REQUEST",
        "INVALID_REQUEST",
        "UNKNOWN_TOPIC_OR_PARTITION",
    ]
    (twice,) = deleted(cluster, ("t", NIL_UUID), ("t", NIL_UUID))
    assert twice.error is not None
    assert "t" in cluster.state.topics
    by_name, by_id = deleted(cluster, ("t", NIL_UUID), (None, topic_id))
    assert by_name.error is None
    assert by_id.error is not None
    assert by_id.error.code.name == "INVALID_REQUEST"


def test_the_metadata_topic_can_not_be_deleted() -> None:
    (by_id,) = deleted(Cluster(), (None, METADATA_TOPIC_ID))
    assert by_id.error is not None


def test_deleted_by_id() -> None:
    cluster = Cluster()
    topic_id = cluster.create("t", 3).topic_id
    assert deleted(cluster, (None, topic_id)) == [TopicDeleted("t", topic_id)]
    assert not cluster.state.topics


def grown(
    cluster: Cluster, *topics: MorePartitions, validate_only: bool = False
) -> list[PartitionsCreated]:
    return cluster.do(CreatePartitions(topics, validate_only))


@pytest.mark.parametrize(
    ("more", "code", "said"),
    [
        (MorePartitions("t", 2), 37, "2 partition(s) already"),
        (MorePartitions("t", 1), 37, "no increase"),
        (MorePartitions("t", -1), 37, "no increase"),
        (MorePartitions("zz", 2), 3, ""),
        (MorePartitions("t", 4, ((1, 2),)), 39, "but 1 are assigned"),
        (MorePartitions("t", 3, ((),)), 39, "empty list of replicas"),
        (MorePartitions("t", 3, ((1,),)), 39, "1 replica(s)"),
        (MorePartitions("t", 3, ((8, 1),)), 39, "broker 8"),
        (MorePartitions("t", 3, ((1, 1),)), 39, "twice"),
        (MorePartitions("t", 20_000), 44, "at most 10000"),
    ],
)
def test_growth_is_refused(more: MorePartitions, code: int, said: str) -> None:
    cluster = Cluster(3)
    cluster.create("t", 2, 2)
    (result,) = grown(cluster, more)
    assert result.error is not None
    assert result.error.code == code
    assert said in str(result.error)
    assert len(cluster.state.topics["t"].partitions) == 2


def test_growth() -> None:
    cluster = Cluster(3)
    cluster.create("t", 2, 2)
    assert grown(cluster, MorePartitions("t", 6), validate_only=True)[0].error is None
    assert len(cluster.state.topics["t"].partitions) == 2
    assert grown(cluster, MorePartitions("t", 5))[0].error is None
    assert grown(cluster, MorePartitions("t", 7, ((3, 1), (1, 3))))[0].error is None
    partitions = cluster.state.topics["t"].partitions
    assert [partition.replicas for partition in partitions[5:]] == [(3, 1), (1, 3)]
    assert all(len(partition.replicas) == 2 for partition in partitions)
    (twice,) = grown(cluster, MorePartitions("t", 8), MorePartitions("t", 9))
    assert twice.error is not None
    assert twice.error.code.name == "INVALID_REQUEST"
