"""Leaderships go back to the replica that the metadata name first, if it can take them."""

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from unit.broker.multiraft.test_disks import RESERVE, fill
from unit.broker.multiraft.wiring import TOPIC, Broker, World, produce
from unit.machines.test_targets import brokers

from dmq.broker.answer import Answer
from dmq.broker.controller import CHECK_MS, Controller
from dmq.broker.multiraft.replica import Replica
from dmq.broker.partition import Partition
from dmq.errors import ErrorCode
from dmq.machines.commands import ReassignmentDone
from dmq.machines.records import Order, PartitionRecord, TopicRecord
from dmq.machines.state import ClusterState
from dmq.types import Voter

WELL_MS = 5000


class _Led:
    """As much of a partition as a controller looks at."""

    newest = Partition.newest

    def __init__(self, broker: Broker, world: World) -> None:
        self._broker = broker
        self._now = lambda: world.now

    @property
    def replica(self) -> Replica:
        return self._broker.replica

    @property
    def is_leader(self) -> bool:
        return self.replica.is_leader

    is_serving = is_leader


def controller_of(
    broker: Broker, world: World, state: ClusterState | None = None, submit: Any = None
) -> Controller:
    """The controller of a broker with one partition; by default the metadata want nothing."""
    partition = _Led(broker, world)
    metadata = SimpleNamespace(replica=SimpleNamespace(is_leader=False))
    return Controller(
        broker.me,
        lambda: state or ClusterState(),
        cast("Any", metadata),
        cast("Any", SimpleNamespace(by_id={TOPIC: SimpleNamespace(partitions={0: partition})})),
        broker.node.links,
        submit,
        lambda: WELL_MS,
    )


def aimed(world: World) -> None:
    for broker in world.brokers.values():
        broker.replica.set_target(world.voters, world.now)


def passes(world: World, controller: Controller, ms: int) -> None:
    for _ in range(0, ms, 100):
        controller.tick(world.now)
        world.pass_time(100)


def test_the_preferred_replica_leads_again_when_it_was_well_for_long() -> None:
    world = World(3)
    first = world.elected()
    aimed(world)
    first.replica.transfer(world[2].me, world.now)
    world.until(lambda: world[2].replica.is_leader)
    controller = controller_of(world[2], world)
    passes(world, controller, WELL_MS - CHECK_MS)
    assert world[2].replica.is_leader
    passes(world, controller, 2 * CHECK_MS)
    assert first.replica.is_leader


def test_a_preferred_replica_that_stops_is_given_nothing() -> None:
    """It would give it back at once: producers would have waited for nothing, and leases be void."""
    world = World(3)
    first = world.elected()
    aimed(world)
    second = world[2]
    controller = controller_of(second, world)
    passes(world, controller, WELL_MS + 2 * CHECK_MS)
    while first.node.hand_over_all(world.now):
        world.pass_time(10)
    leader = world.leader()
    assert leader is second
    passes(world, controller, 2 * CHECK_MS)
    assert not leader.replica.core.has_failed(first.me, world.now)
    assert leader.replica.core.may_lease


@pytest.mark.parametrize("idle_ms", [0, WELL_MS + 2 * CHECK_MS])
def test_producers_do_not_wait_for_a_preferred_replica_that_can_not_lead(idle_ms: int) -> None:
    """Without a write it stays in sync, though its disk is full."""
    world = World(3, store=RESERVE)
    first = world.elected()
    aimed(world)
    produce(first, b"a")
    world.pass_time(1000)
    fill(first)
    world.until(lambda: not first.replica.is_leader, 5000)
    leader = world.leader()
    controller = controller_of(leader, world)
    passes(world, controller, idle_ms)
    for _ in range(60):
        reply = produce(leader, b"b")
        passes(world, controller, 200)
        assert reply.code is ErrorCode.NONE


def test_a_move_is_done_when_no_other_leader_can_know_better() -> None:
    """A leader that was stopped or cut off may have been replaced, and its voters too."""
    world = World(3)
    leader = world.elected()
    aimed(world)
    state = brokers(*world.voters)
    state.apply(TopicRecord(TOPIC, "moving"))
    state.apply(PartitionRecord(TOPIC, 0, (1, 2, 3), previous=(1, 2)))
    said: list[Any] = []

    def submit(command: Any) -> Answer[Any]:
        said.append(command)
        return Answer()

    controller = controller_of(leader, world, state, submit)
    for other in world.others(leader):
        world.cut(leader.number, other.number)
    world.pass_time(leader.node.settings.links.lease_ms + 100)
    assert leader.replica.is_leader, "it does not know yet"
    controller.tick(world.now)
    assert said == []
    world.heal()
    world.until(lambda: leader.replica.is_leader or bool(world.leaders))
    world.pass_time(1000)
    controller_of(world.leader(), world, state, submit).tick(world.now)
    assert said == [ReassignmentDone(TOPIC, 0, (1, 2, 3))]


def test_an_order_that_can_not_be_obeyed_is_told_by_the_names_that_its_giver_used(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stubborn = SimpleNamespace(ordered=lambda *order: False)
    partition = cast("Any", SimpleNamespace(topic="t", index=3, replica=stubborn))
    controller = Controller.__new__(Controller)
    controller._obey(partition, Order(Voter(1, UUID(int=1)), 7), 0)
    assert caplog.messages == ["t-3 can't go on here from epoch 7, as was ordered: order it again"]
