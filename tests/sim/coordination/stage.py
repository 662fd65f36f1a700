"""A calm world with coordinators that a test breaks by hand; see sim/stage.py."""

from collections.abc import Callable
from typing import Any

from sim import batches
from sim.batches import Stamp
from sim.broker import Broker
from sim.coordination.chronicle import Txn
from sim.coordination.readers import visible
from sim.coordination.scripts import Reply
from sim.coordination.world import Coordination, CoordinatorWorld
from sim.metadata import Topic
from sim.network import Weather
from sim.swarm import Mix

from dmq.broker.answer import Answer
from dmq.broker.transacting import LEADER_ADDS
from dmq.errors import DmqError, ErrorCode
from dmq.machines.groups.offset_commands import (
    CommitOffsets,
    CommitOffsetsInTransaction,
    FetchOffsets,
    OffsetToCommit,
)
from dmq.machines.transactions.commands import EndTransaction, InitProducerId

QUIET = Coordination(
    idempotent=0, transactional=0, members=(0, 0), readers=0, repeats=0, deaths=0, zombies=0
)
TIMEOUT_MS = 2000


class Request:
    """Something asked of a broker, and the answer once there is one."""

    def __init__(self) -> None:
        self.reply: Reply | None = None

    def done(self, answer: Answer[Any]) -> None:
        try:
            self.reply = Reply(ErrorCode.NONE, answer.get())
        except DmqError as error:
            self.reply = Reply(error.code)


