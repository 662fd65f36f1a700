"""What a turn has just written is sent out of memory: the same bytes as the file has, and no later."""

from typing import Any

import pytest
from unit.broker.multiraft.test_repair import read_all
from unit.broker.multiraft.wiring import SMALL, World, produce, values

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


def test_nothing_is_held_in_memory_when_the_turn_is_over() -> None:
    world = World(3)
    leader = world.elected(SMALL)
    produce(leader, b"x" * 100)
    assert leader.begin()
    assert [batch.base for batch in leader.replica.log.fresh] == [0]
    leader.end()
    assert not leader.replica.log.fresh


@pytest.mark.parametrize(
    ("start", "stop", "bytes_max", "expected"),
    [(0, 3, 1 << 20, 3), (0, 2, 1 << 20, 2), (1, 3, 1 << 20, 3), (0, 3, 1, 1), (3, 4, 1 << 20, -1)],
)
def test_it_ends_where_it_should(start: int, stop: int, bytes_max: int, expected: int) -> None:
    world = World(1)
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
    world = World(1)
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
