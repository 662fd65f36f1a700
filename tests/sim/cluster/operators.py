"""An operator of a simulated cluster, who changes what exists and where it is.

Asks some broker that is up, whatever the state of the cluster. What the operator is told is a promise
(truths.py); without an answer nothing is known, and a definite refusal means that nothing was done. Only
partitions whose voters are well must withstand an operator: an unclean election of one whose majority
is down may cost records, and is excused. Topics that may be deleted are few, so that most records stay to
be judged; their names are used again.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sim.checkers import BrokenPromiseError
from sim.cluster.truths import KnownTopic

from dmq.broker.answer import Answer
from dmq.broker.elections import PREFERRED
from dmq.broker.peers import PeerError
from dmq.errors import DmqError, ErrorCode
from dmq.machines.commands import (
    AlterReassignments,
    MorePartitions,
    NewTopic,
    Reassignment,
    UnregisterBroker,
)
from dmq.raft.quorum import majority
from dmq.types import NO_LEADER

if TYPE_CHECKING:
    from sim.cluster.process import Member
    from sim.cluster.world import ClusterWorld

UNCLEAN = 1
OPERATIONS: dict[str, float] = {
    "create": 3.0,
    "delete": 1.0,
    "add_partitions": 0.5,
    "move": 3.0,
    "call_off": 0.5,
    "prefer": 1.0,
    "elect_unclean": 1.5,
    "take_producer_id": 2.0,
    "add_broker": 0.3,
    "retire_broker": 0.4,
}
TOPICS_MAX = 7
PASSING_MAX = 3
"""So many of them, at most, may be deleted."""
BROKERS_MAX = 6
BROKERS_MIN = 3
RETIRE_EVERY_MS = 300
ORDER_MS = 12_000
"""An order waits for brokers that count as up: those that stopped do so for a while."""
NOT_DONE = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_LEADER_OR_FOLLOWER})
"""Errors that mean: nobody did it, and nobody will."""
NOT_ORDERED = NOT_DONE | {
    ErrorCode.ELECTION_NOT_NEEDED,
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}
"""The same, of unclean elections: no order was given."""


class Operator:
    """Does one thing after the other, whatever the state of the cluster."""

    def __init__(self, world: "ClusterWorld", every_ms: int) -> None:
        self._world, self._every_ms = world, every_ms
        self._names = list(OPERATIONS)
        self._weights = [w * world.rng.choice((0.3, 1.0, 2.0)) for w in OPERATIONS.values()]
        world.clock.after(every_ms, self._turn)

    def _turn(self) -> None:
        world = self._world
        if world.is_quiet:
            return
        world.clock.after(world.rng.randint(1, 2 * self._every_ms), self._turn)
        member = world.any_serving()
        if member is not None:
            (name,) = world.rng.choices(self._names, self._weights)
            world.operations += 1
            member.arrive(getattr(self, f"_{name}"), member)

    def _ask(
        self,
        answer: Answer[Any],
        what: str,
        then: Callable[[Any], None],
        refused: Callable[[], None] = lambda: None,
    ) -> None:
        """`refused`: it was not done, and that is definite."""

        def done(told: Answer[Any]) -> None:
            try:
                result = told.get()
            except DmqError as error:
                self._world.say(what, "failed:", error)
                self._world.reached[f"{what.split()[0]} failed"] += 1
                if _is_definite(error):
                    refused()
            else:
                then(result)

        answer.on_done(done)

    # ---- topics

    def _create(self, member: "Member") -> None:
        world = self._world
        if len(world.truths.live) >= TOPICS_MAX:
            return
        is_passing = sum(topic.is_passing for topic in world.truths.live) < PASSING_MAX
        is_passing = is_passing and world.rng.random() < 0.5
        name, count = self._new_name(is_passing=is_passing), world.rng.randint(1, 3)
        factor = world.rng.choice((3, 3, 3, 2, 1))
        new = NewTopic(name, world.new_id(), count, factor)

        def created(results: list[Any]) -> None:
            if results[0].error is None:
                known = KnownTopic(name, new.topic_id, count, is_passing=is_passing)
                world.reached["name used again"] += world.truths.created(known)
                world.reached["topic created"] += 1
                world.say("created", name)

        self._ask(member.service.admin.create_topics([new]), f"create {name}", created)

    def _new_name(self, *, is_passing: bool) -> str:
        """One that a deleted topic had, now and then."""
        world = self._world
        free = world.truths.free_names
        if is_passing and free and world.rng.random() < 0.7:
            return world.rng.choice(free)
        return f"topic{world.next_number()}"

    def _delete(self, member: "Member") -> None:
        world = self._world
        passing = [topic for topic in world.truths.live if topic.is_passing]
        if not passing:
            return
        topic = world.rng.choice(passing)
        topic.may_go = True

        def deleted(results: list[Any]) -> None:
            if results[0].error is None:
                topic.is_gone = True
                world.reached["topic deleted"] += 1
                world.say("deleted", topic.name)
            else:
                raise BrokenPromiseError(f"{topic.name} is there, and {results[0].error}")

        def refused() -> None:
            topic.may_go = False
            world.reached["deletion refused"] += 1

        answer = member.service.admin.delete_topics([(None, topic.topic_id)])
        self._ask(answer, f"delete {topic.name}", deleted, refused)

    def _add_partitions(self, member: "Member") -> None:
        live = self._world.truths.live
        if not live:
            return
        topic = self._world.rng.choice(live)
        count = topic.partitions + 1

        def added(results: list[Any]) -> None:
            if results[0].error is None:
                topic.partitions = max(topic.partitions, count)
                self._world.reached["partition added"] += 1

        more = MorePartitions(topic.name, count)
        answer = member.service.admin.create_partitions([more])
        self._ask(answer, f"add to {topic.name}", added)

    # ---- places

    def _pick(self, member: "Member") -> tuple[KnownTopic, int] | None:
        live = self._world.truths.live
        if not live:
            return None
        topic = self._world.rng.choice(live)
        return topic, self._world.rng.randrange(topic.partitions)

    def _move(self, member: "Member") -> None:
        picked = self._pick(member)
        if picked is None:
            return
        rng, state = self._world.rng, member.parts.machine.state
        nodes = [node for node, broker in sorted(state.brokers.items()) if not broker.is_leaving]
        target = tuple(rng.sample(nodes, min(len(nodes), rng.choice((3, 3, 3, 2, 1)))))
        self._reassign(member, picked, target)

    def _call_off(self, member: "Member") -> None:
        picked = self._pick(member)
        if picked is not None:
            self._reassign(member, picked, None)

    def _reassign(
        self, member: "Member", picked: tuple[KnownTopic, int], target: tuple[int, ...] | None
    ) -> None:
        topic, index = picked
        change = Reassignment(topic.name, index, target)

        def moved(results: list[Any]) -> None:
            if results[0].error is None:
                self._world.reached["move begun" if target else "move called off"] += 1

        answer = member.service.submit(AlterReassignments((change,)))
        self._ask(answer, f"move {topic.name}-{index} to {target}", moved)

    # ---- leaders

    def _prefer(self, member: "Member") -> None:
        picked = self._pick(member)
        if picked is None:
            return
        topic, index = picked

        def elected(results: list[Any]) -> None:
            self._world.reached["preferred elected"] += results[0].code is ErrorCode.NONE

        answer = member.service.elect_leaders(PREFERRED, [(topic.name, index)], 2000)
        self._ask(answer, f"prefer {topic.name}-{index}", elected)

    def _pick_leaderless(self, member: "Member") -> tuple[KnownTopic, int] | None:
        """One of those that have no leader as far as this broker knows, mostly: for what else is an
        order?"""
        led_by = member.service.leadership.of
        leaderless = [
            (topic, index)
            for topic in self._world.truths.live
            for index in range(topic.partitions)
            if led_by(topic.topic_id, index).leader == NO_LEADER
        ]
        if leaderless and self._world.rng.random() < 0.7:
            return self._world.rng.choice(leaderless)
        return self._pick(member)

    def _elect_unclean(self, member: "Member") -> None:
        picked = self._pick_leaderless(member)
        if picked is None:
            return
        topic, index = picked
        world, faults = self._world, self._world.faults.count
        is_well = self._are_well(topic, index)

        def elected(results: list[Any]) -> None:
            code = results[0].code
            world.say("unclean election of", topic.name, index, code.name)
            if is_well or code is ErrorCode.NONE or code in NOT_ORDERED:
                topic.elections[index] -= 1  # Else it may have been done, whatever we were told.
            if code is not ErrorCode.NONE:
                world.reached["unclean election refused"] += code in NOT_ORDERED
                return
            if is_well and world.faults.count == faults and self._are_well(topic, index):
                raise BrokenPromiseError(
                    f"{topic.name}-{index} was given to one replica, though a majority was well"
                )
            topic.is_forfeited.add(index)
            world.reached["unclean election"] += 1

        topic.elections[index] += 1
        answer = member.service.elect_leaders(UNCLEAN, [(topic.name, index)], ORDER_MS)
        self._ask(answer, f"elect {topic.name}-{index}", elected)

    def _are_well(self, topic: KnownTopic, index: int) -> bool:
        """Whether every voter of the partition, as its leaders saw it, is up and can be heard."""
        world = self._world
        groups = [
            replica.core
            for member in world.members.values()
            if member.is_up and (replica := member.parts.node.replica(topic.topic_id, index))
        ]
        newest = max(groups, key=lambda core: core.end, default=None)
        if newest is None or not newest.voters:
            return False
        well = [voter for voter in newest.voters if world.is_well(voter.node)]
        return len(well) >= majority(len(newest.voters)) + (len(newest.voters) > 2)

    def _take_producer_id(self, member: "Member") -> None:
        answer = member.service.next_producer_id()
        self._ask(answer, "producer id", self._world.truths.given)

    # ---- brokers

    def _add_broker(self, member: "Member") -> None:
        world = self._world
        if len(world.staying) < BROKERS_MAX:
            world.add_member().boot()
            world.reached["broker added"] += 1

    def _retire_broker(self, member: "Member") -> None:
        world = self._world
        if len(world.staying) > BROKERS_MIN and not world.retiring:
            world.retiring = world.rng.choice([m.number for m in world.staying])
            world.say("retire", world.retiring)
            world.clock.after(0, self._retire)

    def _retire(self) -> None:
        """Move everything away and unregister, again and again until it is gone."""
        world, node = self._world, self._world.retiring
        if not node or world.members[node].has_left:
            world.retiring = 0
            return
        world.clock.after(RETIRE_EVERY_MS, self._retire)
        member = world.any_serving()
        is_broken = any(other.is_kept_broken for other in world.members.values())
        if member is not None and not is_broken:
            member.arrive(self._move_away, member, node)

    def _move_away(self, member: "Member", node: int) -> None:
        state = member.parts.machine.state
        others = [n for n, b in sorted(state.brokers.items()) if n != node and not b.is_leaving]
        changes = []
        for topic in state.topics.values():
            for index, placed in enumerate(topic.partitions):
                if node in placed.replicas:
                    free = [n for n in others if n not in placed.replicas]
                    stay = [n for n in placed.replicas if n != node]
                    target = (*stay, *free[:1]) or tuple(others[:1])
                    changes.append(Reassignment(topic.name, index, target))
        if changes:
            answer: Answer[Any] = member.service.submit(AlterReassignments(tuple(changes)))
            self._ask(answer, f"empty {node}", lambda results: None)
        else:
            self._ask(
                member.service.submit(UnregisterBroker(node)), f"retire {node}", lambda _: None
            )


def _is_definite(error: DmqError) -> bool:
    return error.code in NOT_DONE or (isinstance(error, PeerError) and not error.was_sent)
