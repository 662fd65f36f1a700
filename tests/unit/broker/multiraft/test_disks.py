"""Disks that are full or slow: who leads then, and what is refused."""

import pytest
from unit.broker.multiraft.wiring import Broker, World, produce, values

from dmq.errors import ErrorCode
from dmq.storage.log import LogSettings
from dmq.storage.store import StoreSettings

RESERVE = StoreSettings(journal_bytes=64 * 1024, journal_file_bytes=8 * 1024, reserve_bytes=1)


def test_a_full_disk_of_a_follower_holds_nobody_up_and_heals() -> None:
    world = World(3, store=RESERVE)
    leader = world.elected()
    full = world.others(leader)[1]
    full.disk.capacity = full.disk.used_bytes()
    world.pass_time(300)
    reply = produce(leader, b"a")
    world.settle()
    assert reply.code is ErrorCode.NONE
    assert full.replica.log_end_offset == 0
    full.disk.capacity = None
    world.pass_time(2500)
    assert values(full) == [b"a"]


def test_a_full_disk_of_a_leader_is_a_definite_refusal() -> None:
    world = World(3)
    leader = world.elected()
    produce(leader, b"a")
    world.settle()
    leader.disk.capacity = leader.disk.used_bytes()
    reply = produce(leader, b"b" * 100)
    world.settle()
    assert reply.code is ErrorCode.KAFKA_STORAGE_ERROR
    leader.disk.capacity = None
    world.pass_time(2000)
    again = produce(world.leader(), b"c")
    world.pass_time(100)
    assert again.code is ErrorCode.NONE
    assert [values(b) for b in world.brokers.values()] == [[b"a", b"c"]] * 3


def test_a_broker_with_a_slow_disk_hands_over_and_stands_for_nothing() -> None:
    world = World(3)
    slow = world.elected()
    slow.is_syncing_by_hand = True
    produce(slow, b"a")
    world.pass_time(1100)
    assert not slow.replica.is_leader
    new = world.leader()
    assert new is not slow
    slow.is_syncing_by_hand = False
    slow.end()
    world.pass_time(200)
    assert values(slow) == [b"a"]
    assert slow.node.links.raft.is_fit


def test_brokers_that_share_a_slow_disk_keep_what_they_have() -> None:
    world = World(3)
    leader = world.elected()
    for broker in world.brokers.values():
        broker.is_syncing_by_hand = True
    for other in world.others(leader):
        other.replica.log.configure(LogSettings(segment_bytes=2000))
    produce(leader, b"a")
    world.pass_time(3000)
    assert leader.replica.is_leader


def fill(broker: Broker) -> None:
    broker.disk.capacity = broker.disk.used_bytes()


@pytest.mark.parametrize("store", [None, RESERVE], ids=["refuses a write", "below its reserve"])
def test_a_leader_on_a_full_disk_hands_over_and_stands_again_when_there_is_room(
    store: StoreSettings | None,
) -> None:
    world = World(3) if store is None else World(3, store=store)
    full = world.elected()
    produce(full, b"a")
    world.settle()
    fill(full)
    world.pass_time(10)
    refused = produce(full, b"b" * 100)
    world.until(lambda: not full.replica.is_leader, 3000)
    assert refused.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert not full.node.links.raft.is_fit
    reply = produce(world.leader(), b"c")
    world.settle()
    assert reply.code is ErrorCode.NONE
    full.disk.capacity = None
    world.pass_time(3000)
    assert full.node.links.raft.is_fit
    assert values(full) == [b"a", b"c"]


def test_brokers_that_are_all_full_keep_what_they_have() -> None:
    world = World(3, store=RESERVE)
    leader = world.elected()
    produce(leader, b"a")
    world.settle()
    for broker in world.brokers.values():
        fill(broker)
    world.pass_time(5000)
    assert world.leaders == [leader]
    assert values(leader) == [b"a"]


def test_full_brokers_stand_again_when_nobody_has_room_any_more() -> None:
    """What can't be written can be read."""
    world = World(3, store=RESERVE)
    first = world.elected()
    produce(first, b"a")
    world.settle()
    fill(first)
    world.until(lambda: not first.replica.is_leader, 3000)
    second = world.leader()
    fill(second)
    world.until(lambda: not second.replica.is_leader, 3000)
    third = world.leader()
    assert third not in (first, second)
    third.kill()
    world.until(lambda: len(world.leaders) == 1, 5000)
    assert values(world.leaders[0]) == [b"a"]
