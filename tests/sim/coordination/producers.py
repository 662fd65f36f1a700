"""Producers with ids: idempotent ones, and transactional ones of both versions, zombies among them."""

from typing import TYPE_CHECKING

from sim import batches
from sim.batches import Stamp
from sim.coordination.chronicle import Txn
from sim.coordination.scripts import Ask, Reply, Script, Steps
from sim.ledger import Acknowledged

from dmq.broker.transacting import CLIENT_ADDS, LEADER_ADDS
from dmq.errors import ErrorCode
from dmq.machines.groups.offset_commands import CommitOffsetsInTransaction, OffsetToCommit
from dmq.machines.transactions.commands import AddPartitions, EndTransaction, InitProducerId
from dmq.types import TopicPartition

if TYPE_CHECKING:
    from sim.coordination.world import CoordinatorWorld
    from sim.metadata import Topic

TIMEOUTS_MS = (700, 2000, 2000, 6000)
APPEND_MS = 1000
IN_FLIGHT_MAX = 5
FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})


class _Batch:
    """What a producer sends until it is there; each time with the same number and sequence."""

    __slots__ = ("count", "number", "sequence", "topic")

    def __init__(self, topic: "Topic", number: int, sequence: int, count: int) -> None:
        self.topic = topic
        self.number = number
        self.sequence = sequence
        self.count = count


class Producer(Script):
    """What both kinds share: an id, sequences, and a batch on its way to a topic."""

    transactional_id = ""
    version = LEADER_ADDS

    def __init__(self, world: "CoordinatorWorld", name: str) -> None:
        self.producer_id = self.epoch = -1
        self._sequences: dict[str, int] = {}
        super().__init__(world, name)

    def _next_batch(self, topic: "Topic") -> _Batch:
        count = self.rng.choice((1, 1, 2, 3))
        sequence = self._sequences.get(topic.name, 0)
        self._sequences[topic.name] = sequence + count
        return _Batch(topic, self.world.next_number(), sequence, count)

    def _send(self, batch: _Batch) -> Ask:
        world, topic = self.world, batch.topic
        stamp = Stamp(
            self.producer_id, self.epoch, batch.sequence, bool(self.transactional_id), False
        )

        def judge(reply: Reply) -> None:
            if reply.is_good:
                ack = Acknowledged(batch.number, reply.value, world.clock.now)
                world.told_success(topic.facts, ack)

        return Ask(
            topic,
            lambda backend: backend.produce(
                topic.name,
                batches.make(batch.number, batch.count, 10, stamp),
                self.transactional_id,
                self.version,
                APPEND_MS,
            ),
            judge,
            repeats_as="Produce",
        )


class IdempotentProducer(Producer):
    """Has up to five batches under way, and sends again from the first one that is not there."""

    def steps(self) -> Steps:
        self.producer_id, self.epoch = self.world.next_producer_id(), 0
        while not self.is_stopped:
            yield self.rng.randint(0, 2 * self.world.coordination.pause_ms)
            topics = self.world.metadata.data
            if topics:
                topic = self.rng.choice(topics)
                count = self.rng.choice((1, 1, 2, IN_FLIGHT_MAX))
                yield from self._write([self._next_batch(topic) for _ in range(count)])

    def _write(self, waiting: list[_Batch]) -> Steps:
        topic = waiting[0].topic
        while waiting and not topic.is_deleted:
            replies = yield [self._send(batch) for batch in waiting]
            codes = [reply.code for reply in replies]
            good = next((n for n, reply in enumerate(replies) if not reply.is_good), len(replies))
            self.world.reached["idempotent batch"] += good
            if good < len(waiting) and not replies[good].is_retriable:
                self.world.promises.tell("refused", topic, waiting[good].number, codes[good])
                break
            self._judge_behind(waiting, codes, good)
            # What came after the first that failed is refused, or a duplicate next time.
            waiting = waiting[good:]
            if waiting:
                yield self.rng.randint(10, 120)
        if waiting:  # A new name, as a client gets one that can't go on.
            self.producer_id, self._sequences = self.world.next_producer_id(), {}

    def _judge_behind(self, sent: list[_Batch], codes: list[ErrorCode | None], first: int) -> None:
        """What those heard that came behind the first that failed, on the same connection."""
        for batch, code in zip(sent[first + 1 :], codes[first + 1 :], strict=True):
            if code is None:
                return  # The connection may be gone.
            if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                self.world.promises.tell("refused_behind", batch.topic, batch.number)
            self.world.reached["refused behind another"] += code is not ErrorCode.NONE


