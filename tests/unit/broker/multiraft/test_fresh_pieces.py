"""What a turn has just written is sent out of memory: the same bytes as the file has, and no later."""

from dataclasses import replace
from typing import Any

import pytest
from unit.broker.multiraft.test_repair import read_all
from unit.broker.multiraft.wiring import SMALL, STORE, World, produce, values

from dmq.broker.multiraft import cargo
from dmq.records import Record, build_batch
from dmq.storage.log import Log


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


def test_it_stays_when_the_turn_is_over_until_there_is_too_much() -> None:
    world = World(3, store=replace(STORE, fresh_bytes_max=2000))
    leader = world.elected(SMALL)
    size = 0
    for n in range(10):
        produce(leader, b"x" * 500)
        world.settle()
        size = leader.replica.log.segments_list[-1].size
        assert leader.replica.log.fresh[-1].base == n
    assert size > 500
    assert [batch.base for batch in leader.replica.log.fresh] == [7, 8, 9]
    for follower in world.others(leader):
        assert not follower.replica.log.fresh, "nobody is sent that"


def test_a_log_without_followers_keeps_nothing() -> None:
    world = World(1)
    leader = world.elected(SMALL)
    produce(leader, b"x" * 100)
    world.settle()
    assert leader.replica.high_watermark == 1
    assert not leader.replica.log.fresh


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


def test_a_small_part_of_a_large_request_does_not_keep_all_of_it_in_memory() -> None:
    world = World(3)
    leader = world.elected(SMALL)
    batch = bytes(build_batch([Record(0, world.now, b"k", b"v" * 200)]))
    for data, is_copied in ((bytearray(batch + bytes(10 * len(batch))), True), (batch, False)):
        request = bytearray(data)
        start = leader.replica.log_end_offset
        leader.replica.produce(memoryview(request)[: len(batch)], now=world.now)
        assert leader.begin()
        leader.replica.log.readable_end = start + 1
        piece = cargo.fresh_piece(leader.replica.log, start, start + 1, 1 << 20)
        assert piece is not None
        assert bytes(piece.data) == bytes(request[: len(batch)])
        assert (memoryview(piece.data).obj is not request) == is_copied
        leader.end()
