"""Clients of a simulated cluster: producers that retry or give up, consumers that remember.

A client guesses who leads, asks, and waits for an answer until its patience ends. Every attempt has a
number of its own, so that the ledger can tell a retry from a duplicate. What a client is told goes to
the checkers at once: it is told by a broker, whether or not the answer arrives.
"""

import random
from typing import TYPE_CHECKING

from sim import batches, keyed
from sim.batches import Entry, RottenBatchError
from sim.ledger import Acknowledged, GroupFacts

from dmq.errors import ErrorCode

if TYPE_CHECKING:
    from sim.broker import Broker, Fetched
    from sim.metadata import Topic
    from sim.world import World

CALM, CALM_AFTER_MS = 50, 5_000
"""So long after the faults are over producers slow down so many times: a group whose new leader has to
catch up over a slow disk first would get more to do faster than it can do it."""
BACKLOG_MAX = 300
"""With so many records not committed producers wait, as they do when a broker no longer reads their
sockets: over slow links nothing would ever be acknowledged within a client's patience."""
RESTING = 10
"""The same while followers that are far behind have to catch up before anything commits."""
PATIENCE_MS = 1500
TRIES_MAX = 6
FETCH_BYTES = 1500
DEFINITE = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Answers that mean: these records are not in the log and never will be."""


class Client:
    """What producers and consumers share: an opinion about who leads."""

    def __init__(self, world: "World", name: str) -> None:
        self.world = world
        self.rng: random.Random = world.rng
        self.name = name
        self.hints: dict[str, int] = {}
        self.is_stopped = False

    def guess(self, topic: "Topic") -> "Broker":
        number = self.hints.get(topic.name)
        if number is None or self.rng.random() < 0.02:
            number = self.hints[topic.name] = self.rng.choice(topic.nodes)
        return self.world.brokers[number]

    def was_wrong(self, topic: "Topic", leader: int | None) -> None:
        """The broker did not lead: ask whom it named, or anybody."""
        if leader is not None and self.rng.random() < 0.8:
            self.hints[topic.name] = leader
        else:
            self.hints.pop(topic.name, None)

    def delay(self) -> int:
        return self.rng.randint(0, 2)


class Request:
    """One attempt of a producer, from sending to the answer or the end of its patience."""

    __slots__ = ("base", "is_answered", "life", "number", "topic", "tries")

    def __init__(self, topic: "Topic", number: int, tries: int) -> None:
        self.topic = topic
        self.number = number
        self.tries = tries
        self.base = -1
        self.life = -1
        self.is_answered = False


class Producer(Client):
    """Sends a batch every now and then, to a topic of its choice; several may be under way."""

    def __init__(self, world: "World", name: str, *, acks: int, retries: bool) -> None:
        super().__init__(world, name)
        self.acks = acks
        self.retries = retries
        self.every_ms = world.mix.produce_every_ms
        world.clock.after(self.rng.randint(0, self.every_ms), self.produce)

    def produce(self) -> None:
        if self.is_stopped:
            return
        faults = self.world.faults
        is_calm = faults.is_over and self.world.clock.now > faults.over_since + CALM_AFTER_MS
        pace = CALM if is_calm else RESTING if faults.is_resting else 1
        self.world.clock.after(self.rng.randint(0, 2 * self.every_ms * pace), self.produce)
        topics = self.world.metadata.data
        if topics:
            self.world.operations += 1
            topic = self.rng.choice(topics)
            if self._backlog(topic) < BACKLOG_MAX:
                self.attempt(topic, 1)

    def _backlog(self, topic: "Topic") -> int:
        """Records that wait for a majority, at the broker that has the most of them."""
        held = [b.watched.get(topic.name) for b in self.world.brokers.values()]
        return max((w.log.end_offset for w in held if w is not None), default=0) - topic.facts.high

    def attempt(self, topic: "Topic", tries: int) -> None:
        request = Request(topic, self.world.next_number(), tries)
        broker = self.guess(topic)
        clock = self.world.clock
        clock.after(self.delay(), broker.arrive, self._serve, broker, request)
        clock.after(PATIENCE_MS, self._lose_patience, request)

    def _serve(self, broker: "Broker", request: Request) -> None:
        """At the broker."""
        request.life = broker.life
        if request.topic.facts.is_compacted:
            raw = keyed.make(request.number)
        else:
            count, filling = self.rng.choice((1, 1, 2, 3)), self.rng.choice((0, 20, 150))
            raw = batches.make(request.number, count, filling)

        def on_done(code: ErrorCode, base: int) -> None:
            self._decided(broker, request, code, base)

        broker.produce(request.topic, raw, self.acks, PATIENCE_MS, on_done)

    def _decided(self, broker: "Broker", request: Request, code: ErrorCode, base: int) -> None:
        """The broker answers; the answer may still get lost."""
        world, topic = self.world, request.topic
        facts = topic.facts
        if code is ErrorCode.NONE and self.acks == -1:
            world.told_success(facts, Acknowledged(request.number, base, world.clock.now))
        elif code in DEFINITE and not topic.is_deleted:
            world.told_failure(facts, request.number, code)
        elif code is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND:
            world.reached["committed below min.insync.replicas"] += 1
        world.answers[code] += 1
        world.clock.after(self.delay(), self._answered, broker, request, code)

    def _answered(self, broker: "Broker", request: Request, code: ErrorCode) -> None:
        if request.is_answered or broker.life != request.life:
            return
        request.is_answered = True
        if code is not ErrorCode.NONE:
            if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                self.was_wrong(request.topic, broker.leader_hint(request.topic))
            self._again(request)

    def _lose_patience(self, request: Request) -> None:
        if not request.is_answered:
            request.is_answered = True
            self.hints.pop(request.topic.name, None)
            self._again(request)

    def _again(self, request: Request) -> None:
        if self.retries and request.tries < TRIES_MAX and not request.topic.is_deleted:
            pause = self.rng.randint(20, 120)
            self.world.clock.after(pause, self.attempt, request.topic, request.tries + 1)


class Consumer(Client):
    """Reads every topic from the beginning, record by record, and knows what it has seen."""

    def __init__(self, world: "World", name: str, *, reads_followers: bool) -> None:
        super().__init__(world, name)
        self.reads_followers = reads_followers
        self.positions: dict[str, int] = {}
        self.seen = 0
        self.every_ms = world.mix.fetch_every_ms
        world.clock.after(self.rng.randint(0, self.every_ms), self.poll)

    def poll(self) -> None:
        if self.is_stopped:
            return
        self.world.clock.after(self.rng.randint(0, 2 * self.every_ms), self.poll)
        topics = self.world.metadata.data
        if topics:
            self.world.operations += 1
            topic = self.rng.choice(topics)
            broker = self.guess(topic)
            if self.reads_followers:
                broker = self.world.brokers[self.rng.choice(topic.nodes)]
            self.world.clock.after(self.delay(), broker.arrive, self._serve, broker, topic)

    def _serve(self, broker: "Broker", topic: "Topic") -> None:
        """At the broker; what it shows is judged now, whether or not it arrives."""
        position = self.positions.get(topic.name, 0)
        broker.list_latest(topic)
        answer = broker.fetch(topic, position, FETCH_BYTES, may_follow=self.reads_followers)
        if answer is None:
            self.hints.pop(topic.name, None)
            return
        if answer.code is ErrorCode.NONE:
            entries = self._judge(broker, topic.facts, position, answer)
            if entries is None:
                return
            self.world.clock.after(self.delay(), self._take, topic, position, entries)
        elif answer.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            if position < answer.log_start:
                self.world.clock.after(self.delay(), self._skip, topic, answer.log_start)
            elif "skew" not in self.world.mix.faults:
                for check in self.world.checkers.sent_back:
                    check(topic.facts, broker.me, position)
        else:
            self.was_wrong(topic, broker.leader_hint(topic))

    def _judge(
        self, broker: "Broker", facts: GroupFacts, position: int, answer: "Fetched"
    ) -> list[Entry] | None:
        try:
            entries = batches.parse(answer.raw, may_be_cut=True, keeps=facts.is_compacted)
        except RottenBatchError:
            # Kafka's consumers check the CRC too; a broker need not on every read.
            self.world.atlas.rot_was_read(broker, facts)
            return None
        if broker.me in facts.damaged and not _fits(facts, position, entries):
            # Offset and epoch of a batch lie outside its CRC.
            self.world.atlas.rot_was_read(broker, facts)
            return None
        self.world.shown(facts, self.name, position, entries, answer.high_watermark)
        return entries

    def _take(self, topic: "Topic", position: int, entries: list[Entry]) -> None:
        if entries and self.positions.get(topic.name, 0) == position:
            self.positions[topic.name] = entries[-1].end
            self.seen += len(entries)

    def _skip(self, topic: "Topic", log_start: int) -> None:
        """Retention took what lies below."""
        position = self.positions.get(topic.name, 0)
        if log_start > position:
            self.positions[topic.name] = log_start
            self.world.reached["reader below the log start"] += 1


def _fits(facts: GroupFacts, position: int, entries: list[Entry]) -> bool:
    """Whether these are what was committed, each where the one before it ends: of a batch that stands
    for what compaction took nothing else is known."""
    at = position
    for entry in entries:
        is_next = entry.base == at or (at == position and entry.base <= at < entry.end)
        if not is_next or entry.end > facts.high or not facts.agrees(entry):
            return False
        at = entry.end
    return True
