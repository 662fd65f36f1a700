"""However far the metadata log is compacted, it loads to the same state."""

import dataclasses
import random
from collections import Counter
from typing import Any
from uuid import UUID

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from unit.machines.cluster_of import Cluster, load_state

from dmq.errors import KafkaError
from dmq.machines.codec import decode_command, decode_result, encode_command, encode_result
from dmq.machines.commands import (
    AllocateProducerIds,
    AlterConfigs,
    AlterReassignments,
    ConfigChange,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    FeatureUpdate,
    MorePartitions,
    NewTopic,
    Reassignment,
    ReassignmentDone,
    UnregisterBroker,
    UpdateFeatures,
)
from dmq.machines.machine import Command, Record
from dmq.machines.records import PartitionRecord, TopicRecord, decode, encode
from dmq.machines.state import ClusterState
from dmq.machines.targets import finished, group_target
from dmq.types import NIL_UUID, Voter

calmly = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A busy machine is no finding."""


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


class Life:
    """A cluster to which anything happens; commands and answers go by wire, as to another broker."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.cluster = Cluster(3)
        self.founders: dict[tuple[UUID, int], tuple[Voter, ...]] = {}

    @property
    def state(self) -> ClusterState:
        return self.cluster.state

    def step(self) -> None:
        before = len(self.cluster.log)
        command = self.command()
        assert decode_command(encode_command(command)) == command
        try:
            decode_result(encode_result(self.cluster.do(command)))
        except KafkaError:
            assert len(self.cluster.log) == before
        self.check()

    def command(self) -> Command[Any]:
        name = f"{self.dice.choice('abc')}{self.dice.choice('._-')}{self.dice.choice('xyz')}"
        kinds = [self.topic] * 4 + [self.registration, self.departure] + [self.move] * 4
        return self.dice.choice([*kinds, self.arrival, self.arrival, self.other])(name)

    def topic(self, name: str) -> Command[Any]:
        dice = self.dice
        choice = dice.randrange(5)
        if choice < 3:
            topic = NewTopic(name, self.cluster.uuid(), dice.randint(1, 4), dice.choice([-1, 1, 3]))
            configured = dataclasses.replace(topic, configs=(("segment.ms", "5"),))
            usable = tuple(node for node in self.state.brokers if dice.random() < 0.9)
            return CreateTopics((dice.choice([topic, configured]),), usable=usable)
        if choice == 3:
            return DeleteTopics(((name, NIL_UUID),))
        return CreatePartitions((MorePartitions(name, dice.randint(1, 8)),))

    def registration(self, name: str) -> Command[Any]:
        """A newcomer, a restart, a wiped disk, somebody else's disk, an old process."""
        dice = self.dice
        known = self.state.brokers[dice.choice(sorted(self.state.brokers))]
        same_disk = {"directory": known.directory, "journal_seq": known.journal_seq + 1}
        same_process = {**same_disk, "incarnation": known.incarnation}
        return dice.choice(
            [
                self.cluster.registration(-1),
                self.cluster.registration(-1, **same_disk),
                self.cluster.registration(dice.randint(1, 6), rack=dice.choice("rs")),
                self.cluster.registration(known.node, **same_disk),
                self.cluster.registration(dice.randint(1, 6), **same_disk),
                self.cluster.registration(
                    known.node,
                    **same_process,
                    rack="t",
                    previous_epoch=dice.choice([1, known.epoch]),
                ),
            ]
        )

    def departure(self, name: str) -> Command[Any]:
        voters = tuple(
            self.dice.sample(sorted(self.state.brokers), min(3, len(self.state.brokers)))
        )
        return UnregisterBroker(self.dice.randint(1, 7), voters)

    def move(self, name: str) -> Command[Any]:
        dice = self.dice
        topics = sorted(self.state.topics)
        topic = dice.choice(topics) if topics and dice.random() < 0.9 else name
        nodes = sorted(self.state.brokers)
        replicas = tuple(dice.sample(nodes, dice.randint(1, len(nodes))))
        target = None if dice.random() < 0.3 else replicas
        return AlterReassignments(
            (Reassignment(topic, dice.randint(0, 2), target),), dice.random() < 0.8
        )

    def arrival(self, name: str) -> Command[Any]:
        """A leader that is done; or was, with a target of before."""
        dice = self.dice
        if not self.state.moving:
            return ReassignmentDone(self.cluster.uuid(), 0, (1,))
        topic_id, index = dice.choice(sorted(self.state.moving))
        placed = self.state.moving[topic_id, index]
        reached = group_target(self.state, topic_id, index)
        command = finished(self.state, topic_id, index, reached)
        assert command is not None
        return (
            command if dice.random() < 0.7 else ReassignmentDone(topic_id, index, placed.previous)
        )

    def other(self, name: str) -> Command[Any]:
        dice = self.dice
        if dice.random() < 0.3:
            node = dice.randint(1, 4)
            broker = self.state.brokers.get(node)
            return AllocateProducerIds(node, 1 if broker is None else broker.epoch)
        resource, named = dice.choice([(2, name), (4, ""), (4, "1")])
        key = "retention.ms" if resource == 2 else "log.retention.ms"
        op = dice.randint(0, 1)
        change = (key, op, str(dice.randint(1, 9)) if op == 0 else None)
        return AlterConfigs((ConfigChange(resource, named, (change,)),))

    def check(self) -> None:
        """What holds at any time."""
        state = self.state
        loads, removals = Counter[int](), Counter[int]()
        moving = {}
        for topic in state.topics.values():
            for index, placed in enumerate(topic.partitions):
                key = (topic.topic_id, index)
                assert self.founders.setdefault(key, placed.founders) == placed.founders
                assert len(set(placed.members)) == len(placed.members)
                assert {*placed.previous} <= {*placed.members} <= {*state.brokers}
                assert len(group_target(state, *key)) == len(placed.replicas) > 0
                assert placed.is_moving or not placed.removing
                loads.update(placed.replicas)
                removals.update(placed.removing)
                if placed.is_moving:
                    moving[key] = placed
        assert {node: load.replicas for node, load in state.loads.items()} == loads
        assert state.removals == removals
        assert state.moving == moving
        brokers = state.brokers.values()
        assert len({broker.directory for broker in brokers}) == len(brokers)
        assert len({broker.epoch for broker in brokers}) == len(brokers)
        assert all(broker.epoch < state.next_epoch for broker in brokers)
        assert all(node < state.next_node for node in state.brokers)
        assert any(not broker.is_leaving for broker in brokers)


