"""Reads that must be the newest: who answers at once, who waits for whom, who is told that it is over."""

from unit.broker.multiraft.wiring import Broker, Reply, World, produce

from dmq.errors import ErrorCode

LEASED_MS = 300
"""Long enough for a round of heartbeats."""


def ask(broker: Broker) -> Reply:
    reply = Reply()
    broker.replica.when_newest(broker.world.now, reply)
    return reply


def led(brokers: int = 3) -> tuple[World, Broker]:
    world = World(brokers)
    leader = world.elected()
    world.pass_time(LEASED_MS)
    return world, leader


def test_a_leader_answers_at_once_while_its_lease_stands() -> None:
    world, leader = led()
    assert leader.replica.is_newest(world.now)
    assert ask(leader).code is ErrorCode.NONE
    assert not leader.node.counts.get("read waits for a round")


def test_a_leader_whose_heir_gave_the_leadership_back_answers_at_once() -> None:
    """The heir stops, as in every rolling restart; the epoch may last for months."""
    world, leader = led()
    heir = world.others(leader)[0]
    while heir.node.hand_over_all(world.now):
        world.pass_time(10)
    epoch = leader.replica.leader_epoch
    assert leader.replica.transfer(heir.me, world.now)
    world.settle()
    assert leader.replica.core.has_failed(heir.me, world.now)
    heir.kill()
    world.pass_time(LEASED_MS)
    assert leader.replica.leader_epoch == epoch
    assert ask(leader).code is ErrorCode.NONE


def test_a_single_voter_always_answers_at_once() -> None:
    world = World(1)
    leader = world.elected()
    assert ask(leader).code is ErrorCode.NONE
    world.now += 60_000  # It was stopped for a minute.
    assert ask(leader).code is ErrorCode.NONE


def test_a_read_waits_for_what_it_saw_to_be_committed() -> None:
    world, leader = led()
    for broker in world.brokers.values():
        broker.is_syncing_by_hand = True
    produce(leader, b"a")
    reply = ask(leader)
    world.settle()
    assert reply.code is None
    for broker in world.brokers.values():
        broker.is_syncing_by_hand = False
        broker.end()
    world.settle()
    assert reply.code is ErrorCode.NONE


def test_a_leader_that_was_stopped_asks_anew() -> None:
    world, leader = led()
    world.now += world.brokers[leader.number].node.settings.links.pause_ms + 1
    reply = ask(leader)
    assert reply.code is None, "its leases are void, though the last is younger than 400 ms"
    assert leader.node.counts["pause"] == 1
    world.pass_time(LEASED_MS)
    assert reply.code is ErrorCode.NONE


def test_a_leader_that_is_cut_off_refuses_when_it_resigns() -> None:
    world, leader = led()
    for other in world.others(leader):
        world.cut(leader.number, other.number)
    world.pass_time(leader.node.settings.links.lease_ms + 200)
    assert leader.replica.is_leader
    assert not leader.replica.is_newest(world.now)
    reply = ask(leader)
    assert reply.code is None
    world.until(lambda: not leader.replica.is_leader)
    assert reply.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert ask(leader).code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_patience_ends() -> None:
    world, leader = led()
    leader.node.links.renew_lease = lambda link, echo: None  # type: ignore[method-assign]
    world.pass_time(leader.node.settings.links.lease_ms + 100)
    reply = ask(leader)
    world.pass_time(leader.node.settings.read_patience_ms - 200)
    assert reply.code is None
    world.pass_time(400)
    assert reply.code is ErrorCode.REQUEST_TIMED_OUT


def test_a_read_of_a_partition_that_goes_is_refused() -> None:
    world, leader = led()
    leader.node.links.renew_lease = lambda link, echo: None  # type: ignore[method-assign]
    world.pass_time(leader.node.settings.links.lease_ms + 100)
    reply, key = ask(leader), leader.replica.key
    leader.node.drop_group(*key)
    assert reply.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
