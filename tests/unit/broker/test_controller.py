"""Leaderships go back to the replica that the metadata name first, if it can take them."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from unit.broker.multiraft.test_disks import RESERVE, fill
from unit.broker.multiraft.wiring import Broker, World, produce

from dmq.broker.controller import CHECK_MS, Controller
from dmq.broker.multiraft.replica import Replica
from dmq.errors import ErrorCode

WELL_MS = 5000


class _Led:
    """As much of a partition as a controller looks at."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    @property
    def replica(self) -> Replica:
        return self._broker.replica

    @property
    def is_leader(self) -> bool:
        return self.replica.is_leader


def controller_of(broker: Broker) -> Controller:
    """The controller of a broker with one partition, and with metadata that want nothing."""
    partition = _Led(broker)
    metadata = SimpleNamespace(replica=SimpleNamespace(is_leader=False))
    return Controller(
        broker.me,
        cast("Any", lambda: SimpleNamespace(moving=[])),
        cast("Any", metadata),
        cast("Any", SimpleNamespace(by_id={1: SimpleNamespace(partitions={0: partition})})),
        broker.node.links,
        cast("Any", None),
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
    controller = controller_of(world[2])
    passes(world, controller, WELL_MS - CHECK_MS)
    assert world[2].replica.is_leader
    passes(world, controller, 2 * CHECK_MS)
    assert first.replica.is_leader


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
    controller = controller_of(leader)
    passes(world, controller, idle_ms)
    for _ in range(60):
        reply = produce(leader, b"b")
        passes(world, controller, 200)
        assert reply.code is ErrorCode.NONE
