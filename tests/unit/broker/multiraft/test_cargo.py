"""Record bytes between two logs: what is taken, what is refused, how beginnings are fitted."""

import pytest

from dmq.broker.multiraft import cargo
from dmq.codecs import Codec
from dmq.errors import ProtocolError
from dmq.raft.messages import Append
from dmq.records import DELETE_HORIZON, Record, build_batch, check_crc, iterate, read_header
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
