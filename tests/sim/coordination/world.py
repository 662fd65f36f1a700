"""A simulated cluster with coordinators: groups, idempotent and transactional producers, their readers.

The same brokers, faults and checkers as in every world; on each broker runs what production runs above
its replicas (backend.py). Members and producers die and are replaced while the seed lasts. In the end
all clients come to rest, and what was promised to them is looked for.
"""

import random
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from sim import swarm
from sim.batches import Entry
from sim.broker import Broker
from sim.checkers import ALL as REPLICATION
from sim.checkers import BrokenPromiseError, Checker, Checkers
from sim.coordination import probes as probes
from sim.coordination.backend import Backend
from sim.coordination.checkers import Promises
from sim.coordination.chronicle import Chronicle
from sim.coordination.members import ClassicMember, ConsumerMember, Member, OffsetReader
from sim.coordination.producers import IdempotentProducer, TransactionalProducer
from sim.coordination.readers import CommittedReader, NearReader
from sim.coordination.scripts import Script
from sim.ledger import GroupFacts
from sim.metadata import Topic
from sim.swarm import Mix
from sim.world import SETTLE_MS, World

from dmq.broker import producer_loading, reading_along
from dmq.broker.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC

NURSE_MS = 200
REST_MS = 30_000
"""Within this after all faults every client has come to an end, and every transaction is decided."""


@dataclass(frozen=True, slots=True)
class Coordination:
    """What clients of coordinators do in a seed."""

    idempotent: int = 2
    transactional: int = 2
    members: tuple[int, int] = (2, 2)
    """Of a classic group, and of one of the consumer protocol."""
    mixed: int = 0
    """Of a group of both."""
    readers: int = 2
    pause_ms: int = 30
    repeats: float = 0.15
    """Requests that are delivered twice."""
    dawdles: float = 0.1
    """Steps of a transaction that take long."""
    deaths: float = 0.05
    """Clients that die, per look at each."""
    zombies: float = 0.05
    """Names that another instance takes over, per look."""
    gap_ms: int = 0
    """At most so long between two requests that a client sends without waiting."""


def draw_coordination(seed: int) -> Coordination:
    """What a seed's clients do."""
    rng = random.Random(f"coordination {seed}")
    return Coordination(
        idempotent=rng.choice((1, 2)),
        transactional=rng.choice((1, 2, 3)),
        members=(rng.choice((0, 2, 3)), rng.choice((0, 2, 3))),
        mixed=rng.choice((0, 0, 3)),
        readers=rng.choice((1, 2)),
        pause_ms=rng.choice((20, 60)),
        repeats=rng.choice((0.0, 0.1, 0.3)),
        dawdles=rng.choice((0.0, 0.1, 0.3)),
        deaths=rng.choice((0.0, 0.01, 0.05)),
        zombies=rng.choice((0.0, 0.01, 0.03)),
        gap_ms=rng.choice((0, 0, 50)),
    )


def draw_mix(seed: int) -> Mix:
    """A seed's world, with few clients of the plain kind."""
    mix = swarm.draw(seed, may_compact=False)
    return replace(mix, producers=1, consumers=1, trim_keeps=40, topics=max(2, mix.topics))


