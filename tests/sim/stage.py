"""A calm world that a test breaks by hand: for scenarios that a person can read.

The same brokers, disks, network and checkers as in a random run, without clients and faults of their own.
"""

from collections.abc import Callable

from sim import batches, keyed
from sim.batches import Entry
from sim.broker import Broker
from sim.ledger import Acknowledged, GroupFacts
from sim.metadata import Topic
from sim.network import Weather
from sim.swarm import Compacting, Mix
from sim.world import World

from dmq.errors import ErrorCode


class Attempt:
    """A produce request of the test's own, and its answer once there is one."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.base = -1
        self.code: ErrorCode | None = None


class Stage:
    """See the module; `topic` exists and has a leader when it is made."""

    def __init__(
        self,
        brokers: int = 3,
        *,
        replicas: int = 3,
        is_async: bool = False,
        min_insync: int = 1,
        seed: int = 1,
        has_topic: bool = True,
        compaction: Compacting | None = None,
        journal_file_bytes: int = 4096,
    ) -> None:
        mix = Mix(
            brokers=brokers,
            replication_factor=replicas,
            topics=0,
            async_rate=float(is_async),
            weather=Weather(delay_ms=(1, 1)),
            sync_ms=(1, 2),
            min_insync=min_insync,
            producers=0,
            consumers=0,
            journal_file_bytes=journal_file_bytes,
            compaction=compaction,
        )
        self.world = World(seed, mix)
        self.world.begin()
        self.run(500)
        if has_topic:
            self.topic = self.create("topic")
            self.until(lambda: self.facts.high >= 0 and self._leaders() != [])

    @property
    def brokers(self) -> list[Broker]:
        return [*self.world.brokers.values()]

    @property
    def facts(self) -> GroupFacts:
        return self.topic.facts

    @property
    def reached(self) -> dict[str, int]:
        return self.world.reached

    def create(self, name: str) -> Topic:
        return self.world.create_topic(name, [*self.world.brokers])

    # ---- time

    def run(self, duration_ms: int) -> None:
        self.world.clock.run(self.world.clock.now + duration_ms)

    def until(self, condition: Callable[[], bool], within_ms: int = 10_000) -> int:
        """How long it took; an assertion if it did not happen."""
        began = self.world.clock.now
        happened = self.world.clock.run(began + within_ms, condition)
        assert happened, [broker.describe(self.topic) for broker in self.brokers]
        return self.world.clock.now - began

    def settle(self) -> None:
        """End every fault; all replicas must become whole and equal, with all that was promised."""
        self.world.heal_all()

    # ---- who

    def _leaders(self) -> list[Broker]:
        found = [b for b in self.brokers if b.is_serving and b.leads(self.topic)]
        return sorted(found, key=lambda b: -b.watched[self.topic.name].epoch)

    @property
    def leader(self) -> Broker:
        """Of the greatest epoch."""
        return self._leaders()[0]

    def others(self, *known: Broker) -> list[Broker]:
        """The other replicas of the topic."""
        numbers = [broker.number for broker in known]
        return [self.world.brokers[n] for n in self.topic.nodes if n not in numbers]

    def await_leader(self, *among: Broker) -> Broker:
        self.until(lambda: any(b in among for b in self._leaders()))
        return self.leader

    # ---- clients

    def produce(self, broker: Broker, count: int = 1, acks: int = -1) -> list[Attempt]:
        """Batches of one record; their answers come as time passes."""
        attempts = []
        for _ in range(count):
            attempt = Attempt(self.world.next_number())
            attempts.append(attempt)
            broker.arrive(self._append, broker, attempt, acks)
        return attempts

    def _append(self, broker: Broker, attempt: Attempt, acks: int) -> None:
        def on_done(code: ErrorCode, base: int) -> None:
            attempt.code, attempt.base = code, base
            if code is ErrorCode.NONE and acks == -1:
                ack = Acknowledged(attempt.number, base, self.world.clock.now)
                self.world.told_success(self.facts, ack)

        is_keyed, number = self.facts.is_compacted, attempt.number
        raw = keyed.make(number) if is_keyed else batches.make(number, 1, 20)
        broker.produce(self.topic, raw, acks, 30_000, on_done)

    def produce_all(self, count: int = 10) -> list[Attempt]:
        """Acknowledged by the leader."""
        attempts = self.produce(self.leader, count)
        self.until(lambda: all(a.code is not None for a in attempts))
        assert [a.code for a in attempts] == [ErrorCode.NONE] * count
        return attempts

    def read(self, broker: Broker, offset: int = 0) -> list[Entry]:
        """What a reader sees, on a leader or a follower."""
        answer = broker.fetch(self.topic, offset, 1 << 20, may_follow=True)
        assert answer is not None
        assert answer.code is ErrorCode.NONE
        entries = batches.parse(answer.raw, keeps=self.facts.is_compacted)
        self.world.shown(self.facts, "the test", offset, entries, answer.high_watermark)
        return entries

    # ---- faults

    def isolate(self, broker: Broker) -> None:
        others = [b.number for b in self.brokers if b is not broker]
        ways = [(broker.number, n) for n in others] + [(n, broker.number) for n in others]
        self.world.network.cut(ways)

    def join(self, broker: Broker) -> None:
        others = [b.number for b in self.brokers if b is not broker]
        ways = [(broker.number, n) for n in others] + [(n, broker.number) for n in others]
        self.world.network.heal(ways)
