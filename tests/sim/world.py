"""A whole cluster in one process, from one seed: the production code on a fake clock, network and disk.

    World(seed).run()    brokers live and die under client load; then a random majority is healed and must
                         make progress; then all are healed and must become equal

Holds what is shared: the clock, the dice, the brokers, the ledger, the checkers. Performs nothing itself:
process.py runs a broker, faults.py breaks things, workload.py asks and judges. The same seed gives the
same run; only a replay writes strings.
"""

import random
from collections import Counter
from typing import Any

from sim import aftermath, probes, swarm
from sim.atlas import Atlas
from sim.batches import Entry, read_log
from sim.broker import Broker
from sim.checkers import BrokenPromiseError, Checkers
from sim.faults import Injector
from sim.ledger import Acknowledged, GroupFacts, Ledger
from sim.metadata import Metadata, Topic
from sim.network import Network
from sim.notes import Note
from sim.observer import Observer
from sim.process import PIECE_BYTES
from sim.story import CALM, FAULTS_MIN, Story, no_collections
from sim.swarm import Mix
from sim.workload import Consumer, Producer

from dmq.broker.multiraft import codec
from dmq.broker.multiraft.frames import Frame
from dmq.errors import ErrorCode
from dmq.raft.quorum import majority

PROGRESS_MS = 10_000
"""A healed majority must commit a new write within this, once it has what its longest log has."""
SETTLE_MS = 60_000
"""Everything must be equal within this after all faults are over, once all have what one of them has."""
TOLD_MIN = 50
"""So many batches at least are acknowledged to producers, and shown to consumers."""
NOTICE_MS = 1000
"""Whoever does not answer any more is known to be gone within this."""
PROBE_MS = 100
DURATION_MAX_MS = 120_000
PIECE_MS = 10
"""A piece of a log is sent, taken and acknowledged within this in calm weather, but for its sync."""


