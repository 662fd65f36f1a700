"""What committed metadata changes on this broker: topics come and go, settings change.

Called by the metadata's host with the records that were just committed, and at start with all of
them: until `loaded` nothing follows from them. Owns `state`, what the committed records say: the machine
of a leader is ahead of it, and what it has applied may be cut yet. So whatever is done on a broker
because the metadata say so is read from here.
"""

from collections.abc import Callable
from uuid import UUID

from dmq.broker.replicas import LocalTopic, Replicas
from dmq.config.broker import BrokerConfig
from dmq.config.settings import Settings
from dmq.machines.machine import Record
from dmq.machines.records import (
    BrokerGoneRecord,
    BrokerRecord,
    ConfigRecord,
    Fact,
    PartitionRecord,
    TopicRecord,
    decode,
)
from dmq.machines.state import TOPIC_RESOURCE, ClusterState

BROKER_RESOURCE = 4
CLUSTER_DEFAULT = ""
"""The name under which settings for all brokers are kept."""


class MetadataChanges:
    """The way from metadata records to `Replicas`."""

    def __init__(
        self,
        replicas: Replicas,
        config: BrokerConfig,
        node_id: int,
        on_settings: Callable[[Settings], None],
        on_brokers: Callable[[], None] = lambda: None,
        on_topic: Callable[[LocalTopic], None] = lambda local: None,
        on_deleted: Callable[[LocalTopic], None] = lambda local: None,
    ) -> None:
        """`on_brokers`: some registered or left. `on_topic`: its local partitions may be others."""
        self.state = ClusterState()
        """What is committed, and no more."""
        self._replicas = replicas
        self._config = config
        self._node_name = str(node_id)
        self._on_settings = on_settings
        self._on_brokers = on_brokers
        self._on_topic = on_topic
        self._on_deleted = on_deleted
        self._deleted: dict[UUID, None] = {}
        """Topics whose deletion was read before `loaded`: the state forgets them."""
        self._is_live = False

    def loaded(self) -> None:
        """All that was committed at the start was read: bring the broker to what it says."""
        self._is_live = True
        self._take_settings()
        for topic_id in self._deleted:
            self._remove(topic_id)
        self._deleted.clear()
        for topic_id in list(self.state.topics_by_id):
            self._bring_in(topic_id)
        self._on_brokers()

    def committed(self, records: list[Record]) -> None:
        """These records were committed just now, or are read at start; all that are known by now, so
        that nothing is done for what was true on the way only."""
        facts = self._apply(records)
        if not self._is_live:
            self._deleted.update(dict.fromkeys(_deleted(facts)))
            return
        if any(isinstance(fact, ConfigRecord) and self._is_ours(fact) for fact in facts):
            self._take_settings()
            for topic_id in list(self._replicas.by_id):
                self._bring_in(topic_id)
        for topic_id in _deleted(facts):  # First: another topic may have the name by now.
            self._remove(topic_id)
        for topic_id in dict.fromkeys(self._touched(facts)):
            self._bring_in(topic_id)
        if any(isinstance(fact, BrokerRecord | BrokerGoneRecord) for fact in facts):
            self._on_brokers()

    def replaced(self, records: list[Record]) -> None:
        """These records are committed, and nothing that was told before: bring the broker to what they
        say. Logs of topics that they don't name are kept, and go on as they were."""
        self.state = ClusterState()
        self._deleted.update(dict.fromkeys(_deleted(self._apply(records))))
        if self._is_live:
            self.loaded()

    def _apply(self, records: list[Record]) -> list[Fact]:
        facts = [decode(record) for record in records]
        for fact in facts:
            self.state.apply(fact)
        return facts

    def _remove(self, topic_id: UUID) -> None:
        removed = self._replicas.remove(topic_id)
        if removed is not None:
            self._on_deleted(removed)

    def _bring_in(self, topic_id: UUID) -> None:
        topic = self.state.topics_by_id.get(topic_id)
        if topic is not None:  # Else it is deleted.
            self._replicas.bring_in(topic)
            self._on_topic(self._replicas.by_id[topic_id])

    def _touched(self, facts: list[Fact]) -> list[UUID]:
        touched: list[UUID] = []
        for fact in facts:
            if isinstance(fact, TopicRecord | PartitionRecord):
                touched.append(fact.topic_id)
            elif isinstance(fact, ConfigRecord) and fact.resource == TOPIC_RESOURCE:
                topic = self.state.topics.get(fact.name)
                if topic is not None:
                    touched.append(topic.topic_id)
        return touched

    def _is_ours(self, fact: ConfigRecord) -> bool:
        return fact.resource == BROKER_RESOURCE and fact.name in (CLUSTER_DEFAULT, self._node_name)

    def _take_settings(self) -> None:
        settings = Settings(
            self._config,
            self.state.config(BROKER_RESOURCE, CLUSTER_DEFAULT),
            self.state.config(BROKER_RESOURCE, self._node_name),
        )
        self._replicas.settings = settings
        self._on_settings(settings)


def _deleted(facts: list[Fact]) -> list[UUID]:
    return [f.topic_id for f in facts if isinstance(f, TopicRecord) and f.name is None]
