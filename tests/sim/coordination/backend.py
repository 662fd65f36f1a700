"""What a simulated broker runs on its node: production code from the partition up to the coordinators.

Wires it as `broker/runtime.py` and the doors do: a partition has a producer book, leaders are told over
peer links, `__consumer_offsets` and `__transaction_state` have seats, a batch of a transaction asks for
leave before it enters. Only the metadata come from the simulation's oracle. Decides nothing.
"""

import contextlib
import sys
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from sim.batches import WALL_MS
from sim.coordination.peers import SimPeers

from dmq.broker.answer import Answer
from dmq.broker.backlog import Backlog
from dmq.broker.fetching import Fetcher, FetchResult, FetchSpec, How
from dmq.broker.group_records import GroupCodec
from dmq.broker.group_seats import GroupCoordinators
from dmq.broker.internal_topics import OFFSETS_TOPIC
from dmq.broker.leadership import Leadership
from dmq.broker.multiraft.replica import Replica
from dmq.broker.multiraft.waiting import ALL
from dmq.broker.partition import Partition
from dmq.broker.producing import ProducerBook, Snapshots
from dmq.broker.replicas import LocalTopic, Replicas
from dmq.broker.timers import Timers
from dmq.broker.transacting import LEADER_ADDS, code_at_partition
from dmq.broker.transaction_seats import TransactionCoordinators
from dmq.config.broker import BrokerConfig
from dmq.config.settings import Settings
from dmq.errors import DmqError, ErrorCode, KafkaError, StorageError
from dmq.machines.groups.machine import GroupMachine
from dmq.machines.groups.offset_commands import (
    CommitOffsets,
    CommitOffsetsInTransaction,
    OffsetResult,
    OffsetToCommit,
)
from dmq.machines.groups.surroundings import Limits
from dmq.machines.records import PartitionRecord, TopicRecord
from dmq.machines.state import ClusterState
from dmq.machines.transactions.commands import InitProducerId
from dmq.records import read_header
from dmq.storage.producer_files import ProducerFiles
from dmq.types import NIL_UUID, TopicPartition

if TYPE_CHECKING:
    from sim.broker import Broker
    from sim.metadata import Topic

TICK_MS = 50
KEEP_MS = 300
NEVER_MS = 1 << 50
"""Producers don't expire: the time of a simulated batch is a number."""
SESSION_MS = 1500
SETTINGS = Settings(
    BrokerConfig(
        group_min_session_timeout_ms=100,
        group_initial_rebalance_delay_ms=100,
        group_consumer_min_session_timeout_ms=100,
        group_consumer_session_timeout_ms=SESSION_MS,
        group_consumer_min_heartbeat_interval_ms=50,
        group_consumer_heartbeat_interval_ms=200,
        transaction_abort_timed_out_transaction_cleanup_interval_ms=300,
    )
)
"""Short sessions and time-outs, so that they happen within a run."""


