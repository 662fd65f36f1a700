"""Only a majority of brokers is healed, the rest stays broken: what has a quorum inside must go on.

If the metadata have one, every broker inside must get to serve. Every judged partition that has one among
brokers that serve must commit a new write in time. A broker that starts where the metadata have no leader
is not registered and opens nothing: it counts for no partition.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from sim.checkers import BrokenPromiseError
from sim.cluster.clients import Writer
from sim.cluster.truths import KnownTopic
from sim.story import CALM

from dmq.machines.targets import group_target
from dmq.raft.quorum import majority

if TYPE_CHECKING:
    from sim.cluster.process import Member
    from sim.cluster.world import ClusterWorld

PROGRESS_MS = 10_000
NOTICE_MS = 1000
"""Whoever does not answer any more is known to be gone within this."""
LOOK_MS = 100


class MajorityOnly:
    """See the module; one phase of a run."""

    def __init__(self, world: "ClusterWorld") -> None:
        self._world = world
        staying = world.staying
        self._inside = world.rng.sample(staying, majority(len(staying)))
        self._rest = [member for member in staying if member not in self._inside]
        self._writer = Writer(world, LOOK_MS)
        self._first = 0

    def run(self) -> None:
        """Raises BrokenPromiseError."""
        world = self._world
        world.say("heal only", *self._inside)
        self._break()
        world.network.weather = CALM
        world.network.heal_all([member.number for member in self._inside])
        for member in self._inside:
            member.resume()
            member.boot()
        world.clock.run(world.clock.now + NOTICE_MS)
        self._must_serve()
        self._must_progress()
        for member in self._rest:
            member.is_kept_broken = False

    def _break(self) -> None:
        """Each in its way, and so that nothing that was planned before mends it."""
        world = self._world
        for member in self._rest:
            member.is_kept_broken = True
            how = world.rng.choice(("dead", "without power", "paused", "cut off"))
            world.say(member, "stays", how)
            if how == "dead":
                member.kill()
            elif how == "without power":
                member.power_cut()
            elif how == "paused":
                member.pause()
            inside = [other.number for other in self._inside]
            world.network.cut([(member.number, other) for other in inside])
            world.network.cut([(other, member.number) for other in inside])

    # ---- who must

    def _has_quorum(self, key: Any, members: "Iterable[Member]") -> bool:
        """Whether, whichever of the lists of voters that they know counts, most of it is here."""
        replicas = [(member, member.parts.node.replica(*key)) for member in members]
        well = {
            member.parts.node.me
            for member, replica in replicas
            if replica is not None and not replica.core.is_recovering
        }
        known = [replica.core.voters for _, replica in replicas if replica is not None]
        return bool(well) and all(
            voters and len(well.intersection(voters)) >= majority(len(voters)) for voters in known
        )

    def _must_serve(self) -> None:
        world = self._world
        up = [member for member in self._inside if member.is_up]
        if not up or not self._has_quorum(up[0].parts.metadata.replica.key, up):
            world.reached["majority without metadata"] += 1
            return
        if not world.clock.run(
            world.clock.now + PROGRESS_MS,
            lambda: all(member.is_serving or member.has_left for member in self._inside),
        ):
            away = [member for member in self._inside if not member.is_serving]
            raise BrokenPromiseError(
                f"liveness: {away} do not serve in {PROGRESS_MS} ms, though the metadata have a "
                f"quorum among {self._inside}"
            )
        world.reached["majority serves"] += 1

    @property
    def _serving(self) -> "list[Member]":
        return [member for member in self._inside if member.is_serving]

    def _counts(self, topic: KnownTopic, partition: int) -> bool:
        """It has a quorum here, and has one where it is to be: its leader may move it there before it
        notices who does not answer any more."""
        serving = self._serving
        if not self._has_quorum((topic.topic_id, partition), serving):
            return False
        here = {member.parts.node.me for member in serving}
        targets = [
            group_target(member.parts.machine.state, topic.topic_id, partition)
            for member in serving
        ]
        return all(
            target and len(here.intersection(target)) >= majority(len(target)) for target in targets
        )

    # ---- what they must

    def _must_progress(self) -> None:
        world = self._world
        self._first = world.next_number()
        waiting = [one for one in world.truths.judged if self._counts(*one)]
        world.reached["partition with a quorum inside"] += len(waiting)
        since = world.clock.now
        while waiting and world.clock.now < since + PROGRESS_MS:
            for one in waiting:
                self._probe(*one)
            world.clock.run(world.clock.now + LOOK_MS)
            waiting = [one for one in waiting if not self._is_excused(*one)]
        if waiting:
            names = [f"{topic.name}-{partition}" for topic, partition in waiting]
            raise BrokenPromiseError(
                f"liveness: {names} committed nothing new in {PROGRESS_MS} ms, though "
                f"{self._serving} are well"
            )

    def _probe(self, topic: KnownTopic, partition: int) -> None:
        for member in self._serving:
            replica = member.parts.node.replica(topic.topic_id, partition)
            if replica is not None and replica.is_leader:
                member.arrive(self._writer.write, member, topic, partition)

    def _is_excused(self, topic: KnownTopic, partition: int) -> bool:
        """It went on, or need not any more."""
        records = topic.records.get(partition, {})
        if max(records.values(), default=0) > self._first:
            self._world.reached["progress of a majority"] += 1
            return True
        if topic.may_go or topic.may_lose(partition):
            return True
        if not self._counts(topic, partition):
            self._world.reached["a step that needs who is gone"] += 1
            return True
        return False