class CoordinatorStage:
    """Three brokers with `topic` and `other`, and everything that coordinators need."""

    def __init__(self, seed: int = 1) -> None:
        mix = Mix(
            topics=0,
            weather=Weather(delay_ms=(1, 1)),
            sync_ms=(1, 2),
            producers=0,
            consumers=0,
        )
        self.world = CoordinatorWorld(seed, mix, coordination=QUIET)
        self.world.begin()
        self.topic = self.world.create_topic("topic", [*self.world.brokers])
        self.other = self.world.create_topic("other", [*self.world.brokers])
        self.until(lambda: all(self._leaders(topic) for topic in self.world.metadata.live))
        self.run(100)  # Leaders are told.

    # ---- time and place

    def run(self, duration_ms: int) -> None:
        self.world.clock.run(self.world.clock.now + duration_ms)

    def until(self, condition: Callable[[], bool], within_ms: int = 20_000) -> None:
        assert self.world.clock.run(self.world.clock.now + within_ms, condition)

    def _leaders(self, topic: Topic) -> list[Broker]:
        found = [b for b in self.world.brokers.values() if b.is_serving and b.leads(topic)]
        return sorted(found, key=lambda broker: -broker.watched[topic.name].epoch)

    def leader(self, topic: Topic) -> Broker:
        return self._leaders(topic)[0]

    def others(self, known: Broker) -> list[Broker]:
        return [broker for broker in self.world.brokers.values() if broker is not known]

    @property
    def group_coordinator(self) -> Broker:
        return self.leader(self.world.offsets_topic)

    @property
    def coordinator(self) -> Broker:
        """Of transactions."""
        return self.leader(self.world.transactions_topic)

    def move(self, topic: Topic) -> Broker:
        """Its leader is cut off until another one leads; then all is well again."""
        before = self.leader(topic)
        self.isolate(before)
        self.until(lambda: any(broker is not before for broker in self._leaders(topic)))
        self.world.network.heal_all([*self.world.brokers])
        self.until(lambda: len(self._leaders(topic)) == 1)
        self.run(300)
        return self.leader(topic)

    def isolate(self, broker: Broker) -> None:
        others = [b.number for b in self.world.brokers.values() if b is not broker]
        ways = [(broker.number, n) for n in others] + [(n, broker.number) for n in others]
        self.world.network.cut(ways)

    def settle(self) -> None:
        """All faults over, all replicas equal, nothing open, nothing lost that was promised."""
        self.world.heal_all()

    # ---- clients

    def ask(self, broker: Broker, serve: Callable[[Any], Answer[Any]]) -> Request:
        request = Request()
        broker.arrive(lambda: serve(broker.backend).on_done(request.done))
        return request

    def answer(self, broker: Broker, serve: Callable[[Any], Answer[Any]]) -> Any:
        request = self.ask(broker, serve)
        self.until(lambda: request.reply is not None)
        assert request.reply is not None
        assert request.reply.is_good, request.reply
        return request.reply.value

    def begin(self, name: str = "name") -> Txn:
        """A producer gets its name, and means to begin a transaction."""
        command = InitProducerId(name, TIMEOUT_MS)
        given = self.answer(self.coordinator, lambda b: b.transactions.submit(name, command))
        assert given.code is ErrorCode.NONE
        return self.next(Txn(0, name, given.producer_id, given.producer_epoch))

    def ask_for(self, broker: Broker, name: str) -> Request:
        command = InitProducerId(name, TIMEOUT_MS)
        return self.ask(broker, lambda backend: backend.transactions.submit(name, command))

    def name(self, name: str) -> tuple[int, int]:
        """A producer id and an epoch for a newcomer."""
        request = self.ask_for(self.coordinator, name)
        self.until(lambda: request.reply is not None)
        assert request.reply is not None
        assert request.reply.is_good, request.reply
        return request.reply.value.producer_id, request.reply.value.producer_epoch

    def ask_name(self, name: str) -> ErrorCode:
        """Another instance asks for a name."""
        command = InitProducerId(name, TIMEOUT_MS)
        given = self.answer(self.coordinator, lambda b: b.transactions.submit(name, command))
        self.run(300)
        code: ErrorCode = given.code
        return code

    def next(self, txn: Txn) -> Txn:
        number = self.world.next_number()
        return Txn(number, txn.transactional_id, txn.producer_id, txn.epoch)

    def send(self, txn: Txn, topic: Topic, sequence: int = 0) -> Request:
        number = self.world.next_number()
        self.world.chronicle.sent(txn, topic, number)
        return self.send_again(txn, topic, sequence, number)

    def send_again(self, txn: Txn, topic: Topic, sequence: int, number: int) -> Request:
        """The batch with this number and sequence, whether or not it was sent before."""
        stamp = Stamp(txn.producer_id, txn.epoch, sequence, True, False)
        return self.ask(
            self.leader(topic),
            lambda backend: backend.produce(
                topic.name,
                batches.make(number, 1, 10, stamp),
                txn.transactional_id,
                LEADER_ADDS,
                1000,
            ),
        )

    def write(self, txn: Txn, topic: Topic, sequence: int = 0) -> None:
        request = self.send(txn, topic, sequence)
        self.until(lambda: request.reply is not None)
        assert request.reply is not None
        assert request.reply.is_good, request.reply

    def end(self, txn: Txn, *, is_commit: bool = True) -> Request:
        txn.wish = is_commit
        command = EndTransaction(
            txn.transactional_id, txn.producer_id, txn.epoch, is_commit, LEADER_ADDS
        )
        return self.ask(
            self.coordinator, lambda b: b.transactions.submit(txn.transactional_id, command)
        )

    def ended(self, txn: Txn, *, is_commit: bool = True) -> Txn:
        """The next one of the same producer."""
        request = self.end(txn, is_commit=is_commit)
        self.until(lambda: request.reply is not None)
        assert request.reply is not None
        assert request.reply.is_good, request.reply
        given = request.reply.value
        self.world.promises.tell("ended", txn, is_commit, (given.producer_id, given.producer_epoch))
        return self.next(Txn(0, txn.transactional_id, given.producer_id, given.producer_epoch))

    def commit_offset(self, value: int, group: str = "group", at: Broker | None = None) -> Request:
        offset = OffsetToCommit("topic", 0, value, -1, "", self.topic.topic_id)
        command = CommitOffsets(group, (offset,))
        asked = self.group_coordinator if at is None else at
        return self.ask(asked, lambda b: b.groups.submit(group, command))

    def commit_offset_in(self, txn: Txn, value: int, group: str = "group") -> None:
        self.world.chronicle.sent_offset(txn, group, self.topic, value)
        offset = OffsetToCommit("topic", 0, value, -1, "", self.topic.topic_id)
        command = CommitOffsetsInTransaction(group, txn.producer_id, txn.epoch, (offset,))
        results = self.answer(
            self.group_coordinator,
            lambda b: b.commit_in_transaction(txn.transactional_id, command, LEADER_ADDS),
        )
        assert results[0].error is ErrorCode.NONE

    def fetch_offset(self, broker: Broker, group: str = "group") -> Request:
        command = FetchOffsets(group, (("topic", 0),))
        return self.ask(broker, lambda b: b.groups.submit(group, command))

    def offset(self, group: str = "group") -> int:
        command = FetchOffsets(group, (("topic", 0),))
        found = self.answer(self.group_coordinator, lambda b: b.groups.submit(group, command))
        offset: int = found[0].offset
        return offset

    def read(self, topic: Topic) -> list[int]:
        """Numbers of the batches that a reader of committed transactions sees."""
        result = self.leader(topic).backend.read_committed(topic.name, 0, 1 << 20)
        assert result.code is ErrorCode.NONE
        if result.records is None:
            return []
        raw = b"".join(part.pread() for part in result.records.slices)
        entries = batches.parse(raw)
        return [entry.number for entry in visible(entries, result.aborted or [])]
