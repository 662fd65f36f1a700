"""Registration, producer ids, features, and the machine as its host sees it."""

import time

import pytest
from unit.machines.cluster_of import SUPPORTED_FEATURES, Cluster, new_machine

from dmq.errors import ErrorCode, KafkaError
from dmq.machines.commands import (
    AllocateProducerIds,
    CreateTopics,
    DeleteTopics,
    FeatureUpdate,
    FormCluster,
    NewTopic,
    ProducerIds,
    UnregisterBroker,
    UpdateFeatures,
    UpgradeType,
)
from dmq.machines.machine import Machine
from dmq.machines.records import Endpoint, FeatureRange
from dmq.types import NIL_UUID, Millis


def refused_with(code: ErrorCode) -> "pytest.RaisesContext":  # type: ignore[type-arg,name-defined]
    return pytest.raises(KafkaError, check=lambda error: error.code is code)


def test_it_is_a_machine() -> None:
    machine: Machine = new_machine()
    outcome = machine.handle(FormCluster("c"), Millis(0))
    for record in outcome.records:
        machine.apply(record)


def test_handling_changes_nothing() -> None:
    machine = new_machine()
    machine.handle(FormCluster("c"), Millis(0))
    assert machine.state.cluster_id is None


def test_a_cluster_is_formed_once() -> None:
    cluster = Cluster()
    assert (cluster.state.cluster_id, cluster.state.features) == ("test", {"dmq.version": 1})
    with refused_with(ErrorCode.INVALID_REQUEST):
        cluster.do(FormCluster("other"))


def test_a_broker_registers_and_comes_back() -> None:
    cluster = Cluster(0)
    first = cluster.registration(
        4, rack="r", endpoints=(Endpoint("PLAINTEXT", "h", 1, "PLAINTEXT"),)
    )
    registered = cluster.do(first)
    assert (registered.node, registered.epoch) == (4, 1)
    length = len(cluster.log)
    assert cluster.do(first).epoch == 1
    assert len(cluster.log) == length, "the same registration again writes nothing"
    again = cluster.registration(4, directory=first.directory)
    assert cluster.do(again).epoch == 2
    assert cluster.state.brokers[4].incarnation == again.incarnation


def test_a_broker_without_a_number_gets_the_next_one() -> None:
    cluster = Cluster(3)
    assert cluster.do(cluster.registration(-1)).node == 4


def test_registrations_that_are_refused() -> None:
    cluster = Cluster(1)
    known = cluster.state.brokers[1]
    with refused_with(ErrorCode.INCONSISTENT_CLUSTER_ID):
        cluster.do(cluster.registration(2, cluster_id="other"))
    with refused_with(ErrorCode.UNSUPPORTED_VERSION):
        cluster.do(cluster.registration(2, features={}))
    with refused_with(ErrorCode.UNSUPPORTED_VERSION):
        cluster.do(cluster.registration(2, features={"dmq.version": FeatureRange(2, 3)}))
    with refused_with(ErrorCode.DUPLICATE_BROKER_REGISTRATION):
        cluster.do(cluster.registration(2, directory=known.directory))
    cluster.do(cluster.registration(1, directory=known.directory, journal_seq=10))
    with refused_with(ErrorCode.INVALID_REGISTRATION):
        cluster.do(cluster.registration(1, directory=known.directory, journal_seq=9))
    assert cluster.do(cluster.registration(1, journal_seq=0)).epoch == 3, (
        "another disk may begin anew"
    )


def test_a_broker_leaves_when_it_has_nothing() -> None:
    cluster = Cluster(2)
    cluster.create("t", assignments=((0, (2,)),))
    with refused_with(ErrorCode.INVALID_REQUEST):
        cluster.do(UnregisterBroker(2))
    cluster.do(UnregisterBroker(1))
    assert list(cluster.state.brokers) == [2]
    with refused_with(ErrorCode.BROKER_ID_NOT_REGISTERED):
        cluster.do(UnregisterBroker(1))


def test_producer_ids_come_in_blocks() -> None:
    cluster = Cluster(2)
    assert cluster.do(AllocateProducerIds(1, 1)) == ProducerIds(0, 1000)
    assert cluster.do(AllocateProducerIds(2, 1)).ids == range(1000, 2000)
    assert cluster.state.producer_id_next == 2000
    with refused_with(ErrorCode.BROKER_ID_NOT_REGISTERED):
        cluster.do(AllocateProducerIds(3, 1))
    with refused_with(ErrorCode.STALE_BROKER_EPOCH):
        cluster.do(AllocateProducerIds(1, 0))


def features(
    cluster: Cluster, *updates: FeatureUpdate, validate_only: bool = False
) -> list[str | None]:
    results = cluster.do(UpdateFeatures(updates, validate_only))
    return [None if result.error is None else result.error.code.name for result in results]


@pytest.fixture
def wide() -> Cluster:
    """A cluster whose brokers know more than they run."""
    cluster = Cluster(0)
    known = {"dmq.version": FeatureRange(1, 3), "other.version": FeatureRange(0, 2)}
    cluster.machine.supported = known
    cluster.do(cluster.registration(1, features=known))
    return cluster


def test_features_go_up_and_down(wide: Cluster) -> None:
    assert features(wide, FeatureUpdate("dmq.version", 3)) == [None]
    assert (wide.state.features, wide.state.features_epoch) == ({"dmq.version": 3}, 2)
    assert features(wide, FeatureUpdate("dmq.version", 2)) == ["INVALID_UPDATE_VERSION"]
    assert features(wide, FeatureUpdate("dmq.version", 2, UpgradeType.SAFE_DOWNGRADE)) == [None]
    assert features(wide, FeatureUpdate("other.version", 2)) == [None]
    assert features(wide, FeatureUpdate("other.version", 0, UpgradeType.UNSAFE_DOWNGRADE)) == [None]
    assert (wide.state.features, wide.state.features_epoch) == ({"dmq.version": 2}, 5)


def test_features_are_refused_together(wide: Cluster) -> None:
    bad, good = FeatureUpdate("dmq.version", 9), FeatureUpdate("other.version", 1)
    assert features(wide, bad, good) == ["INVALID_UPDATE_VERSION", None]
    assert features(wide, FeatureUpdate("foo", 1)) == ["INVALID_UPDATE_VERSION"]
    assert features(wide, good, validate_only=True) == [None]
    assert wide.state.features == {"dmq.version": 1}


def test_a_level_needs_every_broker(wide: Cluster) -> None:
    wide.do(wide.registration(2, features=SUPPORTED_FEATURES))
    assert features(wide, FeatureUpdate("dmq.version", 2)) == ["INVALID_UPDATE_VERSION"]


def test_ten_thousand_topics_are_quick() -> None:
    cluster = Cluster(3)
    topics = [NewTopic(f"topic.{n}", cluster.uuid(), 1, 1) for n in range(10_000)]
    begin = time.process_time()
    for start in range(0, len(topics), 500):
        results = cluster.do(CreateTopics(tuple(topics[start : start + 500])))
        assert all(result.error is None for result in results)
    created = time.process_time() - begin
    assert {load.replicas for load in cluster.state.loads.values()} <= {3333, 3334}
    cluster.do(DeleteTopics(tuple((topic.name, NIL_UUID) for topic in topics)))
    assert not cluster.state.topics
    # About 0.5 s here; CPU time, with room for a slower and busier machine.
    assert created < 5.0, f"{created:.1f} s"
