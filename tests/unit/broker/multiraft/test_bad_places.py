"""Bytes that are bad elsewhere than where a read began, at two replicas at once, at an unlucky moment."""

import errno
from typing import Any

import pytest
from unit.broker.multiraft.test_hosted import Hosts, Words
from unit.broker.multiraft.test_producer_snapshots import TIME, Books, verdict
from unit.broker.multiraft.test_repair import filled, forget, rot
from unit.broker.multiraft.test_unreadable import spoil
from unit.broker.multiraft.wiring import Broker, World, produce, values

from dmq.broker import producer_loading
from dmq.errors import ErrorCode, StorageError
from dmq.storage import compaction_points


def flush(world: World) -> None:
    for broker in world.brokers.values():
        broker.store.request_flush(broker.replica.log)
    world.pass_time(300)


def produced() -> tuple[World, Broker, Books]:
    """A leader that took batches of one producer with an id."""
    world = World(3)
    leader = world.elected()
    books = Books(world)
    for n in range(8):
        books.append(leader, n)
    return world, leader, books


def test_a_sector_of_a_later_segment_than_a_read_began_in_is_mended() -> None:
    """The first one was taken for bad, found good, and so on for ever."""
    world = World(3)
    old = world.elected()
    hosts = Hosts(world)
    words = [b"%02d" % n + b"w" * 150 for n in range(15)]
    for word in words:
        hosts.put(old, word)
        world.pass_time(100)
    flush(world)
    bad = world.others(old)[0]
    spoil(bad, segment=1, byte=300, length=10)
    hosts.machines[bad] = Words()
    hosts.hosts[bad] = hosts._host(world, bad)
    hosts.hosts[bad].moved()
    world.until(lambda: hosts.machines[bad].seen == words)
    assert bad.node.counts["damaged"] == bad.node.counts["repaired"] == 1


def test_a_new_leader_that_can_not_read_on_in_a_later_segment_is_mended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(producer_loading, "INLINE_BYTES", 0)
    world, old, books = produced()
    flush(world)
    bad = world.others(old)[0]
    spoil(bad, segment=1, byte=200, length=10)
    old.replica.transfer(bad.me, world.now)
    world.until(lambda: bad.node.counts.get("repaired", 0) == 1)
    world.pass_time(1000)
    assert bad.node.counts["damaged"] == 1
    leader = world.leader()
    assert books.of[leader.number]._state is not None


def damaged_apart() -> tuple[World, Broker, Broker]:
    """Two replicas that have what the other lacks; the third one is down."""
    world, leader = filled()
    other, down = world.others(leader)
    down.kill()
    world.pass_time(500)
    rot(leader, segment=0)
    rot(other, segment=1)
    for broker, offset in ((other, 6), (leader, 2)):
        forget(broker)
        with pytest.raises(StorageError):
            broker.replica.read(offset, 10_000, world.now, whole_first_batch=True)
    return world, leader, other


def test_two_damaged_replicas_mend_each_other() -> None:
    world, one, two = damaged_apart()
    world.until(
        lambda: one.node.counts.get("repaired", 0) == two.node.counts.get("repaired", 0) == 1
    )
    leader = world.leader()
    assert len(values(leader, is_all=True)) == 12


def test_an_order_to_go_on_gives_nothing_up_that_the_other_damaged_replica_has() -> None:
    world, one, two = damaged_apart()
    best = max((one, two), key=lambda broker: broker.replica.core.end)
    epoch = max(one.replica.core.epoch, two.replica.core.epoch) + 100
    for broker in (one, two):
        assert broker.replica.ordered(best.me, epoch, world.now)
    world.until(lambda: best.replica.is_leader, 60_000)
    assert best.replica.log.gaps == ()
    assert len(values(best, is_all=True)) == 12


def test_a_start_asks_the_metadata_log_for_what_can_be_read_of_it() -> None:
    world = World(3)
    old = world.elected()
    hosts = Hosts(world)
    for n in range(8):
        hosts.put(old, b"%d" % n * 100)
        world.pass_time(100)
    bad = world.others(old)[0]
    spoil(bad, segment=1, byte=300, length=10)
    found = [record.key for record in hosts.hosts[bad].everything()]
    assert 0 < len(found) < 8


def test_clean_points_that_can_not_be_read_are_done_without() -> None:
    broker = World(1)[1]
    compaction_points.save(broker.disk, {1: 5})
    assert compaction_points.load(broker.disk) == {1: 5}
    broker.disk.spoil("clean-points", 3)
    assert compaction_points.load(broker.disk) == {}


def test_a_file_that_lost_its_end_after_a_clean_stop_is_damage_of_one_log() -> None:
    """The broker stopped at the first append."""
    world, leader = filled()
    bad = world.others(leader)[0]
    world.pass_time(500)
    bad.store.close(world.now)
    name = bad.replica.log.segments_list[-1].name()
    bad.kill()
    file = bad.disk.open(name)
    file.cut(file.size() - 100)
    file.sync()
    bad.restart()
    world.reopen(bad)
    assert bad.store.recovery.is_clean
    world.pass_time(300)
    produce(leader, b"next" * 40)
    world.until(lambda: bad.node.counts.get("repaired", 0) == 1)
    world.until(lambda: bad.replica.log_end_offset == leader.replica.log_end_offset)
    world.pass_time(300)
    assert values(bad) == values(leader)


def test_who_wrote_is_read_again_when_there_are_descriptors_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing else need move meanwhile: all its producers have ids, and wait for that."""
    monkeypatch.setattr(producer_loading, "INLINE_BYTES", 0)
    monkeypatch.setattr(producer_loading, "LOAD_BYTES", 500)
    world, old, books = produced()
    world.pass_time(500)
    new = world.others(old)[0]
    aside, pool = books.asides[new.number], new.store.pool
    aside.is_held = True
    old.replica.transfer(new.me, world.now)
    world.until(lambda: new.replica.core.knows_latest)
    world.pass_time(500)

    def refuse(name: str, *, create: bool = False) -> Any:
        raise OSError(errno.EMFILE, "too many open files")

    for segment in new.replica.log.segments_list:
        pool.forget(segment)
    with monkeypatch.context() as patched:
        patched.setattr(pool, "open_file", refuse)
        aside.is_held = False
        aside.go_on()
    world.pass_time(1000)
    assert verdict(books, new, 8) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    books.of[new.number].keep(TIME)
    assert verdict(books, new, 8) is None
