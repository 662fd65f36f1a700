"""The verbs that every door calls: plain values in, values or answers out.

Owns no state of its own beyond the producer ids it hands out; it joins the metadata machine (what
exists), the replicas (what is here) and the fetcher (who waits). Doors know nothing behind it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar
from uuid import UUID

from dmq.broker.admin import Admin, NewTopic
from dmq.broker.answer import Answer
from dmq.broker.backlog import Backlog
from dmq.broker.electing import Electing
from dmq.broker.fetching import Fetcher
from dmq.broker.forwarding import Forwarding
from dmq.broker.group_seats import GroupCoordinators
from dmq.broker.host import MachineHost
from dmq.broker.internal_topics import internal_shape
from dmq.broker.leadership import MOVING_MS, Leadership
from dmq.broker.offsets import FoundOffset, Sought, Unsure, list_offset
from dmq.broker.partition import Partition
from dmq.broker.quorum_report import QuorumReport
from dmq.broker.replicas import Replicas
from dmq.broker.transaction_seats import TransactionCoordinators
from dmq.broker.views import BrokerView as BrokerView
from dmq.broker.views import PartitionView as PartitionView
from dmq.broker.views import TopicView as TopicView
from dmq.broker.views import Views
from dmq.config.broker import BrokerConfig
from dmq.config.settings import Settings
from dmq.errors import DmqError, ErrorCode, KafkaError, StorageError
from dmq.machines.cluster import ClusterMachine
from dmq.machines.commands import AllocateProducerIds, ProducerIds
from dmq.machines.records import FeatureRange
from dmq.machines.state import ClusterState
from dmq.machines.topics import check_topic_name
from dmq.types import NIL_UUID, NO_EPOCH, NO_LEADER

M = TypeVar("M")
N = TypeVar("N")

SERVED_MS = 5_000
"""How long the answer to a new topic waits for its leaders."""
SLICE = 250
"""Topics told per pass of the loop: a few milliseconds."""


class Identity(NamedTuple):
    """Who this broker is."""

    cluster_id: str
    node_id: int
    rack: str | None


class Aside(Protocol):
    """Ways out of the loop's present pass: a thread beside it, or its next pass."""

    def submit(
        self, work: Callable[[], object], done: Callable[[BaseException | None], None]
    ) -> None: ...
    def soon(self, callback: Callable[[], None]) -> None: ...


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
        aside: Aside,
        forwarding: Forwarding,
        leadership: Leadership,
        groups: GroupCoordinators,
        transactions: TransactionCoordinators,
        electing: Electing,
        quorum: QuorumReport,
    ) -> None:
        self.identity = identity
        self.config = config
        self.fetcher = fetcher
        self.backlog = backlog
        self.now, self.steady_now = clocks
        self.find = replicas.find
        self.intake = replicas.intake
        self._aside = aside
        self.endpoints: dict[str, tuple[str, int]] = {}
        """By listener: the address that clients are told. The runtime fills it when it listens."""
        self.broker_epoch = -1
        """Of this process's registration; the runtime sets it."""
        self._cluster = cluster
        self._metadata = metadata
        self._replicas = replicas
        self._forwarding = forwarding
        self.leadership = leadership
        self.groups = groups
        groups.create_topic = self._create_internal
        self.transactions = transactions
        transactions.create_topic = self._create_internal
        transactions.new_producer_id = self.next_producer_id
        self.elect_leaders = electing.elect
        self.quorum = quorum.quorum
        self._views = Views(lambda: cluster.state, leadership, self.live_nodes, forwarding.listed)
        self.submit = forwarding.submit
        self.admin = Admin(
            self.submit, self._settings, cluster, replicas, new_uuid, self._when_served
        )
        self._producer_ids = range(0)
        self._producer_id_block: Answer[ProducerIds] | None = None

    def later(self, delay_ms: int, callback: Callable[[], None]) -> None:
        """Call it in so many ms."""
        self.fetcher.at(self.steady_now() + delay_ms, callback)

    # --- the cluster -------------------------------------------------------------------------

    @property
    def cluster(self) -> ClusterState:
        return self._cluster.state

    @property
    def cluster_id(self) -> str:
        return self.identity.cluster_id

    @property
    def controller_id(self) -> int:
        """The metadata's leader; -1: nobody knows."""
        leader = self._metadata.replica.leader
        return NO_LEADER if leader is None else leader.node

    def live_nodes(self) -> list[int]:
        """The brokers that are up, as far as this one sees."""
        return [self.identity.node_id, *self._forwarding.linked()]

    def this_broker(self, listener: str) -> BrokerView:
        host, port = self.endpoints[listener]
        return BrokerView(self.identity.node_id, host, port, self.identity.rack)

    def brokers(self, listener: str, *, with_fenced: bool = False) -> list[BrokerView]:
        """The brokers that are up; `with_fenced`: those that are registered and down, too."""
        return self._views.brokers(listener, self.this_broker(listener), with_fenced=with_fenced)

    def strangers(self, listener: str) -> frozenset[int]:
        """The brokers that can't be reached over this listener: they have none of this name."""
        return self._views.strangers(listener)

    def leader_of(self, topic: str, topic_id: UUID, index: int) -> tuple[int, int]:
        """(leader, epoch) of a partition, by the topic's name or id; (-1, -1) if unknown."""
        if topic_id == NIL_UUID:
            found = self.cluster.topics.get(topic)
            if found is None:
                return NO_LEADER, NO_EPOCH
            topic_id = found.topic_id
        led = self.leadership.of(topic_id, index)
        return led.leader, led.epoch

    def when_sure(self, callback: Callable[[], None]) -> None:
        """Call when it is sure that whoever is said to lead was alive a moment ago."""
        self.leadership.roll_call.then(callback)

    def when_moved(
        self, topic: str, topic_id: UUID, index: int, callback: Callable[[], None]
    ) -> bool:
        """Whether a partition's leadership is leaving this broker and in nobody's hands yet; if so,
        call when it is known who leads, or when that takes too long."""
        try:
            replica = self.find(topic, topic_id, index).replica
        except KafkaError:
            return False
        if not self.leadership.is_moving(replica):
            return False

        def give_up() -> None:
            if self.leadership.give_up(callback):
                callback()

        self.leadership.when(lambda: not self.leadership.is_moving(replica), callback)
        self.fetcher.at(self.steady_now() + MOVING_MS, give_up)
        return True

    def metadata_offset(self) -> int:
        """How much metadata is committed: grows with every change."""
        return self._metadata.replica.high_watermark

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
        return self._views.topic(found)

    def topic_by_id(self, topic_id: UUID) -> TopicView | None:
        found = self.cluster.topics_by_id.get(topic_id)
        return None if found is None else self.topic(found.name)

    def topic_names(self) -> list[str]:
        return list(self._replicas.topics)

    def _create_internal(self, name: str) -> Answer[None]:
        """Make a topic of the coordinators; the answer comes when it is served, or not to be."""
        config = self._settings().effective
        topic = NewTopic(name, self.admin.new_uuid(), *internal_shape(name, config))
        answer: Answer[None] = Answer()
        self.admin.create_topics([topic]).on_done(lambda done: answer.resolve(None))
        return answer

    def why_no_topic(self, name: str) -> ErrorCode:
        """The code for a topic that is not there: bad name, or just unknown."""
        try:
            check_topic_name(name)
        except KafkaError as error:
            return error.code
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _when_served(self, names: list[str]) -> Answer[None]:
        """An answer that comes when all brokers know these topics and their partitions are led, or
        when that takes too long."""
        answer: Answer[None] = Answer()
        topics = [topic for name in names if (topic := self.cluster.topics.get(name)) is not None]
        wanted = [(topic.topic_id, n) for topic in topics for n in range(len(topic.partitions))]

        def are_led() -> bool:
            while wanted and self.leadership.of(*wanted[-1]).leader != NO_LEADER:
                wanted.pop()
            return not wanted

        def done() -> None:
            if not answer.is_done:
                answer.resolve(None)

        def known() -> None:
            self.leadership.when(are_led, done)
            if not answer.is_done:
                self.fetcher.at(self.steady_now() + SERVED_MS, give_up)

        def give_up() -> None:
            self.leadership.give_up(done)
            done()

        self._forwarding.when_everywhere(known)
        return answer

    def when_settled(self, callback: Callable[[bool], None]) -> None:
        """Call when all that the metadata says now is committed: what was read from it may go out
        (SPEC §7: reads wait too). With False if it is not to be, and must be read anew."""
        self._metadata.when_settled(callback)

    def answer_settled(self, make: Callable[[], M], reply: Callable[[M], None]) -> None:
        """`make` an answer from the metadata; `reply` when what it rests on is settled."""
        message = make()
        self.when_settled(
            lambda is_true: reply(message) if is_true else self.answer_settled(make, reply)
        )

    def _settings(self) -> Settings:
        return self._replicas.settings

    # --- records -----------------------------------------------------------------------------

    def list_offset(
        self,
        partition: Partition,
        timestamp: int,
        *,
        committed_only: bool = False,
        is_sure: bool = False,
    ) -> FoundOffset | Sought | Unsure:
        """See `offsets.list_offset`; `committed_only`: as far as transactions are decided."""
        return list_offset(partition, timestamp, committed_only=committed_only, is_sure=is_sure)

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

    # --- long work ---------------------------------------------------------------------------

    def beside(self, work: Callable[[], M]) -> Answer[M]:
        """Run `work`, which blocks or computes for long, beside the loop. It may raise DmqError and
        OSError; anything else ends the broker."""
        answer: Answer[M] = Answer()
        values: list[M] = []

        def done(error: BaseException | None) -> None:
            if error is None:
                answer.resolve(values[0])
            elif isinstance(error, OSError):
                answer.fail(StorageError(str(error)))
            elif isinstance(error, DmqError):
                answer.fail(error)
            else:
                raise error

        self._aside.submit(lambda: values.append(work()), done)
        return answer

    def in_slices(
        self,
        items: Sequence[N],
        make: Callable[[N], M],
        done: Callable[[list[M]], None],
        step: int = SLICE,
    ) -> None:
        """`done` with `make` of each item: `step` of them per pass of the loop."""
        made: list[M] = []

        def go_on() -> None:
            at = len(made)
            made.extend(map(make, items[at : at + step]))
            if len(made) < len(items):
                self._aside.soon(go_on)
            else:
                done(made)

        go_on()

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
