"""Record bytes between two logs: what is taken, what is refused, how beginnings are fitted."""

import struct

import pytest
from crc32c import crc32c
from unit.broker.multiraft.wiring import World

from dmq.broker.multiraft import cargo
from dmq.codecs import Codec
from dmq.errors import ProtocolError
from dmq.raft.messages import Append
from dmq.records import (
    CRC_START,
    DELETE_HORIZON,
    HEADER_SIZE,
    Record,
    build_batch,
    check_crc,
    iterate,
    read_header,
)
from dmq.types import Mark, Position


def batch(base: int, count: int = 1, epoch: int = 1, codec: int = Codec.NONE) -> bytes:
    records = [Record(base + n, 1000 + n, b"k", b"%d" % (base + n)) for n in range(count)]
    return bytes(
        build_batch(
            records,
            leader_epoch=epoch,
            codec=codec,
            producer_id=5,
            producer_epoch=1,
            base_sequence=70,
        )
    )


def append(start: int, stop: int, *marks: Mark, epoch: int = 1) -> Append:
    end = Position(marks[-1].epoch if marks else 1, 0, stop)
    return Append(epoch, Position(1, 0, start), tuple(marks), end, end, Position(1, 0, 0), True)


def test_whole_batches_of_the_right_epochs_are_taken() -> None:
    mark = Mark(2, 0, 3, (), 0)
    data = batch(0, 3) + batch(3, 2, epoch=2)
    batches = cargo.check(append(0, 5, mark, epoch=2), data)
    assert [(b.base, b.next) for b in batches] == [(0, 3), (3, 5)]
    assert b"".join(b.data for b in batches) == data


@pytest.mark.parametrize(
    ("message", "data", "why"),
    [
        (append(0, 3), batch(0, 3)[:-1], "no batch"),
        (append(0, 3), batch(0, 3)[:30], "cut short"),
        (append(0, 3), batch(0, 3)[:-1] + b"x", "CRC"),
        (append(0, 3), batch(0, 3, epoch=2), "another log"),
        (append(0, 3), batch(0, 4), "between"),
        (append(4, 6), batch(1, 3) + batch(4, 2), "between"),
        (append(0, 6), batch(1, 5), "between"),
        (append(0, 6), batch(0, 3) + batch(4, 2), "between"),
        (append(0, 6), batch(0, 3) + batch(2, 4), "between"),
        (append(0, 6), batch(0, 5), "batches end at 5"),
        (append(0, 6), b"", "batches end at 0"),
        (append(0, 4, Mark(2, 0, 2, (), 0), epoch=2), batch(0, 4), "across a mark"),
    ],
)
def test_what_is_not_of_this_log_is_refused(message: Append, data: bytes, why: str) -> None:
    with pytest.raises(ProtocolError, match=why):
        cargo.check(message, data)


def test_only_what_is_missing_is_taken() -> None:
    batches = cargo.check(append(0, 9), batch(0, 3) + batch(3, 3) + batch(6, 3))
    fitted = [read_header(piece).base_offset for piece in cargo.fit(batches, 3, 6)]
    assert fitted == [3]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_log_that_begins_in_a_batch_gets_it_without_its_beginning(codec: int) -> None:
    (whole,) = cargo.check(append(4, 10), batch(0, 10, codec=codec))
    (clipped,) = cargo.fit([whole], 4, 10)
    header = read_header(clipped)
    assert (header.base_offset, header.next_offset) == (4, 10)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 1, 74)
    assert header.codec == codec
    assert check_crc(clipped, 0, header)
    kept = list(iterate(clipped, 0, header))
    assert kept == list(iterate(whole.data, 0, read_header(whole.data)))[4:]


def test_a_batch_without_its_beginning_does_not_say_that_its_tombstones_may_go() -> None:
    """Its first time was when they may; now it is that of a record, long ago."""
    records = [Record(n, 1000, b"k%d" % n, None) for n in (3, 6)]
    data = bytes(build_batch(records, base_offset=0, leader_epoch=1, attributes=DELETE_HORIZON))
    (whole,) = cargo.check(append(4, 7), data)
    (clipped,) = cargo.fit([whole], 4, 7)
    assert not read_header(clipped).attributes & DELETE_HORIZON


def test_a_compacted_batch_may_have_nothing_left_above_the_beginning() -> None:
    records = [Record(n, 1000, b"k", b"v") for n in (0, 1)]
    data = bytes(build_batch(records, leader_epoch=1, last_offset=9))
    (whole,) = cargo.check(append(4, 10), data)
    (clipped,) = cargo.fit([whole], 4, 10)
    header = read_header(clipped)
    assert (header.base_offset, header.next_offset, header.record_count) == (4, 10, 0)


def garbage(count: int) -> bytearray:
    """A header and CRC that are right, and no records behind it: `record.validation=header` takes it."""
    data = bytearray(batch(0, count))
    data[HEADER_SIZE:] = b"\xff" * (len(data) - HEADER_SIZE)
    struct.pack_into(">I", data, 17, crc32c(memoryview(data)[CRC_START:]))
    return data


def test_a_batch_that_nobody_can_open_is_left_out() -> None:
    (whole,) = cargo.check(append(4, 10), bytes(garbage(10)))
    (clipped,) = cargo.fit([whole], 4, 10)
    header = read_header(clipped)
    assert (header.base_offset, header.next_offset, header.record_count) == (4, 10, 0)
    assert header.leader_epoch == 1


def test_times_that_no_batch_has_room_for_stop_nobody() -> None:
    records = [Record(n, 2**62 * (n + 1) - n, b"k", b"v") for n in range(2)]
    data = bytearray(build_batch(records, leader_epoch=1))
    struct.pack_into(">q", data, 27, 2**62 + 1)  # The first time: the second is beyond all now.
    struct.pack_into(">I", data, 17, crc32c(memoryview(data)[CRC_START:]))
    (whole,) = cargo.check(append(1, 2), bytes(data))
    (clipped,) = cargo.fit([whole], 1, 2)
    assert read_header(clipped).next_offset == 2


def test_sequences_of_a_batch_without_its_beginning_begin_again_after_the_last() -> None:
    records = [Record(n, 1000, b"k", b"v") for n in range(4)]
    data = build_batch(records, leader_epoch=1, producer_id=5, base_sequence=2**31 - 2)
    (whole,) = cargo.check(append(3, 4), bytes(data))
    (clipped,) = cargo.fit([whole], 3, 4)
    assert read_header(clipped).base_sequence == 1


def test_a_replica_that_was_away_gets_a_log_that_begins_in_such_a_batch() -> None:
    world = World(3)
    leader = world.elected()
    away = world.others(leader)[0]
    away.kill()
    for data in (garbage(10), bytearray(batch(0, 1))):
        leader.replica.append(memoryview(data), -1, -1, world.now)
        world.pass_time(50)
    leader.replica.trim(4, world.now)
    world.pass_time(300)
    away.restart()
    world.reopen(away)
    world.pass_time(1000)
    assert (away.replica.log_start_offset, away.replica.log_end_offset) == (4, 11)
    assert away.replica.core.commit.offset == 11