class CoordinatorWorld(World):
    """See the module."""

    def __init__(
        self,
        seed: int,
        mix: Mix | None = None,
        *,
        is_replay: bool = False,
        coordination: Coordination | None = None,
    ) -> None:
        self.coordination = coordination or draw_coordination(seed)
        self._producer_ids = 0
        self._names = 0
        self.scripts: list[Script] = []
        super().__init__(seed, mix or draw_mix(seed), is_replay=is_replay)
        self.chronicle = Chronicle(self)
        self.promises = Promises(self)
        self.group_names = ["chain0", "chain1"]
        self._kinds: list[tuple[type[Member], str]] = []

    def _run(self) -> None:
        with (  # Small enough that leaders read who wrote to their logs in steps, followers as well.
            patch.multiple(producer_loading, INLINE_BYTES=1500, LOAD_BYTES=1000),
            patch.multiple(reading_along, AT_ONCE_BYTES=500, LOAD_BYTES=1000),
        ):
            super()._run()

    def new_checkers(self) -> Checkers:
        return Checkers((*REPLICATION, _reporter(self)))

    def new_backend(self, broker: Broker) -> Any:
        return Backend(broker)

    def next_producer_id(self) -> int:
        self._producer_ids += 1
        return 1000 + self._producer_ids

    # ---- clients

    def begin(self) -> None:
        super().begin()
        numbers = [*self.brokers]
        self.offsets_topic = self._create_internal(OFFSETS_TOPIC, numbers)
        self.transactions_topic = self._create_internal(TRANSACTIONS_TOPIC, numbers)
        plan = self.coordination
        for index in range(plan.idempotent):
            self._start(IdempotentProducer(self, f"idempotent{index}"))
        for index in range(plan.transactional):
            version = 1 + (index + self.seed) % 2
            self._start(TransactionalProducer(self, f"txn{index}-v{version}", version))
        for index in range(plan.readers):
            self._start(CommittedReader(self, f"reader{index}"))
            self._start(NearReader(self, f"near{index}"))
        self._start(OffsetReader(self, "offsets"))
        self._begin_groups(plan)
        self.clock.after(NURSE_MS, self._nurse)

    def _create_internal(self, name: str, numbers: list[int]) -> Topic:
        factor = min(self.mix.replication_factor, len(numbers))
        return self.metadata.create(name, self.rng.sample(numbers, factor), is_async=False)

    def _begin_groups(self, plan: Coordination) -> None:
        classic, consumer = plan.members
        self._kinds += [(ClassicMember, "classic")] * classic
        self._kinds += [(ConsumerMember, "consumer")] * consumer
        for index in range(plan.mixed):
            self._kinds.append(((ClassicMember, ConsumerMember)[index % 2], "mixed"))
        self.group_names += sorted({group for _, group in self._kinds})
        for kind, group in self._kinds:
            self._new_member(kind, group)

    def _new_member(self, kind: type[Member], group: str) -> None:
        self._names += 1
        self._start(kind(self, f"{group}{self._names}", group))

    def _start(self, script: Script) -> None:
        self.scripts.append(script)

    def _nurse(self) -> None:
        """Some clients die; whoever is over is replaced; names are taken over."""
        plan, rng = self.coordination, self.rng
        if self.faults.is_over:
            return
        self.clock.after(NURSE_MS, self._nurse)
        for script in [*self.scripts]:
            mortal = isinstance(script, Member | TransactionalProducer)
            if mortal and not script.is_over and rng.random() < plan.deaths:
                self.say(script.name, "dies")
                self.reached["client died"] += 1
                script.die()
            if isinstance(script, TransactionalProducer):
                takes_over = rng.random() < plan.zombies and self._instances(script) < 2
                if takes_over:
                    self._start(TransactionalProducer(self, script.name, script.version))
                    self.reached["name taken over"] += 1
            if script.is_over:
                self._replace(script)

    def _instances(self, script: TransactionalProducer) -> int:
        return sum(each.name == script.name and not each.is_over for each in self.scripts)

    def _replace(self, script: Script) -> None:
        self.scripts.remove(script)
        if isinstance(script, TransactionalProducer):
            if not self._instances(script):
                self._start(TransactionalProducer(self, script.name, script.version))
        elif isinstance(script, Member):
            self._new_member(type(script), script.group)

    # ---- the end

    def heal_all(self) -> None:
        """Clients rest before replicas are compared."""
        self.say("rest")
        self.network.heal_all([*self.brokers])
        for broker in self.brokers.values():
            broker.cure()
        for script in self.scripts:
            script.is_stopped = True
        is_whole = all(self.atlas.can_recover(topic.facts) for topic in self.metadata.live)
        if is_whole:
            self._rest()
        super().heal_all()
        if is_whole:
            self._show_everywhere()

    def _rest(self) -> None:
        if not self.clock.run(self.clock.now + REST_MS, self._are_at_rest):
            busy = [s.name for s in self.scripts if s.is_stopped and self._is_busy(s)]
            raise BrokenPromiseError(
                f"liveness: after {REST_MS} ms without faults {busy} are not done, and "
                f"{self._open_topics()} have open transactions: "
                f"{self.states([OFFSETS_TOPIC, TRANSACTIONS_TOPIC])}"
            )
        self.reached["clients at rest"] += 1
        self.promises.tell("settled")

    def _show_everywhere(self) -> None:
        """Readers get all of it from every replica."""
        if not self.clock.run(self.clock.now + SETTLE_MS, lambda: not self._hidden()):
            raise BrokenPromiseError(f"liveness: {self._hidden()} show less than is decided")

    def _hidden(self) -> list[str]:
        topics = [each for each in self.metadata.data if not self.chronicle.is_blind(each)]
        return [
            f"{topic} at broker {broker.number}"
            for topic in topics
            for broker in self.brokers.values()
            if not broker.backend.is_all_decided(topic)
        ]

    def _is_busy(self, script: Script) -> bool:
        return isinstance(script, Member | IdempotentProducer | TransactionalProducer) and (
            not script.is_over
        )

    def _are_at_rest(self) -> bool:
        if self.clock.events % 64:
            return False
        return not any(map(self._is_busy, self.scripts)) and not self._open_topics()

    def _open_topics(self) -> list[str]:
        return [
            name
            for name, producers in self.chronicle.open.items()
            if producers
            and not self.metadata.topics[name].is_deleted
            and not self.chronicle.is_blind(self.metadata.topics[name])
        ]


def _reporter(world: CoordinatorWorld) -> type[Checker]:
    """Tells the chronicle what is committed, as the first replica that has it knows."""

    class Reporter(Checker):
        name = "chronicle"

        def first_committed(self, group: GroupFacts, entry: Entry) -> None:
            world.chronicle.committed(group, entry)

    return Reporter


__all__ = ["SETTLE_MS", "CoordinatorWorld"]
