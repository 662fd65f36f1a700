"""The last voter of a group whose others are lost: it goes on alone when they were all named."""

from collections.abc import Callable

import pytest
from unit.broker.multiraft.wiring import Broker, World, produce, values

from dmq.broker.outliving import outlive
from dmq.types import Voter


def last(world: World) -> Broker:
    leader = world.elected()
    produce(leader, b"a")
    world.pass_time(500)
    survivor, other = world.others(leader)
    leader.kill()
    other.kill()
    world.pass_time(1000)
    return survivor


def is_linked(broker: Broker) -> Callable[[Voter], bool]:
    return lambda voter: broker.node.links.open_link(voter) is not None


def test_it_goes_on_alone_and_the_same_word_says_nothing_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(3)
    survivor = last(world)
    others = [broker.me.directory for broker in world.others(survivor)]
    for named in ([], others[:1]):
        assert not outlive(survivor.replica, frozenset(named), is_linked(survivor), world.now)
        assert f"--accept-lost {others[0]},{others[1]}" in caplog.text
    assert not survivor.replica.is_leader
    assert outlive(survivor.replica, frozenset(others), is_linked(survivor), world.now)
    world.settle()
    assert survivor.replica.core.voters == (survivor.me,)
    assert values(survivor) == [b"a"]
    assert not outlive(survivor.replica, frozenset(others), is_linked(survivor), world.now)


def test_it_does_not_while_there_is_hope() -> None:
    world = World(3)
    survivor = last(world)
    lost = frozenset(broker.me.directory for broker in world.others(survivor))
    back = world.others(survivor)[0]
    back.restart()
    assert not outlive(survivor.replica, lost, is_linked(survivor), world.now), (
        "two of three are up"
    )
    world.reopen(back)
    leader = world.leader()
    assert not outlive(leader.replica, lost, lambda voter: False, world.now), "somebody leads"


def test_it_does_not_while_one_that_was_named_is_up() -> None:
    world = World(5)
    leader = world.elected()
    survivor, up, *others = world.others(leader)
    for broker in (leader, *others):
        broker.kill()
    world.pass_time(1000)
    lost = frozenset(broker.me.directory for broker in world.others(survivor))
    assert not outlive(survivor.replica, lost, is_linked(survivor), world.now)
    up.kill()
    assert outlive(survivor.replica, lost, is_linked(survivor), world.now)
