"""The cluster as clients are shown it: brokers, topics, leaders, in-sync and offline replicas.

Owns plain values and how they are made: what exists is read from the metadata machine's state, who leads
from the table of leaders, who is up from the links. Called by the service; doors only read the values.
"""

from collections.abc import Callable, Collection
from typing import NamedTuple
from uuid import UUID

from dmq.broker.internal_topics import INTERNAL_TOPICS
from dmq.broker.leadership import Leadership
from dmq.machines.state import ClusterState, PartitionState, TopicState


class BrokerView(NamedTuple):
    """A broker as clients of one listener see it."""

    node_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool = False
    """Registered, but not up."""


class PartitionView(NamedTuple):
    partition: int
    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    offline: list[int]


class TopicView(NamedTuple):
    name: str
    topic_id: UUID
    is_internal: bool
    partitions: list[PartitionView]


class Views:
    """See the module. `live`: the brokers that this one hears, itself among them; `listed`: the other
    brokers that clients are told of (presence.py)."""

    def __init__(
        self,
        state: Callable[[], ClusterState],
        leadership: Leadership,
        live: Callable[[], Collection[int]],
        listed: Callable[[], Collection[int]],
    ) -> None:
        self._state = state
        self._leadership = leadership
        self._live = live
        self._listed = listed

    def brokers(self, listener: str, own: BrokerView, *, with_fenced: bool) -> list[BrokerView]:
        """All brokers that have an address on this listener; those that are not heard are fenced only
        for who asks for fenced ones."""
        up, found = self._live() if with_fenced else self._listed(), [own]
        for node, broker in sorted(self._state().brokers.items()):
            is_fenced = node not in up
            if node == own.node_id or (is_fenced and not with_fenced):
                continue
            for endpoint in broker.endpoints:
                if endpoint.name == listener:
                    found.append(
                        BrokerView(node, endpoint.host, endpoint.port, broker.rack, is_fenced)
                    )
        return sorted(found)

    def strangers(self, listener: str) -> frozenset[int]:
        """Brokers without an address on this listener."""
        return frozenset(
            node
            for node, broker in self._state().brokers.items()
            if all(endpoint.name != listener for endpoint in broker.endpoints)
        )

    def topic(self, topic: TopicState) -> TopicView:
        live = self._live()
        partitions = [
            self._partition(topic.topic_id, index, placed, live)
            for index, placed in enumerate(topic.partitions)
        ]
        return TopicView(topic.name, topic.topic_id, topic.name in INTERNAL_TOPICS, partitions)

    def _partition(
        self, topic_id: UUID, index: int, placed: PartitionState, live: Collection[int]
    ) -> PartitionView:
        led = self._leadership.of(topic_id, index)
        replicas = list(placed.members)
        return PartitionView(
            index,
            led.leader,
            led.epoch,
            replicas,
            [node for node in replicas if node in led.isr],
            [node for node in replicas if node not in live],
        )
