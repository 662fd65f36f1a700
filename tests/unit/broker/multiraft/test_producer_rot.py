"""Rot in a log whose producers are read: noticed and mended, never believed; nobody hangs or stops."""

import struct
from typing import Any

import pytest
from crc32c import crc32c
from unit.broker.multiraft.test_producer_snapshots import Books, hold, idempotent, verdict
from unit.broker.multiraft.test_reading_along import Scene
from unit.broker.multiraft.wiring import Broker, World

from dmq.broker import producer_loading
from dmq.broker.multiraft.cargo import RotError
from dmq.broker.producer_loading import Load, look_at
from dmq.errors import StorageError
from dmq.machines.producers.state import Duplicate
from dmq.records import CONTROL, CRC_START, Record, build_batch, read_header, scan, stamp
from dmq.storage.producer_files import DIRECTORY

LENGTH = 8
"""Where the length of a batch is said, outside of its CRC."""


@pytest.fixture(autouse=True)
def ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A load that reads for ever is a failure, not a test that hangs."""
    real, count = Load.next_step, 0

    def next_step(load: Load) -> Any:
        nonlocal count
        count += 1
        if count > 5000:
            raise AssertionError("it reads for ever")
        return real(load)

    monkeypatch.setattr(Load, "next_step", next_step)


@pytest.fixture(params=["in the loop", "beside it"])
def books(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Books:
    if request.param == "beside it":
        monkeypatch.setattr(producer_loading, "INLINE_BYTES", 0)
    world = World(3)
    world.elected()
    return Books(world)


def flush(world: World) -> None:
    for broker in world.brokers.values():
        broker.store.request_flush(broker.replica.log)
    world.pass_time(300)


def start_anew(world: World, books: Books, broker: Broker) -> None:
    broker.kill()
    broker.restart()
    world.reopen(broker)
    books.of[broker.number] = books.open(broker)
    world.pass_time(200)


def hand_over(world: World, old: Broker, new: Broker) -> None:
    assert old.replica.transfer(new.me, world.now)
    world.until(lambda: new.replica.is_leader)


def mended(world: World, broker: Broker) -> None:
    world.until(lambda: broker.node.counts.get("damaged", 0) == 1)
    world.until(lambda: not broker.replica.log.is_damaged)
    assert broker.node.counts["repaired"] == 1


@pytest.mark.parametrize(("byte", "mask"), [(LENGTH, 0x40), (LENGTH + 3, 0x08), (16, 1), (100, 1)])
def test_a_new_leader_whose_log_rotted_is_mended_and_leads(
    books: Books, byte: int, mask: int
) -> None:
    world = books.world
    old = world.leader()
    for sequence in range(6):
        books.append(old, sequence)
    flush(world)
    bad = world.others(old)[0]
    start_anew(world, books, bad)
    bad.disk.flip(bad.replica.log.segments_list[0].name(), byte, mask)
    hand_over(world, old, bad)
    mended(world, bad)
    world.pass_time(1000)
    leader = world.leader()
    if leader is not bad:
        hand_over(world, leader, bad)
        world.pass_time(300)
    assert isinstance(verdict(books, bad, 5), Duplicate)
    assert verdict(books, bad, 6) is None


def test_a_marker_that_rotted_is_mended_too(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    world = scene.world
    scene.write(1)
    marker = scene.end(1, is_commit=False)
    flush(world)
    bad = scene.followers[0]
    (part,) = bad.replica.log.read(marker, 1 << 20, marker + 1)
    name = bad.replica.log.segments_list[-1].name()
    bad.disk.flip(name, part.position + read_header(part.pread()).size - 1, 0x7F)
    hand_over(world, scene.leader, bad)
    mended(world, bad)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_follower_that_reads_for_a_snapshot_finds_rot_and_is_mended(books: Books) -> None:
    world = books.world
    leader = world.leader()
    for sequence in range(6):
        books.append(leader, sequence)
    flush(world)
    bad = world.others(leader)[0]
    start_anew(world, books, bad)
    bad.disk.flip(bad.replica.log.segments_list[0].name(), LENGTH)
    books.keep()
    assert bad.disk.list(DIRECTORY) == []
    mended(world, bad)
    books.keep()
    assert len(bad.disk.list(DIRECTORY)) == 1


def test_a_follower_that_reads_along_finds_rot_and_is_mended(scene: Scene) -> None:
    scene.some()
    flush(scene.world)
    bad = scene.followers[0]
    bad.disk.flip(bad.replica.log.segments_list[0].name(), 70)
    with pytest.raises(StorageError):
        scene.view(bad)
    mended(scene.world, bad)
    scene.check()


def test_rot_in_what_was_deleted_costs_what_only_it_said(
    books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can mend it: the log begins behind it."""
    world = books.world
    leader = world.leader()
    for sequence in range(8):
        books.append(leader, sequence)
    flush(world)
    hold(books)
    bad = world.others(leader)[0]
    bad.disk.flip(bad.replica.log.segments_list[0].name(), LENGTH)
    books.trim(leader, 6)
    for aside in books.asides.values():
        aside.is_held = False
        aside.go_on()
    world.pass_time(300)
    assert not bad.replica.log.is_damaged
    hand_over(world, leader, bad)
    world.pass_time(300)
    assert isinstance(verdict(books, bad, 7), Duplicate)


def test_the_only_replica_of_a_log_that_rotted_starts_and_says_so() -> None:
    world = World(1)
    leader = world.elected()
    books = Books(world)
    for sequence in range(3):
        books.append(leader, sequence)
    flush(world)
    leader.kill()
    leader.disk.flip(leader.replica.log.segments_list[0].name(), LENGTH)
    leader.restart()
    world.reopen(leader)
    books.of[1] = books.open(leader)
    world.pass_time(2000)
    assert leader.replica.core.is_damaged
    assert not leader.replica.is_leader


def test_a_length_that_still_fits_makes_no_producer() -> None:
    """A record whose value looks like a batch, and a length that ends just before it."""
    fake = build_batch([Record(0, 5, None, b"")], producer_id=666, producer_epoch=0)
    stamp(fake, 0, 1, 0)
    real = build_batch([Record(0, 5, None, bytes(fake))], producer_id=7, producer_epoch=0)
    assert [header.producer_id for header, _ in look_at(bytes(real), 0).seen] == [7]
    at = bytes(real).index(bytes(fake))
    struct.pack_into(">i", real, LENGTH, at - 12)
    assert [header.producer_id for _, header in scan(real)] == [7, 666]
    with pytest.raises(RotError):
        look_at(bytes(real), 0)


def test_batches_that_are_out_of_place_are_not_believed() -> None:
    first, second = bytearray(idempotent(0)), bytearray(idempotent(1))
    stamp(second, 0, 1, 0)
    assert look_at(bytes(first + second), 0).next_offset == 2
    assert look_at(bytes(second), 1).next_offset == 2
    for start, data in ((0, second), (2, second), (0, first + first), (0, b"")):
        with pytest.raises(RotError):
            look_at(bytes(data), start)


def test_a_marker_that_nobody_can_read_but_is_as_it_was_written_ends_nothing() -> None:
    odd = build_batch([Record(0, 5, b"k", b"v")], attributes=CONTROL, producer_id=7)
    body = bytearray(odd)
    body[61:] = b"\xff" * (len(body) - 61)
    struct.pack_into(">I", body, 17, crc32c(memoryview(body)[CRC_START:]))
    ((header, marker),) = look_at(bytes(body), 0).seen
    assert header.producer_id == 7
    assert marker is None
