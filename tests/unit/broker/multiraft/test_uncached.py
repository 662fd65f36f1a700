"""What a follower writes and nobody reads does not fill the page cache; what somebody reads stays."""

from dataclasses import replace

import pytest
from unit.broker.multiraft.test_producer_snapshots import idempotent
from unit.broker.multiraft.wiring import SMALL, STORE, Broker, World, produce, values

from dmq.broker.multiraft.replica import READER_MS
from dmq.broker.multiraft.waiting import FetchWaiter


@pytest.fixture
def world() -> World:
    return World(3, store=replace(STORE, uncached_bytes_min=500))


def uncached(broker: Broker) -> int:
    """How many writes did not stay, since this was asked last."""
    count, broker.disk.uncached_writes = broker.disk.uncached_writes, 0
    return count


def test_large_writes_of_followers_leave_the_cache_and_the_leaders_stay(world: World) -> None:
    leader = world.elected(SMALL)
    produce(leader, b"x" * 600)
    world.settle()
    assert uncached(leader) == 0
    assert [uncached(follower) for follower in world.others(leader)] == [1, 1]
    produce(leader, b"x" * 100)
    world.settle()
    assert [uncached(broker) for broker in world.brokers.values()] == [0, 0, 0], "it is small"


def test_who_comes_to_lead_keeps_what_it_writes(world: World) -> None:
    old = world.elected(SMALL)
    produce(old, b"x" * 600)
    world.settle()
    new = world.others(old)[0]
    assert old.replica.transfer(new.me, world.now)
    world.until(lambda: world.leaders == [new])
    for broker in world.brokers.values():
        uncached(broker)
    produce(new, b"y" * 600)
    world.settle()
    assert (uncached(new), uncached(old)) == (0, 1)


def test_what_clients_read_from_a_follower_stays_there(world: World) -> None:
    leader = world.elected(SMALL)
    near, far = world.others(leader)
    near.replica.read(0, 1000, world.now, whole_first_batch=True)
    produce(leader, b"x" * 600)
    world.settle()
    assert (uncached(near), uncached(far)) == (0, 1)
    world.pass_time(READER_MS + 100, step=1000)
    leader = world.leader()
    produce(leader, b"x" * 600)
    world.settle()
    assert sum(map(uncached, world.brokers.values())) == 2, "the reader did not come again"


def test_who_waits_at_the_end_is_a_reader_however_long(world: World) -> None:
    leader = world.elected(SMALL)
    near = world.others(leader)[0]
    woken: list[int] = []
    near.replica.wait(FetchWaiter(1, lambda: woken.append(1)))
    world.pass_time(READER_MS + 100, step=1000)
    assert not woken
    leader = world.leader()
    assert leader is not near
    for broker in world.brokers.values():
        uncached(broker)
    produce(leader, b"x" * 600)
    world.settle()
    assert woken
    assert uncached(near) == 0


def test_what_producers_with_ids_wrote_stays(world: World) -> None:
    leader = world.elected(SMALL)
    leader.replica.append(idempotent(0, size=600), -1, -1, world.now)
    world.settle()
    assert sum(map(uncached, world.brokers.values())) == 0, "their next snapshot reads it"
    produce(leader, b"x" * 600)
    world.settle()
    assert sum(map(uncached, world.brokers.values())) == 2
    assert len(values(leader)) == 2
