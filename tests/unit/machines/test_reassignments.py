"""Partitions move, change their mind, and arrive."""

import pytest
from unit.machines.cluster_of import Cluster

from dmq.machines.commands import (
    AlterReassignments,
    CreatePartitions,
    DeleteTopics,
    MorePartitions,
    Reassigned,
    Reassignment,
    ReassignmentDone,
    UnregisterBroker,
)
from dmq.machines.state import PartitionState
from dmq.types import NIL_UUID


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(6)
    cluster.create("t", assignments=((0, (1, 2, 3)), (1, (2, 3, 1))))
    return cluster


def alter(
    cluster: Cluster, replicas: tuple[int, ...] | None, topic: str = "t", partition: int = 0
) -> str | None:
    """The code's name, None if it was taken."""
    command = AlterReassignments((Reassignment(topic, partition, replicas),))
    (result,) = cluster.do(command)
    assert (result.topic, result.partition) == (topic, partition)
    return None if result.error is None else result.error.code.name


def done(cluster: Cluster, replicas: tuple[int, ...]) -> None:
    cluster.do(ReassignmentDone(cluster.state.topics["t"].topic_id, 0, replicas))


def partition(cluster: Cluster) -> PartitionState:
    return cluster.state.topics["t"].partitions[0]


def test_a_partition_moves(cluster: Cluster) -> None:
    founders = partition(cluster).founders
    assert alter(cluster, (4, 2, 5)) is None
    placed = partition(cluster)
    assert placed == PartitionState((4, 2, 5), founders, (1, 2, 3), (1, 3))
    assert (placed.adding, placed.removing) == ((4, 5), (1, 3))
    assert placed.members == (4, 2, 5, 1, 3)
    key = (cluster.state.topics["t"].topic_id, 0)
    assert cluster.state.moving == {key: placed}
    assert cluster.state.removals == {1: 1, 3: 1}
    done(cluster, (5, 2, 4))
    assert partition(cluster) == PartitionState((4, 2, 5), founders)
    assert (partition(cluster).adding, partition(cluster).members) == ((), (4, 2, 5))
    assert not cluster.state.moving
    assert not cluster.state.removals
    assert {node: load.replicas for node, load in cluster.state.loads.items()} == {
        1: 1,
        2: 2,
        3: 1,
        4: 1,
        5: 1,
    }


def test_another_order_is_done_at_once(cluster: Cluster) -> None:
    founders = partition(cluster).founders
    assert alter(cluster, (3, 1, 2)) is None
    assert partition(cluster) == PartitionState((3, 1, 2), founders)
    before = len(cluster.log)
    assert alter(cluster, (3, 1, 2)) is None
    assert len(cluster.log) == before, "nothing to say"


def test_another_order_of_the_target_while_it_moves(cluster: Cluster) -> None:
    alter(cluster, (4, 2, 5))
    assert alter(cluster, (5, 4, 2)) is None
    placed = partition(cluster)
    assert (placed.replicas, placed.previous, placed.removing) == ((5, 4, 2), (1, 2, 3), (1, 3))


def test_a_move_is_called_off(cluster: Cluster) -> None:
    founders = partition(cluster).founders
    assert alter(cluster, None) == "NO_REASSIGNMENT_IN_PROGRESS"
    alter(cluster, (4, 2, 5))
    assert alter(cluster, None) is None
    placed = partition(cluster)
    # Those that came may have become voters: they are there until the leader says otherwise.
    assert placed == PartitionState((1, 2, 3), founders, (1, 2, 3), (4, 5))
    assert (placed.adding, placed.members) == ((), (1, 2, 3, 4, 5))
    assert alter(cluster, None) == "NO_REASSIGNMENT_IN_PROGRESS"
    done(cluster, (1, 2, 3))
    assert partition(cluster) == PartitionState((1, 2, 3), founders)


def test_a_move_changes_its_mind(cluster: Cluster) -> None:
    founders = partition(cluster).founders
    alter(cluster, (4, 2, 5))
    assert alter(cluster, (6, 2, 3)) is None
    placed = partition(cluster)
    assert placed == PartitionState((6, 2, 3), founders, (1, 2, 3), (4, 5, 1))
    assert placed.adding == (6,)
    done(cluster, (4, 2, 5))
    assert partition(cluster).is_moving, "that is not where it should be by now"
    assert alter(cluster, None) is None
    assert partition(cluster) == PartitionState((1, 2, 3), founders, (1, 2, 3), (6, 4, 5))


