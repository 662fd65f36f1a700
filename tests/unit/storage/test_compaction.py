"""Which part of a log is cleaned, and when it is worth it."""

from typing import NamedTuple

import pytest

from dmq.storage.compaction import Candidate, Lag, choose

NOW = 1_700_000_000_000
FOR_EVER = 2**63 - 1


class Part(NamedTuple):
    base: int
    size: int
    max_timestamp: int = NOW - 1000


LOG = (Part(0, 100), Part(10, 100), Part(20, 100), Part(30, 50))


def chosen(
    *segments: Part,
    clean: int = -1,
    log_start: int = 0,
    limit: int = 1000,
    ratio: float = 0.5,
    min_lag: int = 0,
    max_lag: int = FOR_EVER,
    first: int = NOW - 2000,
) -> Candidate | None:
    return choose(
        segments,
        log_start=log_start,
        clean_point=clean,
        limit=limit,
        lag=Lag(ratio, min_lag, max_lag),
        now=NOW,
        first_timestamp=lambda at: first,
    )


def test_a_log_never_cleaned_is_all_dirty_but_for_the_active_segment() -> None:
    found = chosen(*LOG)
    assert found is not None
    assert (found.taken, found.first_dirty, found.end) == (3, 0, 30)
    assert (found.clean_bytes, found.dirty_bytes) == (0, 300)


def test_the_active_segment_alone_is_left_alone() -> None:
    assert chosen(Part(0, 100), ratio=0) is None


@pytest.mark.parametrize(
    ("clean", "ratio", "is_taken"),
    [(20, 0.3, True), (20, 0.34, False), (10, 0.66, True), (10, 0.67, False), (30, 0.0, False)],
)
def test_the_dirty_share_must_be_above_the_ratio(clean: int, ratio: float, is_taken: bool) -> None:
    assert (chosen(*LOG, clean=clean, ratio=ratio) is not None) == is_taken


def test_a_clean_point_inside_a_segment_makes_it_clean_and_dirty() -> None:
    found = chosen(*LOG, clean=25, ratio=0)
    assert found is not None
    assert (found.first_dirty, found.clean_bytes, found.dirty_bytes) == (25, 300, 100)


@pytest.mark.parametrize("clean", [-1, 3, 31, 5000])
def test_a_clean_point_that_can_not_be_starts_over(clean: int) -> None:
    found = chosen(*LOG, clean=clean, log_start=5)
    assert found is not None
    assert found.first_dirty == 5


@pytest.mark.parametrize(("limit", "end"), [(9, None), (10, 10), (29, 20), (30, 30)])
def test_nothing_at_or_above_the_limit_is_taken(limit: int, end: int | None) -> None:
    found = chosen(*LOG, limit=limit)
    assert (None if found is None else found.end) == end


def test_young_records_wait_and_so_does_what_follows_them() -> None:
    log = (Part(0, 9, NOW - 500), Part(10, 9, NOW - 100), Part(20, 9, NOW - 500), Part(30, 9))
    found = chosen(*log, min_lag=200)
    assert found is not None
    assert found.end == 10
    assert chosen(*log, min_lag=600) is None


def test_a_young_segment_that_is_clean_does_not_hold_back_the_rest() -> None:
    log = (Part(0, 9, NOW - 100), Part(10, 9, NOW - 500), Part(20, 9))
    found = chosen(*log, clean=10, min_lag=200, ratio=0)
    assert found is not None
    assert found.end == 20


def test_what_waits_too_long_is_cleaned_however_little_it_is() -> None:
    assert chosen(*LOG, clean=20, ratio=1) is None
    assert chosen(*LOG, clean=20, ratio=1, max_lag=2000) is None
    found = chosen(*LOG, clean=20, ratio=1, max_lag=1999)
    assert found is not None
    assert found.is_overdue
    assert chosen(*LOG, clean=20, ratio=1, max_lag=1999, first=-1) is None


def test_the_time_of_a_segment_is_not_looked_up_without_need() -> None:
    def first_timestamp(at: int) -> int:
        raise AssertionError("read")

    choose(
        LOG,
        log_start=0,
        clean_point=0,
        limit=100,
        lag=Lag(0, 0, FOR_EVER),
        now=NOW,
        first_timestamp=first_timestamp,
    )