class Aside:
    """Work beside the loop: it takes a little while."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker

    def submit(
        self, work: Callable[[], object], done: Callable[[BaseException | None], None]
    ) -> None:
        self._broker.later(self._broker.rng.randint(1, 30), self._run, work, done)

    def _run(
        self, work: Callable[[], object], done: Callable[[BaseException | None], None]
    ) -> None:
        try:
            work()
        except (OSError, StorageError) as error:
            done(error)
        else:
            done(None)


class SimGroups(GroupCoordinators):
    """Members' ids come from the world's dice."""

    dice: Any

    def new_machine(self) -> GroupMachine:
        limits = Limits.of(self._replicas.settings.effective)
        return GroupMachine(GroupCodec(), limits, self._surroundings, self._new_id)

    def _new_id(self) -> str:
        return str(UUID(int=self.dice.getrandbits(128)))


class Backend:
    """See the module; one for each process."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        node, world = broker.node, broker.world
        self.peers: Any = SimPeers(broker)
        backlog = Backlog(sys.maxsize, sys.maxsize, lambda: 0.0)
        self._backlog = backlog
        self._aside = Aside(broker)
        self.replicas = Replicas(node, SETTINGS, backlog, self.now, self._aside)
        self.replicas.snapshots = Snapshots(ProducerFiles(broker.disk), self._aside)
        self._kept_at = 0
        self.cluster: Any = SimpleNamespace(state=ClusterState())
        self.leadership = Leadership(node, self.replicas, self.peers, self.now)
        self.groups = SimGroups(self.cluster, self.replicas, self.leadership, self.now, self.wall)
        self.groups.dice = world.rng
        self.transactions = TransactionCoordinators(
            broker.number,
            self.replicas,
            self.leadership,
            self.peers,
            self.now,
            self.wall,
            self.groups.transaction_ended,
        )
        self.transactions.new_producer_id = self.new_producer_id
        self.fetcher = Fetcher(self.replicas.find, Timers(), 0)
        self.leadership.begin(broker.life)
        broker.later(TICK_MS, self._tick)

    def now(self) -> int:
        return self._broker.now

    def wall(self) -> int:
        return WALL_MS + self._broker.now

    def new_producer_id(self) -> Answer[int]:
        """As the metadata would give it: one that nobody had."""
        return Answer.of(self._broker.world.next_producer_id())

    # ---- what the metadata say

    def learn(self, topic: "Topic") -> None:
        """There is such a topic, here or elsewhere."""
        if topic.topic_id in self.replicas.by_id:
            return
        self.replicas.version += 1
        config = SETTINGS.topic({}, internal=topic.is_internal)
        local = LocalTopic(topic.name, topic.topic_id, config)
        local.count = 1
        self.replicas.topics[topic.name] = self.replicas.by_id[topic.topic_id] = local
        state = self.cluster.state
        state.apply(TopicRecord(topic.topic_id, topic.name))
        state.apply(PartitionRecord(topic.topic_id, 0, tuple(topic.nodes), topic.first_voters))

    def opened(self, topic: "Topic", replica: Replica) -> None:
        """It has a replica here."""
        self.learn(topic)
        local = self.replicas.by_id[topic.topic_id]
        book = ProducerBook(
            replica,
            self._aside,
            NEVER_MS,
            self.replicas.snapshots,
        )
        tp = TopicPartition(topic.name, 0)
        local.partitions[0] = Partition(
            tp, topic.topic_id, replica, local.intake, self.now, self._backlog, book
        )
        self._changed(local)

    def left(self, topic: "Topic") -> None:
        """It has none any more."""
        local = self.replicas.by_id.get(topic.topic_id)
        if local is not None and local.partitions.pop(0, None) is not None:
            self._changed(local)

    def _changed(self, local: LocalTopic) -> None:
        self.groups.topic_changed(local)
        self.transactions.topic_changed(local)

    def deleted(self, topic: "Topic") -> None:
        local = self.replicas.by_id.pop(topic.topic_id, None)
        if local is None:
            return
        self.replicas.version += 1
        del self.replicas.topics[topic.name]
        self.cluster.state.apply(TopicRecord(topic.topic_id, None))
        self.cluster.state.apply(PartitionRecord(topic.topic_id, 0, None))
        self.leadership.forget(topic.topic_id, 1)
        self.groups.topic_deleted(topic.name, topic.topic_id)
        self.transactions.topic_deleted(topic.name)

    # ---- time

    def turn_ended(self) -> None:
        self.leadership.turn_ended()

    def _tick(self) -> None:
        now = self.now()
        self.leadership.tick(now)
        self.groups.tick(now)
        self.transactions.tick(now)
        if now - self._kept_at >= KEEP_MS:
            self._kept_at = now
            self._keep()
        self._broker.later(TICK_MS, self._tick)

    def _keep(self) -> None:
        """Housekeeping's look at snapshots of producers."""
        for local in self.replicas.topics.values():
            for partition in local.partitions.values():
                with contextlib.suppress(StorageError):
                    partition.keep_producers(self.wall())

    # ---- what doors do

    def produce(
        self, topic: str, raw: bytearray, transactional_id: str, version: int, timeout_ms: int
    ) -> Answer[int]:
        """A batch of a producer with an id, `acks=all`; the answer is its offset."""
        answer: Answer[int] = Answer()
        header = read_header(raw)
        append = partial(self._append, topic, raw, timeout_ms, answer)
        if not header.is_transactional:
            append()
            return answer

        def entered(done: Answer[None]) -> None:
            try:
                done.get()
            except DmqError as error:
                answer.fail(KafkaError(code_at_partition(error.code, knows_abortable=True)))
            else:
                append()

        self.transactions.enter(
            transactional_id,
            header.producer_id,
            header.producer_epoch,
            TopicPartition(topic, 0),
            version,
            header.base_sequence,
        ).on_done(entered)
        return answer

    def _append(self, topic: str, raw: bytearray, timeout_ms: int, answer: Answer[int]) -> None:
        try:
            partition = self.replicas.find(topic, NIL_UUID, 0)
            append = partition.append(memoryview(raw), self.wall(), ALL)
        except DmqError as error:
            answer.fail(error)
            return

        def on_done(code: ErrorCode) -> None:
            if code is ErrorCode.NONE:
                answer.resolve(append.base_offset)
            else:
                answer.fail(KafkaError(code))

        append.deadline = self.now() + timeout_ms
        append.on_done = on_done

    def commit_in_transaction(
        self, transactional_id: str, command: CommitOffsetsInTransaction, version: int
    ) -> Answer[list[OffsetResult]]:
        """TxnOffsetCommit: the group's coordinator writes once the transaction's has vouched."""
        answer: Answer[list[OffsetResult]] = Answer()

        def entered(done: Answer[None]) -> None:
            try:
                done.get()
            except DmqError as error:
                answer.fail(KafkaError(code_at_partition(error.code, knows_abortable=True)))
                return
            self.groups.submit(command.group_id, command).on_done(answer.follow)

        try:
            partition = self.transactions.offsets_partition(command.group_id)
        except KafkaError as error:
            answer.fail(error)
            return answer
        self.transactions.enter(
            transactional_id, command.producer_id, command.producer_epoch, partition, version
        ).on_done(entered)
        return answer

    def read_committed(
        self, topic: str, offset: int, bytes_max: int, rack: str | None = None
    ) -> FetchResult:
        """`rack`: the reader may be served by a follower."""
        spec = FetchSpec(topic, NIL_UUID, 0, offset, bytes_max)
        results, _, _ = self.fetcher.read([spec], bytes_max, How(rack, True))
        return results[0]

    def is_all_decided(self, topic: "Topic") -> bool:
        """Whether a reader here gets all that is committed, if there is a replica."""
        partition = self.replicas.by_id[topic.topic_id].partitions.get(0)
        if partition is None or partition.book is None:
            return True
        end = partition.high_watermark
        try:
            decided = partition.book.decided(end)
        except KafkaError:
            return False  # It leads since just now, and reads its log.
        return decided is not None and decided.last_stable_offset == end

    def probe(self, topic: "Topic") -> None:
        """Make the coordinator of an internal topic write something."""
        if topic.name == OFFSETS_TOPIC:
            offset = OffsetToCommit("probe", 0, self._broker.world.next_number())
            self.groups.submit("probe", CommitOffsets("probe", (offset,)))
        else:
            self.transactions.submit("probe", InitProducerId("probe", 1000))


__all__ = ["LEADER_ADDS", "Backend"]
