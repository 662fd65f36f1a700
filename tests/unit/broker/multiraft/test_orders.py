"""An operator's order, for groups that no majority can save: one survivor goes on, the past is barred."""

from uuid import UUID

from fakes.disk import FakeDisk
from unit.broker.multiraft.wiring import SMALL, TOPIC, World, produce, values

from dmq.broker.multiraft.driven import HOLD_MS
from dmq.errors import ErrorCode
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


def test_who_waits_for_an_order_promises_nothing_meanwhile() -> None:
    """What would be acknowledged between its account and the order is lost by the order."""
    world = World(3)
    leader = world.elected()
    produce(leader, b"a")
    world.pass_time(500)
    heir, other = world.others(leader)
    leader.kill()
    heir.replica.hold(world.now)
    other.replica.hold(world.now)
    epoch = max(broker.replica.core.epoch for broker in (heir, other))
    leader.restart()
    world.reopen(leader)
    world.pass_time(HOLD_MS - 1000)
    assert world.leaders == [], "two of three are there, and wait"
    for broker in world.brokers.values():
        assert broker.replica.ordered(heir.me, epoch + 1000, world.now, epoch)
    world.until(lambda: heir.replica.is_leader)
    assert heir.replica.core.voters == (heir.me,)


def test_a_leader_that_comes_back_gets_no_acknowledgement_of_who_waits_for_an_order() -> None:
    world = World(3)
    leader = world.elected()
    heir, other = world.others(leader)
    world.cut(leader.number, heir.number)
    world.cut(leader.number, other.number)
    world.cut(heir.number, other.number)
    world.until(lambda: heir.replica.leader is None and other.replica.leader is None)
    for broker in (heir, other):
        broker.replica.hold(world.now)
    reply = produce(leader, b"too late", acks=-1)
    world.heal()
    world.pass_time(5000)
    assert reply.code is not ErrorCode.NONE
    assert world.leaders == []


def test_who_waits_for_an_order_that_does_not_come_elects_again() -> None:
    world = World(3)
    leader = world.elected()
    one, two = world.others(leader)
    leader.kill()
    one.replica.hold(world.now)
    two.replica.hold(world.now)
    world.pass_time(HOLD_MS)
    assert world.leader() in (one, two)


def test_nobody_waits_while_somebody_leads() -> None:
    world = World(3)
    leader = world.elected()
    epoch = leader.replica.core.epoch
    for broker in world.brokers.values():
        broker.replica.hold(world.now)
    reply = produce(leader, b"a")
    world.settle()
    assert reply.code is ErrorCode.NONE
    assert leader.replica.core.epoch == epoch


def test_an_order_is_void_for_an_heir_that_knows_of_a_later_election() -> None:
    world = World(3)
    leader = world.elected()
    seen = leader.replica.core.epoch
    heir, _ = world.others(leader)
    leader.kill()
    world.leader()
    assert heir.replica.core.epoch > seen
    assert not heir.replica.ordered(heir.me, seen + 1000, world.now, seen)