class TransactionalProducer(Producer):
    """One instance of a name; another one may take the name over while it goes on."""

    def __init__(self, world: "CoordinatorWorld", name: str, version: int) -> None:
        self.transactional_id = name
        self.version = version
        self.timeout_ms = world.rng.choice(TIMEOUTS_MS)
        super().__init__(world, name)

    def steps(self) -> Steps:
        while not self.is_stopped:
            if not (yield from self._begin_life()):
                self.world.reached["zombie fenced"] += 1
                return
            is_well = True
            while is_well and not self.is_stopped:
                yield self.rng.randint(0, 2 * self.world.coordination.pause_ms)
                is_well = yield from self._transaction()

    # ---- names

    def _begin_life(self) -> Steps:
        """Get an id or the next epoch; False if another instance has the name."""
        floor = self.world.chronicle.told_epochs.get(self.transactional_id)
        is_newcomer = self.producer_id < 0
        command = InitProducerId(
            self.transactional_id, self.timeout_ms, self.producer_id, self.epoch
        )

        def judge(reply: Reply) -> None:
            if reply.is_good and reply.value.code is ErrorCode.NONE:
                given = reply.value.producer_id, reply.value.producer_epoch
                self.world.promises.tell(
                    "initialised", self.transactional_id, given, floor, is_newcomer
                )

        ask = Ask(
            self.world.transactions_topic,
            lambda backend: backend.transactions.submit(self.transactional_id, command),
            judge,
        )
        while True:
            reply = yield from self.until_answered(ask)
            if reply.is_good and reply.value.code is ErrorCode.NONE:
                self._take_name(reply.value.producer_id, reply.value.producer_epoch)
                return True
            if not reply.is_good and not reply.is_retriable:
                return False
            yield self.rng.randint(10, 100)

    def _take_name(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.producer_id, self.epoch, self._sequences = producer_id, epoch, {}

    # ---- a transaction

    def _transaction(self) -> Steps:
        """True: go on with the next one; False: the name must be asked for again."""
        world, rng = self.world, self.rng
        if not world.metadata.data:
            return True
        txn = Txn(world.next_number(), self.transactional_id, self.producer_id, self.epoch)
        added: dict[str, None] = {}
        is_well, self.retries = True, 0
        for _ in range(rng.randint(1, 4)):
            if rng.random() < 0.25:
                is_well = yield from self._commit_offset(txn, added)
            else:
                is_well = yield from self._write(txn, rng.choice(world.metadata.data), added)
            if not is_well:
                break
            if rng.random() < world.coordination.dawdles:
                yield rng.choice((50, 1000, 3000))
        txn.is_complete = is_well
        return (yield from self._end(txn, is_commit=is_well and rng.random() < 0.75))

    def _add(self, txn: Txn, topic: "Topic", added: dict[str, None]) -> Steps:
        """Version 1: the client names the partition before it writes to it."""
        if self.version >= LEADER_ADDS or topic.name in added:
            return True
        command = AddPartitions(
            self.transactional_id,
            self.producer_id,
            self.epoch,
            frozenset((TopicPartition(topic.name, 0),)),
            CLIENT_ADDS,
        )
        ask = Ask(
            self.world.transactions_topic,
            lambda backend: backend.transactions.submit(self.transactional_id, command),
        )
        reply = yield from self.until_answered(ask, 30)
        added[topic.name] = None
        return reply.is_good

    def _write(self, txn: Txn, topic: "Topic", added: dict[str, None]) -> Steps:
        if not (yield from self._add(txn, topic, added)):
            return False
        batch = self._next_batch(topic)
        self.world.chronicle.sent(txn, topic, batch.number)
        reply = yield from self.until_answered(self._send(batch), 30)
        return reply.is_good

    def _commit_offset(self, txn: Txn, added: dict[str, None]) -> Steps:
        world = self.world
        if not (yield from self._add(txn, world.offsets_topic, added)):
            return False
        topic = self.rng.choice(world.metadata.data)
        group = f"chain{self.rng.randrange(2)}"
        value = world.next_number()
        world.chronicle.sent_offset(txn, group, topic, value)
        offset = OffsetToCommit(topic.name, 0, value, -1, "", topic.topic_id)
        command = CommitOffsetsInTransaction(group, self.producer_id, self.epoch, (offset,))

        ask = Ask(
            world.offsets_topic,
            lambda backend: backend.commit_in_transaction(
                self.transactional_id, command, self.version
            ),
            # Offsets have no sequence: version 1 can't tell a late one from the next transaction's.
            repeats_as="TxnOffsetCommit" if self.version >= LEADER_ADDS else "",
        )
        reply = yield from self.until_answered(ask, 30)
        return reply.is_good and reply.value[0].error is ErrorCode.NONE

    def _end(self, txn: Txn, *, is_commit: bool) -> Steps:
        world = self.world
        txn.wish = is_commit
        command = EndTransaction(
            self.transactional_id, self.producer_id, self.epoch, is_commit, self.version
        )

        def judge(reply: Reply) -> None:
            if reply.is_good:
                answer = reply.value.producer_id, reply.value.producer_epoch
                world.promises.tell("ended", txn, is_commit, answer)

        ask = Ask(
            world.transactions_topic,
            lambda backend: backend.transactions.submit(self.transactional_id, command),
            judge,
            # A late end of version 1 can't be told from the end of the next transaction.
            repeats_as="EndTxn" if self.version >= LEADER_ADDS else "",
        )
        tries = 0
        reply = Reply(None)
        while reply.is_retriable and not self.is_over:
            if tries:
                world.reached["EndTxn asked again"] += 1
                yield self.rng.randint(10, 120)
            tries += 1
            reply = yield ask
        if not reply.is_good:
            world.reached["EndTxn refused"] += 1
            return False
        world.reached["commit" if is_commit else "abort"] += 1
        self._take_name(reply.value.producer_id, reply.value.producer_epoch)
        # Version 1: what may still be under way is fenced by a new epoch.
        is_quiet = txn.is_complete and tries == 1 and not self.retries
        return self.version >= LEADER_ADDS or is_quiet
