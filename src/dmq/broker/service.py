"""The verbs that every door calls: plain values in, values or answers out.

Owns no state of its own beyond the producer ids it hands out; it joins the metadata machine (what
exists), the replicas (what is here) and the fetcher (who waits). Doors know nothing behind it.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar
from uuid import UUID

from dmq.broker.admin import Admin
from dmq.broker.answer import Answer
from dmq.broker.backlog import Backlog
from dmq.broker.fetching import Fetcher
from dmq.broker.host import MachineHost
from dmq.broker.offsets import FoundOffset, list_offset
from dmq.broker.partition import Partition
from dmq.broker.replicas import Replicas
from dmq.config.broker import BrokerConfig
from dmq.config.settings import Settings
from dmq.errors import DmqError, ErrorCode, KafkaError
from dmq.machines.cluster import ClusterMachine
from dmq.machines.commands import AllocateProducerIds, ProducerIds
from dmq.machines.machine import Command
from dmq.machines.records import FeatureRange
from dmq.machines.state import ClusterState, TopicState
from dmq.machines.topics import check_topic_name
from dmq.types import NO_EPOCH, NO_LEADER

R = TypeVar("R")
M = TypeVar("M")


class BrokerView(NamedTuple):
    """A broker as clients of one listener see it."""

    node_id: int
    host: str
    port: int
    rack: str | None


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


class Identity(NamedTuple):
    """Who this broker is."""

    cluster_id: str
    node_id: int
    rack: str | None


class Clocks(NamedTuple):
    """Two clocks in ms: `wall` is set by people and may jump, so only records are stamped with it;
    `steady` is for deadlines and durations, and means nothing outside of this process."""

    wall: Callable[[], int]
    steady: Callable[[], int]


class Service:
    """See the module."""

    def __init__(
        self,
        identity: Identity,
        config: BrokerConfig,
        cluster: ClusterMachine,
        metadata: MachineHost,
        replicas: Replicas,
        fetcher: Fetcher,
        clocks: Clocks,
        new_uuid: Callable[[], UUID],
        backlog: Backlog,
    ) -> None:
        self.identity = identity
        self.config = config
        self.fetcher = fetcher
        self.backlog = backlog
        self.now, self.steady_now = clocks
        self.find = replicas.find
        self.endpoints: dict[str, tuple[str, int]] = {}
        """By listener: the address that clients are told. The runtime fills it when it listens."""
        self.broker_epoch = -1
        """Of this process's registration; the runtime sets it."""
        self._cluster = cluster
        self._metadata = metadata
        self._replicas = replicas
        self.admin = Admin(self.submit, self._settings, cluster, replicas, new_uuid)
        self._producer_ids = range(0)
        self._producer_id_block: Answer[ProducerIds] | None = None

    # --- the cluster -------------------------------------------------------------------------

    @property
    def cluster(self) -> ClusterState:
        return self._cluster.state

    @property
    def cluster_id(self) -> str:
        return self.identity.cluster_id

    @property
    def controller_id(self) -> int:
        return self.identity.node_id

    def this_broker(self, listener: str) -> BrokerView:
        host, port = self.endpoints[listener]
        return BrokerView(self.identity.node_id, host, port, self.identity.rack)

    def brokers(self, listener: str) -> list[BrokerView]:
        return [self.this_broker(listener)]

    def metadata_offset(self) -> int:
        """How much metadata is committed: grows with every change."""
        return self._metadata.partition.high_watermark

    def supported_features(self) -> Mapping[str, FeatureRange]:
        return self._cluster.supported

    def finalized_features(self) -> Mapping[str, int]:
        return self.cluster.features

    # --- topics ------------------------------------------------------------------------------

    def has(self, topic: str) -> bool:
        return topic in self._replicas.topics

    def topic(self, name: str) -> TopicView | None:
        found = self.cluster.topics.get(name)
        if found is None or found.topic_id not in self._replicas.by_id:
            return None
        return self._view(found)

    def topic_by_id(self, topic_id: UUID) -> TopicView | None:
        found = self.cluster.topics_by_id.get(topic_id)
        return None if found is None else self.topic(found.name)

    def topic_names(self) -> list[str]:
        return list(self._replicas.topics)

    def all_topics(self) -> list[TopicView]:
        by_id = self._replicas.by_id
        return [
            self._view(topic) for topic in self.cluster.topics.values() if topic.topic_id in by_id
        ]

    def _view(self, topic: TopicState) -> TopicView:
        local = self._replicas.by_id[topic.topic_id]
        partitions: list[PartitionView] = []
        for index, placed in enumerate(topic.partitions):
            here = local.partitions.get(index)
            replicas = list(placed.replicas)
            if here is None:
                view = PartitionView(index, NO_LEADER, NO_EPOCH, replicas, [], replicas)
            else:
                node_id = self.identity.node_id
                view = PartitionView(index, node_id, here.leader_epoch, replicas, [node_id], [])
            partitions.append(view)
        return TopicView(topic.name, topic.topic_id, topic.name.startswith("__"), partitions)

    def why_no_topic(self, name: str) -> ErrorCode:
        """The code for a topic that is not there: bad name, or just unknown."""
        try:
            check_topic_name(name)
        except KafkaError as error:
            return error.code
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def submit(self, command: Command[R]) -> Answer[R]:
        """Give the metadata machine a command of `machines.commands`."""
        return self._metadata.submit(command, self.now())

    def answer_settled(self, make: Callable[[], M], reply: Callable[[M], None]) -> None:
        """`make` an answer from the newest metadata; `reply` when what it rests on is committed,
        or with another one if the disk refused that (SPEC §7: reads wait too)."""
        message = make()

        def settled(code: ErrorCode) -> None:
            if code is ErrorCode.NONE:
                reply(message)
            else:
                self.answer_settled(make, reply)

        self._metadata.partition.when_committed(settled)

    def _settings(self) -> Settings:
        return self._replicas.settings

    # --- records -----------------------------------------------------------------------------

    def list_offset(self, partition: Partition, timestamp: int) -> FoundOffset:
        return list_offset(partition, timestamp)

    def delete_records(self, partition: Partition, offset: int) -> Answer[int]:
        """Move the log's start; the answer is the new low watermark. Raises KafkaError."""
        if offset == -1:
            offset = partition.high_watermark
        if not 0 <= offset <= partition.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"can't delete up to {offset}: the high watermark is {partition.high_watermark}",
            )
        return partition.trim(offset)

    # --- producers ---------------------------------------------------------------------------

    def next_producer_id(self) -> Answer[int]:
        """An id that no producer has had, from a block that the metadata log keeps for us."""
        if self._producer_ids:
            return Answer.of(self._take_producer_id())
        answer: Answer[int] = Answer()
        if self._producer_id_block is None:
            self._producer_id_block = self.submit(
                AllocateProducerIds(self.identity.node_id, self.broker_epoch)
            )
            self._producer_id_block.on_done(self._got_producer_ids)
        self._producer_id_block.on_done(lambda block: self._answer_producer_id(block, answer))
        return answer

    def _take_producer_id(self) -> int:
        taken = self._producer_ids[0]
        self._producer_ids = self._producer_ids[1:]
        return taken

    def _got_producer_ids(self, block: Answer[ProducerIds]) -> None:
        self._producer_id_block = None
        try:
            ids = block.get()
            self._producer_ids = range(ids.first, ids.first + ids.count)
        except DmqError:
            self._producer_ids = range(0)  # Those who wait are told by their own callback.

    def _answer_producer_id(self, block: Answer[ProducerIds], answer: Answer[int]) -> None:
        try:
            block.get()
        except DmqError as error:
            answer.fail(error)
            return
        self.next_producer_id().on_done(answer.follow)
