"""What was written last is sent out of memory: the same bytes as the file has, and no later."""

import sys
from dataclasses import replace
from typing import Any

import pytest
from unit.broker.multiraft.test_repair import read_all
from unit.broker.multiraft.wiring import SMALL, STORE, TOPIC, World, batch, produce, values

from dmq.broker.multiraft import cargo
from dmq.broker.multiraft.sending import SendSettings
from dmq.broker.multiraft.turn import NodeSettings
from dmq.records import Record, build_batch
from dmq.storage.fresh import ENTRY_BYTES
from dmq.storage.log import Log


@pytest.fixture
def hoarded(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if some follower's window were always full: only what must go goes."""
    forget = Log.forget_fresh

    def unless_sent(log: Log) -> None:
        if sys._getframe(1).f_code.co_name != "push":
            forget(log)

    monkeypatch.setattr(Log, "forget_fresh", unless_sent)


def test_followers_get_what_was_just_written_without_a_look_into_the_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(3)
    leader = world.elected(SMALL)
    world.settle()

    def unwanted(*args: Any, **more: Any) -> Any:
        raise AssertionError("a file was read")

    monkeypatch.setattr(cargo, "read_piece", unwanted)
    for n in range(5):
        produce(leader, b"%d" % n * 50)
        produce(leader, b"%d" % n * 100)
        world.settle()
    monkeypatch.undo()
    for broker in world.brokers.values():
        assert len(read_all(broker)) == 10


def test_it_is_what_the_file_has(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(3)
    leader = world.elected(SMALL)
    away = world.others(leader)[0]
    fresh_piece, seen = cargo.fresh_piece, list[int]()

    def both(log: Log, start: int, stop: int, bytes_max: int) -> cargo.Piece | None:
        found = fresh_piece(log, start, stop, bytes_max)
        if found is not None:
            read = cargo.read_piece(log, start, stop, bytes_max)
            assert (found.stop, bytes(found.data)) == read
            seen.append(len(read.data))
        return found

    monkeypatch.setattr(cargo, "fresh_piece", both)
    for n in range(60):
        for size in range(n % 7):
            produce(leader, b"x" * (10 + 37 * size))
        if n % 12 == 0:
            away.kill()
        if n % 12 == 5:
            away.restart()
            world.reopen(away)
        world.settle()
    assert len(set(seen)) > 5
    world.until(lambda: values(away) == values(leader))


def test_it_is_there_until_the_followers_were_sent_it() -> None:
    size = len(batch(b"x" * 500))
    world = World(
        3,
        store=replace(STORE, fresh_bytes_max=4 * (size + ENTRY_BYTES)),
        settings=NodeSettings(sending=SendSettings(flying_bytes=1, frame_bytes=1)),
    )
    leader = world.elected(SMALL)
    produce(leader, b"x" * 500)
    world.settle()
    assert not leader.replica.log.fresh
    slow = world.others(leader)[0]
    slow.is_syncing_by_hand = True
    for _ in range(3):
        produce(leader, b"x" * 500)
        world.settle()
    assert [kept.base for kept in leader.replica.log.fresh] == [2, 3], "1 was sent"
    for _ in range(3):
        produce(leader, b"x" * 500)
        world.settle()
    assert [kept.base for kept in leader.replica.log.fresh] == [3, 4, 5, 6], (
        "more there is no room for"
    )
    slow.is_syncing_by_hand = False
    slow.end()
    world.settle()
    assert not leader.replica.log.fresh
    assert not leader.store.fresh.size_bytes
    assert len(values(slow)) == 7


def test_a_follower_that_clients_read_keeps_nothing_either() -> None:
    world = World(3)
    leader = world.elected(SMALL)
    follower = world.others(leader)[0]
    follower.replica.read(0, 1000, world.now, whole_first_batch=True)
    produce(leader, b"x" * 100)
    world.settle()
    assert follower.replica.high_watermark == 1
    assert not follower.replica.log.fresh


@pytest.mark.usefixtures("hoarded")
def test_a_log_that_is_dropped_lets_go_of_all() -> None:
    world = World(3)
    leader = world.elected(SMALL)
    produce(leader, b"x" * 100)
    world.settle()
    assert leader.store.fresh.size_bytes > 100
    leader.node.drop_group(TOPIC, 0)
    assert leader.store.fresh.size_bytes == 0


@pytest.mark.usefixtures("hoarded")
def test_what_a_damaged_log_gave_up_is_sent_to_nobody() -> None:
    """The others are dead, an operator says to go on without the bad batch; a newcomer gets no more
    than the leader has itself."""
    world = World(4)
    first = tuple(world[n].me for n in (1, 2, 3))
    world.create(voters=first)
    leader, new = world.leader(), world[4]
    for n in range(12):
        produce(leader, b"%d" % n * 100)
        world.settle()
    leader.store.request_flush(leader.replica.log)
    world.pass_time(300)
    for other in world.others(leader):
        if other is not new:
            other.kill()
    log = leader.replica.log
    assert len(log.fresh) == 12
    segment, following = log.segments_list[:2]
    leader.disk.flip(segment.name(), segment.size - 5)
    with pytest.raises(cargo.RotError) as found:
        cargo.read_piece(log, 0, following.base, 1 << 20)
    leader.replica.note_damage(found.value, world.now)
    world.pass_time(200)
    assert leader.replica.ordered(leader.me, leader.replica.core.epoch + 1000, world.now)
    world.until(lambda: leader.replica.is_leader)
    assert log.gaps == ((following.base - 1, following.base),)
    new.node.create_group(world.now, TOPIC, 0, first, SMALL, is_founding=False)
    target = (leader.me, new.me)
    for broker in (leader, new):
        broker.replica.set_target(target, world.now)
    world.until(lambda: set(leader.replica.core.voters) == set(target), 20_000)
    world.pass_time(300)
    assert len(values(leader)) == 11
    assert values(new) == values(leader)


def test_a_log_without_followers_keeps_nothing() -> None:
    world = World(1)
    leader = world.elected(SMALL)
    produce(leader, b"x" * 100)
    world.settle()
    assert leader.replica.high_watermark == 1
    assert not leader.replica.log.fresh


@pytest.mark.usefixtures("hoarded")
def test_who_was_cut_off_sends_nothing_of_what_it_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same offsets, written again in another epoch: memory must not tell of the first ones."""
    world = World(3)
    old = world.elected(SMALL)
    produce(old, b"before")
    world.settle()
    for other in world.others(old):
        world.cut(old.number, other.number)
    for n in range(3):
        produce(old, b"lost %d" % n)
    world.until(lambda: any(leader is not old for leader in world.leaders))
    new = next(leader for leader in world.leaders if leader is not old)
    produce(new, b"other")
    assert len(old.replica.log.fresh) > 1
    world.heal()
    world.until(lambda: values(old) == values(new) == [b"before", b"other"])
    assert not old.replica.log.fresh
    assert new.replica.transfer(old.me, world.now)
    world.until(lambda: world.leaders == [old])
    sent = list[cargo.Piece]()
    fresh_piece = cargo.fresh_piece

    def seen(log: Log, start: int, stop: int, bytes_max: int) -> cargo.Piece | None:
        found = fresh_piece(log, start, stop, bytes_max)
        if found is not None:
            assert found == cargo.read_piece(log, start, stop, bytes_max)
            sent.append(found)
        return found

    monkeypatch.setattr(cargo, "fresh_piece", seen)
    for n in range(4):
        produce(old, b"later %d" % n)
        world.settle()
    assert len(sent) >= 4
    world.until(lambda: len(values(new)) == 6 and values(old) == values(new))


@pytest.mark.usefixtures("hoarded")
@pytest.mark.parametrize(
    ("start", "stop", "bytes_max", "expected"),
    [(0, 3, 1 << 20, 3), (0, 2, 1 << 20, 2), (1, 3, 1 << 20, 3), (0, 3, 1, 1), (3, 4, 1 << 20, -1)],
)
def test_it_ends_where_it_should(start: int, stop: int, bytes_max: int, expected: int) -> None:
    world = World(3)
    leader = world.elected(SMALL)
    for _ in range(3):
        produce(leader, b"x" * 100)
    log = leader.replica.log
    leader.node.begin_turn(world.now)
    log.readable_end = 3
    piece = cargo.fresh_piece(log, start, stop, bytes_max)
    assert (-1 if piece is None else piece.stop) == expected
    log.readable_end = 0
    assert cargo.fresh_piece(log, start, stop, bytes_max) is None


@pytest.mark.usefixtures("hoarded")
def test_a_small_part_of_a_large_request_does_not_keep_all_of_it_in_memory() -> None:
    world = World(3)
    leader = world.elected(SMALL)
    data = bytes(build_batch([Record(0, world.now, b"k", b"v" * 200)]))
    for whole, is_copied in ((data + bytes(10 * len(data)), True), (data, False)):
        request = bytearray(whole)
        start = leader.replica.log_end_offset
        leader.replica.produce(memoryview(request)[: len(data)], now=world.now)
        assert leader.begin()
        leader.replica.log.readable_end = start + 1
        piece = cargo.fresh_piece(leader.replica.log, start, start + 1, 1 << 20)
        assert piece is not None
        assert bytes(piece.data) == bytes(request[: len(data)])
        assert (memoryview(piece.data).obj is not request) == is_copied
        leader.end()
