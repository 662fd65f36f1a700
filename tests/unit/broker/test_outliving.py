"""The last voter of a group whose others are lost: it goes on alone when they were all named."""

from collections.abc import Callable

import pytest
from unit.broker.multiraft.wiring import Broker, World, produce, values

from dmq.broker.outliving import TELL_AGAIN_MS, TELL_MS, Watch, outlive
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
        is_short = f"it lacks {others[1]} (broker " in caplog.text
        assert is_short == bool(named), "who named some of them is told who is missing"
        caplog.clear()
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


def test_a_broker_that_runs_on_says_what_the_word_would_be_and_seldom_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(3)
    survivor = last(world)
    watch = Watch(survivor.replica, is_linked(survivor))
    others = ",".join(str(broker.me.directory) for broker in world.others(survivor))

    def told(times: int) -> bool:
        return caplog.text.count(f"--accept-lost {others}") == times

    for now, times in (
        (0, 0),
        (TELL_MS - 1, 0),
        (TELL_MS, 1),
        (TELL_MS + TELL_AGAIN_MS - 1, 1),
        (TELL_MS + TELL_AGAIN_MS, 2),
    ):
        watch.tick(now)
        assert told(times), now
    watch.tick(2 * TELL_AGAIN_MS)
    assert told(2)


def test_an_election_that_takes_a_while_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    world = World(3)
    survivor = last(world)
    links: set[Voter] = set()
    watch = Watch(survivor.replica, links.__contains__)
    watch.tick(0)
    links.update(broker.me for broker in world.others(survivor))
    watch.tick(TELL_MS)
    links.clear()
    watch.tick(TELL_MS + 1)
    watch.tick(2 * TELL_MS)
    assert "--accept-lost" not in caplog.text