@settings(calmly, max_examples=60)
@given(st.integers(0, 2**32), st.integers(1, 60))
def test_any_compaction_gives_the_same_state(seed: int, steps: int) -> None:
    life = Life(seed)
    for _ in range(steps):
        life.step()
    expected = shape(life.state)
    log = life.cluster.log
    assert shape(load_state(log)) == expected
    for _ in range(4):
        log = compact(log, life.dice)
        assert shape(load_state(log)) == expected
    # What is said of different things does not depend on its order.
    latest = list({record.key: record for record in life.cluster.log}.values())
    life.dice.shuffle(latest)
    assert shape(load_state(latest)) == expected


@settings(calmly, max_examples=30)
@given(st.integers(0, 2**32), st.integers(1, 40))
def test_a_copy_of_a_state_says_the_same_and_goes_its_own_way(seed: int, steps: int) -> None:
    """It stands where it was taken, whatever becomes of the other; and gets there by the rest of the
    log, be that compacted meanwhile."""
    life = Life(seed)
    for _ in range(steps):
        life.step()
    taken, start = shape(life.state), len(life.cluster.log)
    twin, second = life.state.copy(), life.state.copy()
    for _ in range(steps):
        life.step()
    assert shape(twin) == taken
    log = life.cluster.log
    last = {record.key: n for n, record in enumerate(log)}
    for n, record in enumerate(log[start:], start):
        twin.apply(decode(record))
        if last[record.key] == n:
            second.apply(decode(record))
    assert shape(twin) == shape(second) == shape(life.state)


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
