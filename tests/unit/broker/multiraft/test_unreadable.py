"""Sectors that a broker's disk gives not back: found by whoever reads, mended, and nobody stops."""

import errno
from collections.abc import Sequence

import pytest
from fakes.disk import Buffer, FakeFile
from unit.broker.multiraft.test_producer_snapshots import Books, verdict
from unit.broker.multiraft.test_repair import filled, forget, read_all, rot
from unit.broker.multiraft.wiring import Broker, World, produce, values

from dmq.broker import producer_loading
from dmq.broker.multiraft.frames import RangeReply
from dmq.errors import StorageError
from dmq.machines.producers.state import Duplicate


def spoil(broker: Broker, *, segment: int = 0, byte: int = 200, length: int = 50) -> None:
    broker.disk.spoil(broker.replica.log.segments_list[segment].name(), byte, length)
    forget(broker)


def mended(world: World, broker: Broker) -> None:
    world.until(lambda: not broker.replica.core.is_damaged)
    assert broker.node.counts["repaired"] == 1


def test_a_leader_whose_follower_catches_up_finds_it_and_is_mended() -> None:
    world = World(3)
    leader = world.elected()
    away = world.others(leader)[0]
    away.kill()
    for n in range(12):
        produce(leader, b"%d" % n * 100)
        world.settle()
    spoil(leader)
    away.restart()
    world.reopen(away)
    world.until(lambda: leader.node.counts.get("damaged", 0) == 1)
    mended(world, leader)
    world.until(lambda: away.replica.log_end_offset >= 12)
    assert read_all(away) == read_all(leader)


def test_a_replica_that_is_asked_for_bytes_that_it_can_not_read_is_mended_too() -> None:
    world, leader = filled()
    one, two = world.others(leader)
    for broker in (one, leader):
        spoil(broker)
    rot(two, byte=16)
    forget(two)
    with pytest.raises(StorageError):
        two.replica.read(2, 10_000, world.now, whole_first_batch=True)
    world.drops = lambda sender, to, frame: any(
        isinstance(m.message, RangeReply) for m in frame.messages
    )
    world.pass_time(1500)
    assert any(b.replica.core.is_damaged for b in (one, leader))


def test_what_is_on_its_way_to_a_client_and_can_not_be_read_is_mended() -> None:
    """The door had slices of a leader's file, and sends them without looking."""
    world, leader = filled()
    log = leader.replica.log
    slices = log.read(0, 10_000, log.end_offset)
    spoil(leader)
    piece = slices[0].part(150, 100)
    with pytest.raises(OSError, match="nothing back"):
        piece.pread()
    leader.node.unreadable(piece)
    world.until(lambda: leader.node.counts.get("damaged", 0) == 1)
    mended(world, leader)
    assert piece.pread()


def test_the_only_replica_serves_what_can_be_read_of_it() -> None:
    world = World(1)
    leader = world.elected()
    for n in range(12):
        produce(leader, b"%d" % n * 100)
        world.settle()
    log = leader.replica.log
    piece = log.read(0, 10_000, log.end_offset)[0]
    spoil(leader)
    leader.node.unreadable(piece)
    world.pass_time(300)
    assert not log.is_damaged
    assert leader.replica.is_leader


def test_a_file_that_was_closed_and_opened_again_meanwhile_is_still_the_same() -> None:
    world, leader = filled()
    log = leader.replica.log
    piece = log.read(0, 10_000, log.end_offset)[0]
    spoil(leader)
    leader.store.pool.forget(log.segments_list[0])
    leader.node.unreadable(piece.part(150, 100))
    world.until(lambda: leader.node.counts.get("damaged", 0) == 1)


def test_a_file_that_compaction_has_replaced_says_nothing_of_the_one_that_is_there() -> None:
    _, leader = filled()
    log = leader.replica.log
    piece = log.read(0, 10_000, log.end_offset)[0]
    name = log.segments_list[0].name()
    spoil(leader)
    leader.disk.open("another", create=True).write_at(0, [bytes(log.segments_list[0].size)])
    leader.disk.rename("another", name)
    leader.store.pool.forget(log.segments_list[0])
    leader.node.unreadable(piece)
    assert not log.is_damaged


def test_what_is_written_again_can_be_read_again() -> None:
    world, leader = filled()
    bad = world.others(leader)[0]
    spoil(bad)
    with pytest.raises(StorageError):
        bad.replica.read(2, 10_000, world.now, whole_first_batch=True)
    world.pass_time(100)
    mended(world, bad)
    assert read_all(bad) == values(leader)
    assert "began again" not in bad.node.counts


@pytest.mark.parametrize(("code", "begins_again"), [(errno.EIO, True), (errno.ENOSPC, False)])
def test_a_place_that_takes_no_bytes_makes_it_begin_elsewhere(
    monkeypatch: pytest.MonkeyPatch, code: int, begins_again: bool
) -> None:
    world, leader = filled()
    bad = world.others(leader)[0]
    spoil(bad)
    name, write_at = bad.replica.log.segments_list[0].name(), FakeFile.write_at

    def refused(
        file: FakeFile, position: int, parts: Sequence[Buffer], *, is_cached: bool = True
    ) -> None:
        if file.name == name and file._disk is bad.disk:
            raise OSError(code, "not here")
        write_at(file, position, parts, is_cached=is_cached)

    with monkeypatch.context() as patch:
        patch.setattr(FakeFile, "write_at", refused)
        with pytest.raises(StorageError):
            bad.replica.read(2, 10_000, world.now, whole_first_batch=True)
        world.pass_time(3000)
        assert ("began again" in bad.node.counts) == begins_again
        assert bad.replica.core.is_damaged != begins_again
    world.pass_time(3000)
    assert read_all(bad) == values(leader)


def test_a_log_that_must_be_cut_where_it_can_not_be_read_begins_again() -> None:
    world, leader = filled()
    for other in world.others(leader):
        world.cut(leader.number, other.number)
    produce(leader, b"lost", timeout_ms=60_000)
    world.settle()
    world.until(lambda: any(b.replica.is_leader for b in world.others(leader)))
    produce(next(b for b in world.others(leader) if b.replica.is_leader), b"kept")
    world.pass_time(1500)
    log = leader.replica.log
    spoil(leader, segment=len(log.segments_list) - 1, byte=0, length=2000)
    leader.store.pool.forget(log.segments_list[-1])
    world.heal()
    world.pass_time(3000)
    assert leader.node.counts["began again"] == 1
    assert values(leader)[-1] == b"kept"


@pytest.mark.parametrize("inline_bytes", [0, 1 << 20])
def test_a_new_leader_that_can_not_read_who_wrote_is_mended(
    monkeypatch: pytest.MonkeyPatch, inline_bytes: int
) -> None:
    monkeypatch.setattr(producer_loading, "INLINE_BYTES", inline_bytes)
    world = World(3)
    old = world.elected()
    books = Books(world)
    for sequence in range(6):
        books.append(old, sequence)
    for broker in world.brokers.values():
        broker.store.request_flush(broker.replica.log)
    world.pass_time(300)
    bad = world.others(old)[0]
    spoil(bad)
    assert old.replica.transfer(bad.me, world.now)
    world.until(lambda: bad.node.counts.get("damaged", 0) == 1)
    mended(world, bad)
    world.pass_time(500)
    leader = world.leader()
    assert isinstance(verdict(books, leader, 5), Duplicate)
