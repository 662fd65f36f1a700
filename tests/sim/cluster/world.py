"""A cluster of whole brokers from one seed: founding, load and faults, healing, and the reckoning.

The metadata are a Raft group on these very brokers: topics are placed, moved and deleted, brokers join
and leave by its records, and whoever leads a partition says when a move is done. What the other kinds
of worlds ask an oracle happens here. Same seed, same run.
"""

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch
from uuid import UUID

from sim.checkers import BrokenPromiseError
from sim.cluster.clients import Reader, Writer
from sim.cluster.majorities import MajorityOnly
from sim.cluster.operators import Operator
from sim.cluster.process import Member, new_id_from
from sim.cluster.truths import Truths
from sim.network import Network, Weather
from sim.story import CALM, Story, no_collections

from dmq.broker import presence
from dmq.machines.state import ClusterState
from dmq.machines.targets import group_target, metadata_voters
from dmq.raft.quorum import majority
from dmq.types import METADATA_TOPIC_ID

FOUND_MS = 20_000
LOAD_MS = 6_000
LOAD_MAX_MS = 60_000
SETTLE_MS = 90_000
"""Everything must be where it shall be within this after all faults are over."""
LOOK_MS = 100
FAULTS: dict[str, float] = {
    "kill": 3.0,
    "power_cut": 2.0,
    "power_cut_all": 0.3,
    "pause": 2.0,
    "isolate": 2.0,
    "cut_one_way": 1.5,
    "reset_link": 1.0,
    "wipe": 6.0,
}


class Faults:
    """One after the other, each with its own end."""

    def __init__(self, world: "ClusterWorld") -> None:
        self._world = world
        self.count = 0
        self.pairs: dict[tuple[str, str], None] = {}
        rng = world.rng
        self._weights = {
            name: weight * rng.choice((0.5, 1.0, 2.0))
            for name, weight in FAULTS.items()
            if name == "kill" or rng.random() < 0.7
        }
        self._every_ms = rng.choice((80, 150, 250))
        self._trouble_max = rng.choice((1, 1, 1, 2, 9))
        self._length_ms = rng.choice((300, 1000, 3000))

    def start(self) -> None:
        self._world.clock.after(self._every_ms, self._next)

    def _next(self) -> None:
        world = self._world
        if world.is_quiet:
            return
        world.clock.after(world.rng.randint(1, 2 * self._every_ms), self._next)
        (name,) = world.rng.choices([*self._weights], [*self._weights.values()])
        well = [m for m in world.staying if world.is_well(m.number)]
        if not well or len(world.staying) - len(well) >= self._trouble_max:
            return
        victim = world.rng.choice(well)
        world.say("fault:", name, victim)
        if getattr(self, f"_{name}")(victim) is not False:
            self.count += 1
            world.happened[name] += 1

    def _later(self, action: Callable[..., None], *args: Any) -> None:
        self._world.clock.after(self._world.rng.randint(20, self._length_ms), action, *args)

    def _kill(self, victim: Member) -> None:
        victim.kill()
        self._later(victim.boot)

    def _power_cut(self, victim: Member) -> None:
        victim.power_cut()
        self._later(victim.boot)

    def _power_cut_all(self, victim: Member) -> None:
        for member in self._world.staying:
            member.power_cut()
            self._later(member.boot)

    def _pause(self, victim: Member) -> None:
        victim.pause()
        self._later(victim.resume)

    def _isolate(self, victim: Member) -> None:
        others = [n for n in self._world.members if n != victim.number]
        ways = [(victim.number, n) for n in others] + [(n, victim.number) for n in others]
        self._cut(ways)

    def _cut_one_way(self, victim: Member) -> None:
        other = self._world.rng.choice([n for n in self._world.members if n != victim.number])
        self._cut([(victim.number, other)])

    def _cut(self, ways: list[tuple[int, int]]) -> None:
        self._world.network.cut(ways)
        self._later(self._world.network.heal, ways)

    def _reset_link(self, victim: Member) -> None:
        other = self._world.rng.choice([n for n in self._world.members if n != victim.number])
        self._world.network.reset(victim.number, other)

    def _wipe(self, victim: Member) -> bool | None:
        """Only of a disk whose loss every group survives: more is nobody's promise."""
        world = self._world
        others = [member for member in world.staying if world.may_lose(member)]
        if not others:
            return False
        victim = world.rng.choice(others)
        world.say("wiped:", victim)
        world.reached["wiped"] += 1
        victim.wipe()
        self._later(victim.boot)
        return None