def test_the_number_of_replicas_changes_if_the_request_allows_it(cluster: Cluster) -> None:
    fixed = AlterReassignments(
        (Reassignment("t", 0, (1, 2)), Reassignment("t", 1, (4, 5, 6))),
        allow_replication_factor_change=False,
    )
    refused, taken = cluster.do(fixed)
    assert refused.error is not None
    assert refused.error.code.name == "INVALID_REPLICATION_FACTOR"
    assert taken == Reassigned("t", 1)
    assert alter(cluster, (1, 2, 3, 4, 5)) is None
    assert (partition(cluster).adding, partition(cluster).removing) == ((4, 5), ())
    # It is compared with what the partition is on the way to, not with what it had.
    both = [
        cluster.do(
            AlterReassignments(
                (Reassignment("t", 0, target),), allow_replication_factor_change=False
            )
        )[0]
        for target in ((4, 5, 6), (2, 3, 4, 5, 6))
    ]
    assert both[0].error is not None
    assert both[0].error.message is not None
    assert "has 5 replica(s)" in both[0].error.message
    assert both[1].error is None
    assert alter(cluster, (2,)) is None
    assert partition(cluster).removing == (3, 4, 5, 6, 1)


@pytest.mark.parametrize(
    ("topic", "index", "replicas", "code"),
    [
        ("zz", 0, (1, 2, 3), "UNKNOWN_TOPIC_OR_PARTITION"),
        ("zz", 0, None, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("__cluster_metadata", 0, (1, 2, 3), "UNKNOWN_TOPIC_OR_PARTITION"),
        ("t", 2, (1, 2, 3), "UNKNOWN_TOPIC_OR_PARTITION"),
        ("t", -1, (1, 2, 3), "UNKNOWN_TOPIC_OR_PARTITION"),
        ("t", 0, (), "INVALID_REPLICA_ASSIGNMENT"),
        ("t", 0, (1, 2, 1), "INVALID_REPLICA_ASSIGNMENT"),
        ("t", 0, (1, 2, 9), "INVALID_REPLICA_ASSIGNMENT"),
        ("t", 0, (1, 2, -3), "INVALID_REPLICA_ASSIGNMENT"),
        ("t", 0, (1, 2, 6), "INVALID_REPLICA_ASSIGNMENT"),
    ],
)
def test_moves_that_are_refused(
    cluster: Cluster, topic: str, index: int, replicas: tuple[int, ...] | None, code: str
) -> None:
    cluster.do(UnregisterBroker(6, voters=(6,)))
    before = len(cluster.log)
    assert alter(cluster, replicas, topic, index) == code
    assert len(cluster.log) == before


def test_a_partition_twice_in_one_request_moves_nowhere(cluster: Cluster) -> None:
    changes = (
        Reassignment("t", 0, (4, 5, 6)),
        Reassignment("t", 0, (3, 2, 1)),
        Reassignment("t", 1, (4, 5, 6)),
    )
    twice, other = cluster.do(AlterReassignments(changes))
    assert twice.error is not None
    assert twice.error.code.name == "INVALID_REQUEST"
    assert other.error is None
    assert not partition(cluster).is_moving


def test_a_broker_is_kept_until_its_last_replica_is_gone(cluster: Cluster) -> None:
    alter(cluster, (4, 2, 3))
    cluster.do(DeleteTopics((("other", NIL_UUID),)))
    alter(cluster, (2, 3, 4), partition=1)
    assert 1 not in cluster.state.loads
    with pytest.raises(Exception, match=r"2 replica\(s\)"):
        cluster.do(UnregisterBroker(1))
    done(cluster, (4, 2, 3))
    with pytest.raises(Exception, match=r"1 replica\(s\)"):
        cluster.do(UnregisterBroker(1))
    cluster.do(ReassignmentDone(cluster.state.topics["t"].topic_id, 1, (2, 3, 4)))
    cluster.do(UnregisterBroker(1))
    assert 1 not in cluster.state.brokers


def test_a_topic_that_is_deleted_while_it_moves_leaves_nothing(cluster: Cluster) -> None:
    alter(cluster, (4, 5, 6))
    topic_id = cluster.state.topics["t"].topic_id
    cluster.do(DeleteTopics((("t", NIL_UUID),)))
    assert not cluster.state.moving
    assert not cluster.state.removals
    assert not cluster.state.loads
    before = len(cluster.log)
    cluster.do(ReassignmentDone(topic_id, 0, (4, 5, 6)))
    assert len(cluster.log) == before


def test_a_topic_grows_while_it_moves(cluster: Cluster) -> None:
    alter(cluster, (4, 5))
    (grown,) = cluster.do(CreatePartitions((MorePartitions("t", 3),)))
    assert grown.error is None
    assert len(cluster.state.topics["t"].partitions[2].replicas) == 2
