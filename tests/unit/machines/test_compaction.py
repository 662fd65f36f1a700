"""However far the metadata log is compacted, it loads to the same state."""

import dataclasses
import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from unit.machines.cluster_of import Cluster, load_state

from dmq.machines.commands import (
    AllocateProducerIds,
    CreatePartitions,
    DeleteTopics,
    FeatureUpdate,
    MorePartitions,
    UnregisterBroker,
    UpdateFeatures,
)
from dmq.machines.machine import Record
from dmq.machines.records import PartitionRecord, TopicRecord, encode
from dmq.machines.state import ClusterState
from dmq.types import NIL_UUID


def shape(state: ClusterState) -> dict[str, Any]:
    """All of the state, without the order of dicts."""
    return {name: _plain(getattr(state, name)) for name in ClusterState.__slots__}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return dataclasses.astuple(value) if dataclasses.is_dataclass(value) else value  # type: ignore[arg-type]


def compact(log: list[Record], dice: random.Random) -> list[Record]:
    """A log as a cleaner may leave it: superseded records gone here and there, tombstones perhaps."""
    clean_to = dice.randint(0, len(log))
    last = {record.key: n for n, record in enumerate(log[:clean_to])}
    kept: list[Record] = []
    for n, record in enumerate(log):
        superseded = n < clean_to and last[record.key] != n
        # A cleaner drops a tombstone only when nothing older of its key is left.
        dead = (
            n < clean_to and record.value is None and last[record.key] == n and dice.random() < 0.5
        )
        if not superseded and not dead:
            kept.append(record)
    return kept


def change_something(cluster: Cluster, dice: random.Random) -> None:
    name = f"{dice.choice('abc')}{dice.choice('._-')}{dice.choice('xyz')}"
    choice = dice.randrange(8)
    if choice < 3:
        cluster.create(name, dice.randint(1, 4), dice.randint(1, 3), configs=(("segment.ms", "5"),))
    elif choice == 3:
        cluster.do(DeleteTopics(((name, NIL_UUID),)))
    elif choice == 4:
        cluster.do(CreatePartitions((MorePartitions(name, dice.randint(1, 8)),)))
    elif choice == 5:
        resource, named = dice.choice([(2, name), (4, ""), (4, "1")])
        key = "retention.ms" if resource == 2 else "log.retention.ms"
        op = dice.randint(0, 1)
        cluster.alter(resource, named, (key, op, str(dice.randint(1, 9)) if op == 0 else None))
    elif choice == 6:
        cluster.do(AllocateProducerIds(1, cluster.state.brokers[1].epoch))
    else:
        node = dice.randint(4, 6)
        if (
            node in cluster.state.brokers
            and node not in cluster.state.loads
            and dice.random() < 0.5
        ):
            cluster.do(UnregisterBroker(node))
        else:
            cluster.do(cluster.registration(node))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 60))
def test_any_compaction_gives_the_same_state(seed: int, steps: int) -> None:
    dice = random.Random(seed)
    cluster = Cluster(3)
    for _ in range(steps):
        change_something(cluster, dice)
    expected = shape(cluster.state)
    assert shape(load_state(cluster.log)) == expected
    log = cluster.log
    for _ in range(4):
        log = compact(log, dice)
        assert shape(load_state(log)) == expected


def test_partitions_may_come_before_their_topic_and_out_of_order() -> None:
    cluster = Cluster(3)
    topic = cluster.create("t", 3, 2)
    expected = shape(cluster.state)
    head = [
        record for record in cluster.log if not record.key.startswith((b"topic/", b"partition/"))
    ]
    parts = [record for record in cluster.log if record.key.startswith(b"partition/")]
    log = [*head, *reversed(parts), encode(TopicRecord(topic.topic_id, "t"))]
    assert shape(load_state(log)) == expected


def test_a_deleted_topic_leaves_nothing_behind_in_any_order() -> None:
    cluster = Cluster(3)
    before = shape(cluster.state)
    topic = cluster.create("t.t", 2, 3)
    tombstones = [
        encode(TopicRecord(topic.topic_id, None)),
        encode(PartitionRecord(topic.topic_id, 0, None)),
        encode(PartitionRecord(topic.topic_id, 1, None)),
    ]
    for order in (tombstones, tombstones[::-1], [tombstones[1], tombstones[0], tombstones[2]]):
        assert shape(load_state(cluster.log + order)) == before


def test_features_and_epochs_survive_compaction() -> None:
    cluster = Cluster(1)
    cluster.do(UpdateFeatures((FeatureUpdate("dmq.version", 1),)))
    assert shape(load_state(cluster.log)) == shape(cluster.state)