DOWN_MS = 1500
"""Who was silent for so long is down: brokers are away for seconds here, and nobody orders anything for
a partition whose brokers may be up."""


class ClusterWorld(Story):
    """See the module."""

    def __init__(self, seed: int, mix: Any = None, *, is_replay: bool = False) -> None:
        super().__init__(seed, random.Random(f"cluster {seed}"), is_replay=is_replay)
        self.truths = Truths()
        self.is_founded = False
        self.is_quiet = False
        self.retiring = 0
        delay_ms = self.rng.choice(((0, 1), (0, 2), (1, 10)))
        self.sync_ms: tuple[int, int] = self.rng.choice(((0, 1), (1, 4), (1, 20)))
        self.network = Network(self.clock, self.rng, Weather(delay_ms=delay_ms))
        self.members: dict[int, Member] = {}
        for _ in range(self.rng.choice((3, 3, 4, 5))):
            self.add_member()
        self.faults = Faults(self)
        self._readers: list[Reader] = []

    # ---- what others need

    @property
    def ledger(self) -> SimpleNamespace:
        return SimpleNamespace(acknowledged=self.truths.acknowledged)

    def new_id(self) -> UUID:
        return new_id_from(self.rng)

    def add_member(self) -> Member:
        number = max(self.members, default=0) + 1
        self.members[number] = member = Member(self, number)
        self.network.add(member)
        return member

    @property
    def staying(self) -> list[Member]:
        """Brokers that did not leave the cluster."""
        return [member for member in self.members.values() if not member.has_left]

    def any_serving(self) -> Member | None:
        serving = [m for m in self.members.values() if m.is_serving and not m.is_paused]
        return self.rng.choice(serving) if serving else None

    def within_reach(self, member: Member) -> list[Member]:
        """The others, in any order, to whom and from whom something can be sent."""
        ways = self.network.ways
        found = [
            other
            for other in self.members.values()
            if other is not member
            and not ways[member.number, other.number].cuts
            and not ways[other.number, member.number].cuts
        ]
        self.rng.shuffle(found)
        return found

    def is_well(self, number: int) -> bool:
        member = self.members[number]
        cuts = any(way.cuts for pair, way in self.network.ways.items() if number in pair)
        return member.is_serving and not member.is_paused and not cuts

    def may_lose(self, victim: Member) -> bool:
        """Whether all groups have a majority, and all that they committed, without this disk."""
        for member in self.staying:
            if not self.is_well(member.number):
                return False
        leader = self._metadata_leader()
        if leader is None or leader.parts.machine.state.moving:
            return False
        for member in self.staying:
            for replica in member.parts.node.replicas.values():
                core = replica.core
                if core.is_leader and not self._survives(replica, victim):
                    return False
                if core.leader is None or core.is_recovering:
                    return False
        return True

    def _survives(self, replica: Any, victim: Member) -> bool:
        core = replica.core
        if core.commit != core.end or sorted(core.voters) != sorted(replica.target):
            return False  # Voters change: one who becomes the second of two is needed from then on.
        others = 0
        for voter in core.voters:
            member = self.members[voter.node]
            if member is victim or member.parts.node.me != voter:
                continue
            held = member.parts.node.replica(*replica.key)
            others += held is not None and held.core.durable_end >= core.end
        return others >= majority(len(core.voters))

    def _metadata_leader(self) -> Member | None:
        leaders = [m for m in self.staying if m.is_up and m.parts.metadata.replica.is_leader]
        return leaders[0] if len(leaders) == 1 else None

    # ---- a run

    def run(self) -> "ClusterWorld":
        """Raises BrokenPromiseError, or whatever production code raised."""
        with no_collections(), patch.object(presence, "DOWN_MS", DOWN_MS):
            self._found()
            self._load()
            self.is_quiet = True
            MajorityOnly(self).run()
            self._settle()
        return self

    def _found(self) -> None:
        for member in [*self.members.values()]:
            member.boot()
        if not self.clock.run(FOUND_MS, lambda: all(m.is_serving for m in self.members.values())):
            raise BrokenPromiseError(f"no cluster of {len(self.members)} within {FOUND_MS} ms")
        self.say("founded")

    def _load(self) -> None:
        begun = self.clock.now
        for _ in range(self.rng.randint(2, 4)):
            Writer(self, 20)
        self._readers = [Reader(self, 60, reads_followers=follows) for follows in (False, True)]
        Operator(self, self.rng.choice((60, 120, 250)))
        self.faults.start()
        self.clock.run(begun + LOAD_MS)
        while self.is_weak(self.faults.count) and self.clock.now < begun + LOAD_MAX_MS:
            self.clock.run(self.clock.now + 1000)

    def _settle(self) -> None:
        """No fault is left: everything must become what the metadata say."""
        self.say("heal all")
        self.network.weather = CALM
        self.network.heal_all([*self.members])
        for member in self.staying:
            member.resume()
            member.boot()
        until = self.clock.now + SETTLE_MS
        problem = "nothing was looked at"
        while self.clock.now < until:
            self.clock.run(self.clock.now + LOOK_MS)
            problem = self._unsettled()
            if not problem:
                break
        else:
            raise BrokenPromiseError(f"liveness: not settled in {SETTLE_MS} ms: {problem}")
        self.reached["settled"] += 1
        self._reckon()

    def _reckon(self) -> None:
        """Every promise is kept, and every reader gets to the end of what is judged."""
        self.truths.check(self.staying)
        for topic, partition in self.truths.judged:
            holders = [m for m in self.staying if m.parts.node.replica(topic.topic_id, partition)]
            for reader in self._readers:
                for member in self.rng.sample(holders, len(holders)):
                    reader.read_to_the_end(member, topic, partition)
        self.reached["record acknowledged"] += self.truths.acknowledged
        self.reached["record judged"] += self.truths.judged_records

    def _unsettled(self) -> str:
        """What is not as it shall be; nothing: all is."""
        away = [member for member in self.staying if not member.is_serving]
        leader = self._metadata_leader()
        if away or leader is None:
            return f"{away} do not serve, the metadata are led by {leader}"
        state = leader.parts.machine.state
        return self._unsettled_metadata(leader) or self._unsettled_topics(state)

    def _unsettled_metadata(self, leader: Member) -> str:
        state, host = leader.parts.machine.state, leader.parts.metadata
        core = host.replica.core
        live = [member.number for member in self.staying]
        wanted = metadata_voters(state, core.voters, live, leader.number).voters
        if sorted(wanted) != sorted(core.voters):
            return f"the metadata have the voters {core.voters} instead of {wanted}"
        for member in self.staying:
            if member.parts.metadata.committed != host.replica.log_end_offset:
                return f"{member} does not know the last metadata"
        if state.moving:
            return f"partitions are on the move: {[*state.moving.values()]}"
        return ""

    def _unsettled_topics(self, state: ClusterState) -> str:
        for topic in state.topics.values():
            for index in range(len(topic.partitions)):
                problem = self._unsettled_partition(state, topic.topic_id, index)
                if problem:
                    return f"{topic.name}-{index}: {problem}"
        for member in self.staying:
            for replica in member.parts.node.replicas.values():
                topic_id, index = replica.key
                if topic_id != METADATA_TOPIC_ID and state.partition(topic_id, index) is None:
                    return f"{member} keeps {replica.key}, which is no more"
        return ""

    def _unsettled_partition(self, state: ClusterState, topic_id: UUID, index: int) -> str:
        placed = state.partition(topic_id, index)
        assert placed is not None
        target = group_target(state, topic_id, index)
        held = {
            member.number: replica
            for member in self.staying
            if (replica := member.parts.node.replica(topic_id, index)) is not None
        }
        if sorted(held) != sorted(placed.replicas):
            return f"it is on {sorted(held)} instead of {placed.replicas}"
        leaders = [replica for replica in held.values() if replica.is_leader]
        if len(leaders) != 1:
            return f"{len(leaders)} brokers lead it"
        core = leaders[0].core
        if sorted(core.voters) != sorted(target):
            return f"its voters are {core.voters} instead of {target}"
        if any(r.core.commit != core.end or r.log.stable_end != core.end for r in held.values()):
            return "its replicas are not equal"
        return ""
