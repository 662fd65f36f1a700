"""What the cluster knows. Changed by `ClusterState.apply` and by nothing else; anybody may read it.

A fact replaces what was said before under the same key, and facts of different keys don't depend on
each other's order: a log compacted in any way gives the same state. Hence partitions may come
before their topic. Dicts keep insertion order, which differs with compaction, so nothing decides by
it.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from dmq.machines.records import (
    BrokerGoneRecord,
    BrokerRecord,
    ClusterRecord,
    ConfigRecord,
    Fact,
    FeatureRecord,
    Order,
    PartitionRecord,
    ProducerIdsRecord,
    RegistrationsRecord,
    TopicRecord,
)
from dmq.types import Voter

NO_CONFIG: Mapping[str, str] = {}
TOPIC_RESOURCE = 2


@dataclasses.dataclass(slots=True)
class PartitionState:
    """Where a partition is meant to live.

    replicas    brokers in order of preference: the target, to which its leader moves the voters
    founders    the voters that its log began with; never changed
    previous    while it is being moved: where it was before, and returns to if that is cancelled
    removing    while it is being moved: brokers that are not meant to have it, but still may
    order       the last word of an operator on who goes on with it alone, after a majority was lost
    """

    replicas: tuple[int, ...] = ()
    founders: tuple[Voter, ...] = ()
    previous: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    order: Order | None = None

    @property
    def is_moving(self) -> bool:
        return bool(self.previous)

    @property
    def adding(self) -> tuple[int, ...]:
        """While it is being moved: brokers that did not have it before."""
        if not self.previous:
            return ()
        return tuple([node for node in self.replicas if node not in self.previous])

    @property
    def members(self) -> tuple[int, ...]:
        """All brokers that may have a replica: what clients are told as its replicas."""
        return self.replicas + self.removing if self.removing else self.replicas


@dataclasses.dataclass(slots=True)
class TopicState:
    """A topic. Without a name only while its record has not been read yet."""

    topic_id: UUID
    name: str = ""
    partitions: list[PartitionState] = dataclasses.field(default_factory=list)
    config: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def replication_factor(self) -> int:
        """Of the first partition, as Kafka tells it."""
        return len(self.partitions[0].replicas) if self.partitions else 0


@dataclasses.dataclass(slots=True)
class BrokerLoad:
    """How much is placed on a broker: replicas in all, and those that come first in their list."""

    replicas: int = 0
    first: int = 0


class ClusterState:
    """The state of the cluster machine.

    topics            by name
    topics_by_id      the same, by id
    brokers           registrations by node id
    next_node         the lowest number that no broker ever had; next_epoch likewise of broker epochs
    former            brokers that were taken out, with their data directories; the last few
    configs           what each resource sets itself, by (resource type, name); a topic's are also
                      in its TopicState
    features          levels above 0; features_epoch grows with each change
    producer_id_next  the first producer id that no block has
    loads             replicas placed on each broker
    removals          how many replicas each broker has yet to lose
    moving            partitions that are being moved, by (topic id, index)
    pairs             how often two brokers are first and second replica of a partition
    collisions        names that Kafka's metrics could not tell apart ('.' and '_'), by common form
    """

    __slots__ = (
        "_parts",
        "brokers",
        "cluster_id",
        "collisions",
        "configs",
        "features",
        "features_epoch",
        "former",
        "loads",
        "moving",
        "next_epoch",
        "next_node",
        "pairs",
        "producer_id_next",
        "removals",
        "topics",
        "topics_by_id",
    )

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.topics: dict[str, TopicState] = {}
        self.topics_by_id: dict[UUID, TopicState] = {}
        self.brokers: dict[int, BrokerRecord] = {}
        self.next_node = 1
        self.next_epoch = 1
        self.former: tuple[Voter, ...] = ()
        self.configs: dict[tuple[int, str], Mapping[str, str]] = {}
        self.features: dict[str, int] = {}
        self.features_epoch = 0
        self.producer_id_next = 0
        self.loads: dict[int, BrokerLoad] = {}
        self.removals: dict[int, int] = {}
        self.moving: dict[tuple[UUID, int], PartitionState] = {}
        self.pairs: dict[tuple[int, ...], int] = {}
        self.collisions: dict[str, dict[str, None]] = {}
        self._parts: dict[UUID, TopicState] = {}
        """Topics of which a partition or the name is known."""

    def config(self, resource: int, name: str) -> Mapping[str, str]:
        """What a resource sets itself."""
        return self.configs.get((resource, name), NO_CONFIG)

    def partition(self, topic_id: UUID, index: int) -> PartitionState | None:
        """A partition that is there, by its topic's id."""
        topic = self.topics_by_id.get(topic_id)
        if topic is None or not 0 <= index < len(topic.partitions):
            return None
        return topic.partitions[index]

    def copy(self) -> "ClusterState":
        """Another state that says the same, and changes for itself. Facts and PartitionStates are
        replaced, never changed: both have them."""
        other = ClusterState()
        other.cluster_id = self.cluster_id
        other.next_node, other.next_epoch = self.next_node, self.next_epoch
        other.features_epoch, other.producer_id_next = self.features_epoch, self.producer_id_next
        other.former = self.former
        twins = {
            topic_id: dataclasses.replace(topic, partitions=list(topic.partitions))
            for topic_id, topic in {**self.topics_by_id, **self._parts}.items()
        }
        other._parts = {topic_id: twins[topic_id] for topic_id in self._parts}
        other.topics_by_id = {topic_id: twins[topic_id] for topic_id in self.topics_by_id}
        other.topics = {name: twins[topic.topic_id] for name, topic in self.topics.items()}
        other.loads = {node: dataclasses.replace(load) for node, load in self.loads.items()}
        other.collisions = {form: dict(names) for form, names in self.collisions.items()}
        other.brokers, other.configs = dict(self.brokers), dict(self.configs)
        other.features, other.removals = dict(self.features), dict(self.removals)
        other.moving, other.pairs = dict(self.moving), dict(self.pairs)
        return other

    def apply(self, fact: Fact) -> None:
        """The only way to change anything."""
        _APPLY[type(fact)](self, fact)

    def _apply_cluster(self, fact: ClusterRecord) -> None:
        self.cluster_id = fact.cluster_id

    def _apply_registrations(self, fact: RegistrationsRecord) -> None:
        self.next_node, self.next_epoch = fact.next_node, fact.next_epoch
        self.former = fact.former

    def _apply_broker(self, fact: BrokerRecord) -> None:
        self.brokers[fact.node] = fact

    def _apply_broker_gone(self, fact: BrokerGoneRecord) -> None:
        self.brokers.pop(fact.node, None)

    def _apply_topic(self, fact: TopicRecord) -> None:
        topic = self._part(fact.topic_id)
        if topic.name and self.topics.get(topic.name) is topic:
            self._unname(topic)
        if fact.name is not None:
            topic.name = fact.name
            topic.config = self.config(TOPIC_RESOURCE, fact.name)
            self.topics[fact.name] = topic
            self.topics_by_id[fact.topic_id] = topic
            if "." in fact.name or "_" in fact.name:
                self.collisions.setdefault(common_form(fact.name), {})[fact.name] = None
        else:
            topic.name = ""
            self._forget_if_empty(topic)

    def _unname(self, topic: TopicState) -> None:
        del self.topics[topic.name]
        del self.topics_by_id[topic.topic_id]
        form = common_form(topic.name)
        if (names := self.collisions.get(form)) is not None:
            names.pop(topic.name, None)
            if not names:
                del self.collisions[form]

    def _apply_partition(self, fact: PartitionRecord) -> None:
        topic = self._part(fact.topic_id)
        partitions = topic.partitions
        key = (fact.topic_id, fact.index)
        if fact.index < len(partitions):
            self._count(partitions[fact.index], -1)
            self.moving.pop(key, None)
        if fact.replicas is not None:
            while len(partitions) <= fact.index:
                partitions.append(PartitionState())
            placed = PartitionState(
                fact.replicas, fact.founders, fact.previous, fact.removing, fact.order
            )
            partitions[fact.index] = placed
            self._count(placed, 1)
            if placed.is_moving:
                self.moving[key] = placed
            return
        if fact.index < len(partitions):
            partitions[fact.index] = PartitionState()
        while partitions and not partitions[-1].replicas:
            partitions.pop()
        self._forget_if_empty(topic)

    def _count(self, placed: PartitionState, by: int) -> None:
        replicas = placed.replicas
        for place, node in enumerate(replicas):
            load = self.loads.get(node)
            if load is None:
                load = self.loads[node] = BrokerLoad()
            load.replicas += by
            if place == 0:
                load.first += by
            if not load.replicas:
                del self.loads[node]
        if len(replicas) > 1:
            _add(self.pairs, replicas[:2], by)
        for node in placed.removing:
            _add(self.removals, node, by)

    def _apply_config(self, fact: ConfigRecord) -> None:
        if fact.values:
            self.configs[fact.resource, fact.name] = fact.values
        else:
            self.configs.pop((fact.resource, fact.name), None)
        if fact.resource == TOPIC_RESOURCE and (topic := self.topics.get(fact.name)) is not None:
            topic.config = fact.values or NO_CONFIG

    def _apply_feature(self, fact: FeatureRecord) -> None:
        if fact.level:
            self.features[fact.name] = fact.level
        else:
            self.features.pop(fact.name, None)
        self.features_epoch = max(self.features_epoch, fact.epoch)

    def _apply_producer_ids(self, fact: ProducerIdsRecord) -> None:
        self.producer_id_next = fact.next

    def _part(self, topic_id: UUID) -> TopicState:
        topic = self._parts.get(topic_id)
        if topic is None:
            topic = self._parts[topic_id] = TopicState(topic_id)
        return topic

    def _forget_if_empty(self, topic: TopicState) -> None:
        if not topic.name and not topic.partitions:
            self._parts.pop(topic.topic_id, None)


def _add(counts: dict[Any, int], key: Any, by: int) -> None:
    """Counts that are zero are not kept: states that mean the same are the same."""
    counts[key] = counts.get(key, 0) + by
    if not counts[key]:
        del counts[key]


def common_form(name: str) -> str:
    """The form in which names that differ by '.' and '_' only are the same."""
    return name.replace(".", "_")


_APPLY: dict[type, Callable[[ClusterState, Any], None]] = {
    ClusterRecord: ClusterState._apply_cluster,
    RegistrationsRecord: ClusterState._apply_registrations,
    BrokerRecord: ClusterState._apply_broker,
    BrokerGoneRecord: ClusterState._apply_broker_gone,
    TopicRecord: ClusterState._apply_topic,
    PartitionRecord: ClusterState._apply_partition,
    ConfigRecord: ClusterState._apply_config,
    FeatureRecord: ClusterState._apply_feature,
    ProducerIdsRecord: ClusterState._apply_producer_ids,
}
