"""Producer ids, features, and the machine as its host sees it."""

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
    UpdateFeatures,
    UpgradeType,
)
from dmq.machines.machine import Machine
from dmq.machines.records import FeatureRange
from dmq.types import NIL_UUID, Millis


def refused_with(code: ErrorCode) -> "pytest.RaisesContext":  # type: ignore[type-arg,name-defined]
    return pytest.raises(KafkaError, check=lambda error: error.code is code)


def test_it_is_a_machine() -> None:
    cluster = new_machine()
    machine: Machine = cluster
    outcome = machine.handle(FormCluster("c"), Millis(0))
    for record in outcome.records:
        machine.apply(record)
    assert cluster.state.cluster_id == "c"


def test_handling_changes_nothing() -> None:
    machine = new_machine()
    machine.handle(FormCluster("c"), Millis(0))
    assert machine.state.cluster_id is None


def test_a_cluster_is_formed_once() -> None:
    cluster = Cluster()
    assert (cluster.state.cluster_id, cluster.state.features) == ("test", {"dmq.version": 1})
    with refused_with(ErrorCode.INVALID_REQUEST):
        cluster.do(FormCluster("other"))


def test_producer_ids_come_in_blocks() -> None:
    cluster = Cluster(2)
    assert cluster.do(AllocateProducerIds(1, 1)) == ProducerIds(0, 1000)
    assert cluster.do(AllocateProducerIds(2, 2)).ids == range(1000, 2000)
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


def test_a_feature_goes_the_way_that_was_asked_for_and_stays_in_range(wide: Cluster) -> None:
    """A level of 0 is one like the others: brokers that know none can't run it."""
    refused = ["INVALID_UPDATE_VERSION"]
    for kind in (UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE):
        assert features(wide, FeatureUpdate("dmq.version", 0, kind)) == refused
        assert features(wide, FeatureUpdate("dmq.version", 3, kind)) == refused
    for unknown in (0, 4, -1):
        assert features(wide, FeatureUpdate("dmq.version", 1, unknown)) == refused
    assert features(wide, FeatureUpdate("dmq.version", 1, UpgradeType.SAFE_DOWNGRADE)) == [None]


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
