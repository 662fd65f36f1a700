"""An operator's order, for groups that no majority can save: one survivor goes on, the past is barred."""

from uuid import UUID

from fakes.disk import FakeDisk
from unit.broker.multiraft.wiring import SMALL, TOPIC, World, produce, values

from dmq.types import Voter


def test_an_order_makes_a_survivor_the_only_voter_and_bars_those_who_were_lost() -> None:
    world = World(3)
    leader = world.elected()
    produce(leader, b"a")
    world.settle()
    survivor, lost = world.others(leader)
    leader.kill()
    lost.kill()
    world.pass_time(3000)
    assert not survivor.replica.is_leader
    order = survivor.me, 100
    assert survivor.replica.ordered(*order, world.now)
    assert survivor.replica.ordered(*order, world.now), "it is under way"
    world.settle()
    assert survivor.replica.is_leader
    assert survivor.replica.core.voters == (survivor.me,)
    produce(survivor, b"b")
    world.settle()
    assert values(survivor) == [b"a", b"b"]
    # The lost ones come back together, and without the survivor: they must not go on as the group.
    survivor.kill()
    for broker in (leader, lost):
        broker.restart()
        assert world.reopen(broker).ordered(*order, world.now)
    world.pass_time(5000)
    assert world.leaders == []
    survivor.restart()
    assert world.reopen(survivor).ordered(*order, world.now), "it was done in a former life"
    target = (survivor.me, leader.me, lost.me)
    for broker in world.brokers.values():
        broker.replica.set_target(target, world.now)
    world.pass_time(6000)
    assert world.leader().replica.core.epoch > 100
    assert {values(broker)[-1] for broker in world.brokers.values()} == {b"b"}


def test_an_order_that_a_crash_interrupted_must_be_given_anew() -> None:
    world = World(3)
    leader = world.elected()
    survivor, lost = world.others(leader)
    leader.kill()
    lost.kill()
    survivor.is_syncing_by_hand = True
    assert survivor.replica.ordered(survivor.me, 100, world.now)
    survivor.work()
    assert survivor.turn is not None
    survivor.turn.sync()  # Epoch and vote are durable; the first mark is not even made.
    survivor.kill(FakeDisk.power_cut)
    survivor.is_syncing_by_hand = False
    survivor.restart()
    again = world.reopen(survivor)
    assert not again.ordered(survivor.me, 100, world.now)
    assert again.ordered(survivor.me, 101, world.now)
    world.settle()
    assert again.is_leader


def test_whoever_is_ordered_without_a_log_begins_one() -> None:
    """Every disk of the group was lost: there is nothing that it could lack."""
    world = World(1)
    broker = world[1]
    other = Voter(9, UUID(int=9))
    empty = broker.node.create_group(world.now, TOPIC, 0, (other,), SMALL, is_founding=False)
    assert empty.ordered(broker.me, 5, world.now)
    world.settle()
    assert empty.is_leader
    assert (empty.core.epoch, empty.core.voters) == (5, (broker.me,))
    assert empty.log.end_offset == 0


def test_an_order_to_begin_anew_is_refused_where_a_log_was() -> None:
    world = World(3)
    leader = world.elected()
    produce(leader, b"a")
    world.settle()
    left, _ = world.others(leader)
    left.node.leave_group(TOPIC, 0)
    back = left.node.create_group(world.now, TOPIC, 0, world.voters, SMALL, is_founding=False)
    assert back.core.voters == ()
    assert not back.ordered(left.me, 100, world.now)
