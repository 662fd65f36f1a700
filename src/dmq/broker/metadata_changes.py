"""What committed metadata changes on this broker: topics come and go, settings change.

Called by the metadata's host with the records that were just committed, and at start with all of
them: until `loaded` nothing follows from them. Looks only at which things changed; what they are now
is read from the machine's state.
"""

from collections.abc import Callable
from uuid import UUID

from dmq.broker.replicas import LocalTopic, Replicas
from dmq.config.broker import BrokerConfig
from dmq.config.settings import Settings
from dmq.machines.cluster import ClusterMachine
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
        machine: ClusterMachine,
        replicas: Replicas,
        config: BrokerConfig,
        node_id: int,
        on_settings: Callable[[Settings], None],
        on_brokers: Callable[[], None] = lambda: None,
        on_topic: Callable[[LocalTopic], None] = lambda local: None,
        on_deleted: Callable[[LocalTopic], None] = lambda local: None,
    ) -> None:
        """`on_brokers`: some registered or left. `on_topic`: its local partitions may be others."""
        self._machine = machine
        self._replicas = replicas
        self._config = config
        self._node_name = str(node_id)
        self._on_settings = on_settings
        self._on_brokers = on_brokers
        self._on_topic = on_topic
        self._on_deleted = on_deleted
        self._deleted: dict[UUID, None] = {}
        self._is_live = False

    @property
    def _state(self) -> ClusterState:
        return self._machine.state

    def _remember(self, records: list[Record]) -> None:
        """Records read at start: keep deletions in mind, the state forgets them."""
        for fact in map(decode, records):
            if isinstance(fact, TopicRecord) and fact.name is None:
                self._deleted[fact.topic_id] = None

    def loaded(self) -> None:
        """All that was committed at the start was read: bring the broker to what it says."""
        self._is_live = True
        self._take_settings()
        for topic_id in list(self._state.topics_by_id):
            self._bring_in(topic_id)
        for topic_id in self._deleted:
            if topic_id not in self._state.topics_by_id:
                self._replicas.remove(topic_id)
        self._deleted.clear()
        self._on_brokers()

    def committed(self, records: list[Record]) -> None:
        """These records were committed just now, or are read at start."""
        if not self._is_live:
            self._remember(records)
            return
        facts = [decode(record) for record in records]
        if any(isinstance(fact, ConfigRecord) and self._is_ours(fact) for fact in facts):
            self._take_settings()
            for topic_id in list(self._replicas.by_id):  # Others may not be committed yet.
                self._bring_in(topic_id)
        for topic_id in dict.fromkeys(self._touched(facts)):
            self._bring_in(topic_id)
        for fact in facts:
            if isinstance(fact, TopicRecord) and fact.name is None:
                removed = self._replicas.remove(fact.topic_id)
                if removed is not None:
                    self._on_deleted(removed)
        if any(isinstance(fact, BrokerRecord | BrokerGoneRecord) for fact in facts):
            self._on_brokers()

    def _bring_in(self, topic_id: UUID) -> None:
        topic = self._state.topics_by_id.get(topic_id)
        if topic is not None:  # Else it is about to be deleted.
            self._replicas.bring_in(topic)
            self._on_topic(self._replicas.by_id[topic_id])

    def _touched(self, facts: list[Fact]) -> list[UUID]:
        touched: list[UUID] = []
        for fact in facts:
            if isinstance(fact, TopicRecord | PartitionRecord):
                touched.append(fact.topic_id)
            elif isinstance(fact, ConfigRecord) and fact.resource == TOPIC_RESOURCE:
                topic = self._state.topics.get(fact.name)
                if topic is not None:
                    touched.append(topic.topic_id)
        return touched

    def _is_ours(self, fact: ConfigRecord) -> bool:
        return fact.resource == BROKER_RESOURCE and fact.name in (CLUSTER_DEFAULT, self._node_name)

    def _take_settings(self) -> None:
        settings = Settings(
            self._config,
            self._state.config(BROKER_RESOURCE, CLUSTER_DEFAULT),
            self._state.config(BROKER_RESOURCE, self._node_name),
        )
        self._replicas.settings = settings
        self._on_settings(settings)
