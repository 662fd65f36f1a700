"""Positions and marks: each rule of the design on small logs, and attacks that once worked."""

from uuid import UUID

import pytest

from dmq.raft.marks import Marks
from dmq.types import Mark, Position, Voter

VOTERS = (Voter(1, UUID(int=1)),)


def mark(epoch: int, change: int, offset: int, log_start: int = 0) -> Mark:
    return Mark(epoch, change, offset, VOTERS, log_start)


LOG = Marks((mark(0, 0, 0), mark(1, 0, 0), mark(3, 0, 10), mark(3, 1, 15), mark(4, 0, 20)))
END = 30


def test_the_end_is_the_last_mark_and_the_next_offset() -> None:
    assert LOG.position(END) == (4, 0, 30)
    assert Marks().position(0) == (-1, 0, 0)


def test_marks_must_rise() -> None:
    with pytest.raises(AssertionError):
        LOG.add(mark(4, 0, 30))
    with pytest.raises(AssertionError):
        LOG.add(mark(5, 0, 19))
    with pytest.raises(AssertionError):
        Marks((mark(1, 0, 5), mark(0, 0, 6)))


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        ((4, 0, 30), True),
        ((4, 0, 31), False),
        ((4, 0, 20), True),
        ((4, 0, 19), False),
        ((3, 1, 20), True),
        ((3, 1, 21), False),
        ((3, 0, 15), True),
        ((2, 0, 10), False),
        ((0, 0, 0), True),
        ((0, 0, 1), False),
    ],
)
def test_has(position: tuple[int, int, int], expected: bool) -> None:
    assert LOG.has(Position(*position), END, 0) is expected


def test_what_lies_below_the_base_is_common() -> None:
    trimmed = LOG.trim(12, Position(4, 0, 30))
    assert trimmed.base == mark(3, 0, 10)
    assert trimmed.has(Position(1, 0, 7), END, 12)
    assert trimmed.has(Position(2, 0, 99), END, 12)
    assert not Marks().has(Position(0, 0, 0), 0, 0)


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        ((4, 0, 99), (4, 0, 30)),
        ((9, 0, 0), (4, 0, 30)),
        ((3, 5, 99), (3, 1, 20)),
        ((3, 1, 17), (3, 1, 17)),
        ((3, 1, 99), (3, 1, 20)),
        ((2, 0, 99), (1, 0, 10)),
        ((4, 0, 5), (3, 1, 20)),
    ],
)
def test_floor(position: tuple[int, int, int], expected: tuple[int, int, int]) -> None:
    assert LOG.floor(Position(*position), END, 0) == expected


def test_floor_below_the_base_is_none() -> None:
    assert LOG.trim(25, Position(4, 0, 30)).floor(Position(3, 0, 12), END, 25) is None


def test_a_cut_keeps_the_marks_at_its_offset_that_are_not_beyond_it() -> None:
    empty_epochs = Marks((mark(0, 0, 0), mark(4, 0, 100), mark(5, 0, 100), mark(6, 0, 100)))
    assert empty_epochs.cut(Position(5, 0, 100)).last == mark(5, 0, 100)
    assert empty_epochs.cut(Position(0, 0, 100)).last == mark(0, 0, 0)


def test_trim_does_not_take_an_uncommitted_mark_as_base() -> None:
    log = Marks((mark(1, 0, 0), mark(2, 0, 10)))
    assert log.trim(10, Position(1, 0, 10)).base == mark(1, 0, 0)
    assert log.trim(10, Position(2, 0, 10)).base == mark(2, 0, 10)


def test_epochs_of_records() -> None:
    assert [LOG.epoch_at(offset) for offset in (0, 9, 10, 19, 20, 29)] == [1, 1, 3, 3, 4, 4]
    trimmed = LOG.trim(12, Position(4, 0, 30))
    assert trimmed.epoch_at(5) == -1
    assert trimmed.fits(5, 1)
    assert not trimmed.fits(5, 4)
    assert trimmed.fits(10, 3)
    assert not trimmed.fits(10, 1)


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [(0, (0, 0)), (1, (1, 10)), (2, (1, 10)), (3, (3, 20)), (4, (4, 30)), (9, (4, 30))],
)
def test_end_of_epoch(epoch: int, expected: tuple[int, int]) -> None:
    assert LOG.end_of_epoch(epoch, END) == expected


def test_end_of_an_epoch_before_the_base_is_unknown() -> None:
    assert LOG.trim(12, Position(4, 0, 30)).end_of_epoch(1, END) == (-1, -1)


def test_a_lost_tail_takes_its_marks_along() -> None:
    assert LOG.up_to(15).last == mark(3, 1, 15)
    assert LOG.up_to(14).last == mark(3, 0, 10)
    assert LOG.from_base(3, 1).base == mark(3, 1, 15)