class World(Story):
    """See the module."""

    def __init__(self, seed: int, mix: Mix | None = None, *, is_replay: bool = False) -> None:
        super().__init__(seed, random.Random(seed), is_replay=is_replay)
        self.mix = mix or swarm.draw(seed)
        self.ledger = Ledger()
        self.checkers = self.new_checkers()
        self.answers: Counter[ErrorCode] = Counter()
        self.network = Network(self.clock, self.rng, self.mix.weather)
        if self.mix.encodes:
            self.network.copy = _as_bytes
        if is_replay:
            self.network.trace = self.say
        self.observer = Observer(self, self.checkers)
        self.metadata = Metadata(self)
        self.atlas = Atlas(self)
        self.brokers: dict[int, Broker] = {}
        for number in range(1, self.mix.brokers + 1):
            self.brokers[number] = broker = Broker(self, number)
            self.network.add(broker)
        self.faults = Injector(self)
        self.clients: list[Producer | Consumer] = []

    # ---- what others need

    def create_topic(self, name: str, numbers: list[int]) -> Topic:
        factor = min(self.mix.replication_factor, len(numbers))
        nodes = self.rng.sample(numbers, factor)
        is_async = self.rng.random() < self.mix.async_rate
        compaction = self.mix.compaction
        is_compacted = compaction is not None and self.rng.random() < compaction.rate
        kinds = ("async" if is_async else "sync", *(["compacted"] if is_compacted else []))
        self.say("create", name, "on", nodes, *kinds)
        topic = self.metadata.create(name, nodes, is_async=is_async, is_compacted=is_compacted)
        if compaction is not None and "skew" not in self.mix.faults:
            # Brokers' clocks are a second apart, and a tombstone has its time by that of one of them.
            apart_ms = 1000 * (self.mix.brokers - 1)
            topic.facts.tombstones_ms = max(0, compaction.delete_retention_ms - apart_ms)
        return topic

    def new_checkers(self) -> Checkers:
        """The promises of this kind of world."""
        return Checkers()

    def is_idle(self) -> bool:
        return min(self.ledger.acknowledged, self.ledger.shown) < TOLD_MIN

    def new_backend(self, broker: Broker) -> Any:
        """What a broker's process runs on its node; None: nothing but replicas."""
        return None

    # ---- what clients were told

    def told_success(self, facts: GroupFacts, ack: Acknowledged) -> None:
        self.ledger.acknowledged += 1
        for check in self.checkers.acknowledged:
            check(facts, ack)

    def told_failure(self, facts: GroupFacts, number: int, code: ErrorCode) -> None:
        for check in self.checkers.denied:
            check(facts, number)

    def shown(
        self, facts: GroupFacts, reader: str, position: int, entries: list[Entry], high: int
    ) -> None:
        self.ledger.shown += len(entries)
        for check in self.checkers.shown:
            check(facts, reader, position, entries, high)

    # ---- a run

    def run(self) -> "World":
        """Raises BrokenPromiseError, or whatever production code raised."""
        before = probes.counts.copy()
        try:
            self._run()
        finally:
            self.reached.update(probes.counts - before)
        return self

    def _run(self) -> None:
        with no_collections():
            self.begin()
            self.clock.run(self.mix.duration_ms)
            while self.is_weak(self.faults.count) and self.clock.now < DURATION_MAX_MS:
                if self.faults.count >= FAULTS_MIN and self.is_idle():
                    self.faults.is_resting, self.network.weather = True, CALM
                self.clock.run(self.clock.now + 1000)
            self.heal_majority()
            self.heal_all()

    def begin(self) -> None:
        self.say("seed", self.seed, self.mix)
        for broker in self.brokers.values():
            broker.boot()
        for index in range(self.mix.topics):
            self.create_topic(f"topic{index + 1}", [*self.brokers])
        self.metadata.start_reconciling()
        rng, mix = self.rng, self.mix
        for index in range(mix.producers):
            acks = -1 if rng.random() < mix.acks_all_rate else 1
            retries = rng.random() < mix.retry_rate
            if index == mix.producers - 1 and not self._are_acks_wanted():
                acks = -1  # Nobody else asks for a promise that could be broken.
            self.clients.append(Producer(self, f"producer{index}", acks=acks, retries=retries))
        for index in range(mix.consumers):
            follows = rng.random() < mix.follower_reads
            self.clients.append(Consumer(self, f"consumer{index}", reads_followers=follows))
        self.faults.start()

    def _are_acks_wanted(self) -> bool:
        return any(isinstance(client, Producer) and client.acks == -1 for client in self.clients)

    def heal_majority(self) -> None:
        """Heal a random majority, leave the rest as it is: those who can must make progress."""
        self.faults.end()
        numbers = [*self.brokers]
        self.rng.shuffle(numbers)
        core = sorted(numbers[: len(numbers) // 2 + 1])
        self.say("heal", core)
        self.network.weather = CALM
        self.network.heal_all(core)
        rest = [number for number in numbers if number not in core]
        if self.rng.random() < 0.5:
            self.network.cut([(a, b) for a in core for b in rest])
            self.network.cut([(b, a) for a in core for b in rest])
        for number in core:
            self.brokers[number].cure()
        self._must_progress(set(core), PROGRESS_MS)

    def _must_progress(self, inside: set[int], within_ms: int) -> None:
        """Every topic with a quorum inside commits something new, and has one where it is to be: its
        leader may move it there before it notices who does not answer any more. A step on the way there
        may need one of those, too: a dead voter goes before its successor comes."""
        waiting = {
            topic.name: topic.facts.high
            for topic in self.metadata.live
            if self.atlas.has_quorum(topic.facts, inside)
            and len(inside.intersection(topic.nodes)) >= majority(len(topic.nodes))
        }
        judged, since = len(waiting), self.clock.now
        within_ms += self._catch_up_ms([self.metadata.topics[name] for name in waiting], inside)
        until = since + within_ms

        def is_done() -> bool:
            for name in [*waiting]:
                topic = self.metadata.topics[name]
                if topic.facts.high > waiting[name] or topic.facts.is_forfeited:
                    del waiting[name]
            return not waiting

        self._probe(waiting, until)
        if not self.clock.run(since + NOTICE_MS, is_done):
            for name in [*waiting]:
                if not self.atlas.has_quorum(self.metadata.topics[name].facts, inside):
                    self.reached["a step that needs who is gone"] += 1
                    del waiting[name]
        if not self.clock.run(until, is_done):
            raise BrokenPromiseError(
                f"liveness: {sorted(waiting)} committed nothing new in {within_ms} ms, "
                f"though {sorted(inside)} are well: {self.states(waiting)}"
            )
        self.reached["progress"] += judged
        self.slowest_ms = self.clock.now - since

    def _catch_up_ms(self, topics: list[Topic], inside: set[int]) -> int:
        """How long those inside may take to get what one of them has and another may lack.

        A new leader commits nothing before that. Pieces are tiny here: where only one may be under
        way, a slow disk syncs each by itself, and clients write faster than that.
        """
        brokers = [self.brokers[number] for number in inside]
        pieces = 0
        for topic in topics:
            commit = min(broker.commit_offset(topic) for broker in brokers)
            lacking = max(broker.bytes_beyond(topic, commit) for broker in brokers)
            # Pieces are whole batches: any two neighbours have more than one piece may have.
            pieces = max(pieces, 2 * lacking // PIECE_BYTES)
        return pieces * (self.mix.sync_ms[1] + PIECE_MS)

    def _probe(self, waiting: dict[str, int], until: int) -> None:
        """Ask every broker to append, again and again, to the topics that must move."""
        if self.clock.now >= until or not waiting:
            return
        for name in waiting:
            for broker in self.brokers.values():
                broker.arrive(broker.probe, self.metadata.topics[name])
        self.clock.after(PROBE_MS, self._probe, waiting, until)

    def states(self, names: Any) -> list[str]:
        return [
            broker.describe(self.metadata.topics[name])
            for name in names
            for broker in self.brokers.values()
        ]

    def heal_all(self) -> None:
        """No fault is left: every replica is whole, a voter, and equal to every other one."""
        self.say("heal all")
        self.network.heal_all([*self.brokers])
        for broker in self.brokers.values():
            broker.cure()
        for client in self.clients:
            if isinstance(client, Producer):
                client.is_stopped = True
        topics = [topic for topic in self.metadata.live if self.atlas.can_recover(topic.facts)]
        self.reached["left to an operator"] += len(self.metadata.live) - len(topics)
        within_ms = SETTLE_MS + self._catch_up_ms(topics, set(self.brokers))
        if not self.clock.run(self.clock.now + within_ms, lambda: self._is_settled(topics)):
            names = [topic.name for topic in topics if not self._is_topic_settled(topic)]
            raise BrokenPromiseError(
                f"liveness: {names} did not settle in {within_ms} ms: {self.states(names)}"
            )
        self.reached["settled"] += 1
        for topic in topics:
            self._check_settled(topic)
        aftermath.must_write(self, topics)
        aftermath.must_read(self, topics)

    def _is_settled(self, topics: list[Topic]) -> bool:
        if self.clock.events % 16:
            return False  # Looking costs more than what happens between two looks.
        return all(self._is_topic_settled(topic) for topic in topics)

    def _is_topic_settled(self, topic: Topic) -> bool:
        target = self.metadata.target(topic)
        ends = []
        for voter in target:
            broker = self.brokers[voter.node]
            end = broker.settled_end(topic, target)
            if end is None:
                return False
            ends.append(end)
        return len(set(ends)) == 1

    def _check_settled(self, topic: Topic) -> None:
        for voter in self.metadata.target(topic):
            watched = self.brokers[voter.node].watched[topic.name]
            log = watched.log
            if voter in topic.facts.damaged:
                self.reached["rot that nobody read"] += 1
                continue
            facts = topic.facts
            entries = read_log(log, log.log_start, log.end_offset, keeps=facts.is_compacted)
            for check in self.checkers.settled:
                check(facts, voter, entries, log.log_start, log.end)
            if facts.is_compacted:
                self.observer.check_compacted(watched, log.log_start, log.end_offset, entries)


def _as_bytes(frame: Frame | Note) -> Frame | Note:
    """The frame as its receiver gets it over a real connection; notes are bytes already."""
    return frame if isinstance(frame, Note) else codec.decode(codec.encode(frame))
