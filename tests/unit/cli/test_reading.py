"""When a reading of spans is done."""

import pytest

from dmq.cli.exits import CommandError, Exit
from dmq.cli.reading import Reading, Span, partitions_of

A, B = ("t", 0), ("t", 1)


def test_a_partition_closes_with_its_last_wanted_record() -> None:
    reading = Reading({A: Span(3, 5)})
    assert reading.wants(A, 3)
    assert not reading.is_done
    assert reading.wants(A, 4)
    assert reading.is_done
    assert not reading.wants(A, 5)


def test_a_record_beyond_the_end_closes_the_partition_and_is_not_wanted() -> None:
    reading = Reading({A: Span(0, 5)})
    assert not reading.wants(A, 9)
    assert reading.is_done


def test_the_end_of_the_log_closes_when_the_last_offsets_hold_no_records() -> None:
    reading = Reading({A: Span(0, 5)})
    assert reading.wants(A, 2)
    assert not reading.at_log_end(A, 4)
    assert not reading.is_done
    assert reading.at_log_end(A, 5)
    assert reading.is_done


def test_empty_spans_are_never_open() -> None:
    reading = Reading({A: Span(5, 5), B: Span(7, 3)})
    assert reading.is_done
    assert reading.record_count_max == 0


def test_without_an_end_it_goes_on() -> None:
    reading = Reading({A: Span(0, None), B: Span(0, 2)})
    assert reading.record_count_max == 2
    assert reading.wants(B, 1)
    assert reading.wants(A, 10**9)
    assert not reading.at_log_end(A, 10**9)
    assert not reading.is_done


def test_partitions_all_or_chosen() -> None:
    assert partitions_of([("t", 2), ("u", 1)], None) == [("t", 0), ("t", 1), ("u", 0)]
    assert partitions_of([("t", 3)], [2]) == [("t", 2)]


def test_a_partition_that_is_not_there_is_not_found() -> None:
    with pytest.raises(CommandError, match="no partition 3") as error:
        partitions_of([("t", 3)], [3])
    assert error.value.code is Exit.NOT_FOUND
