"""Retention: age, size, the high watermark, the active segment, segments without timestamps."""

from typing import NamedTuple

import pytest

from dmq.storage.retention import Retention, new_log_start

HOUR = 3_600_000
NOW = 1_700_000_000_000


class Part(NamedTuple):
    base: int
    size: int
    max_timestamp: int


def start_of(
    *segments: Part,
    end: int,
    high_watermark: int | None = None,
    ms: int = -1,
    size: int = -1,
    seen_since: int = NOW,
) -> int | None:
    return new_log_start(
        segments,
        end_offset=end,
        high_watermark=end if high_watermark is None else high_watermark,
        retention=Retention(ms, size),
        now=NOW,
        seen_since=lambda base, size: seen_since,
    )


OLD, YOUNG = NOW - 2 * HOUR, NOW - HOUR // 2
LOG = (Part(0, 100, OLD), Part(10, 100, OLD), Part(20, 100, YOUNG), Part(30, 100, NOW))


def test_segments_go_when_their_newest_record_is_too_old() -> None:
    assert start_of(*LOG, end=40, ms=HOUR) == 20
    assert start_of(*LOG, end=40, ms=3 * HOUR) is None


def test_exactly_the_allowed_age_is_kept() -> None:
    assert start_of(Part(0, 9, NOW - HOUR), Part(5, 9, NOW), end=9, ms=HOUR) is None
    assert start_of(Part(0, 9, NOW - HOUR - 1), Part(5, 9, NOW), end=9, ms=HOUR) == 5


def test_an_old_segment_behind_a_young_one_stays() -> None:
    assert start_of(Part(0, 9, YOUNG), Part(5, 9, OLD), Part(8, 9, NOW), end=9, ms=HOUR) is None


def test_without_limits_everything_stays() -> None:
    assert start_of(*LOG, end=40) is None


@pytest.mark.parametrize(
    ("limit", "start"),
    [(400, None), (399, None), (301, None), (300, 10), (299, 10), (200, 20), (1, 30), (0, 40)],
)
def test_size_drops_what_is_wholly_too_much(limit: int, start: int | None) -> None:
    assert start_of(*LOG, end=40, size=limit) == start


def test_bytes_that_went_by_age_do_not_count_as_too_much() -> None:
    log = (Part(0, 200, OLD), Part(5, 50, YOUNG), Part(8, 10, NOW))
    assert start_of(*log, end=9, ms=HOUR, size=100) == 5


def test_the_active_segment_goes_when_all_of_it_is_too_old() -> None:
    assert start_of(Part(0, 9, OLD), Part(5, 9, OLD), end=9, ms=HOUR) == 9


def test_an_empty_active_segment_is_not_dropped() -> None:
    assert start_of(Part(0, 9, OLD), Part(5, 0, -1), end=5, ms=HOUR) == 5
    assert start_of(Part(5, 0, -1), end=5, ms=0, size=0) is None


@pytest.mark.parametrize(("high_watermark", "start"), [(9, None), (10, 10), (19, 10), (20, 20)])
def test_nothing_above_the_high_watermark_goes(high_watermark: int, start: int | None) -> None:
    log = (Part(0, 9, OLD), Part(10, 9, OLD), Part(20, 9, OLD))
    assert start_of(*log, end=30, high_watermark=high_watermark, ms=HOUR, size=0) == start


def test_without_timestamps_the_time_since_it_is_known_counts() -> None:
    log = (Part(0, 9, -1), Part(10, 9, NOW))
    assert start_of(*log, end=20, ms=HOUR, seen_since=YOUNG) is None
    assert start_of(*log, end=20, ms=HOUR, seen_since=OLD) == 10


def test_the_time_of_all_segments_without_timestamps_begins_together() -> None:
    asked: list[tuple[int, int]] = []

    def seen_since(base: int, size: int) -> int:
        asked.append((base, size))
        return NOW

    new_log_start(
        [Part(0, 7, -1), Part(10, 8, -1), Part(20, 9, NOW), Part(30, 10, -1)],
        end_offset=40,
        high_watermark=40,
        retention=Retention(HOUR, -1),
        now=NOW,
        seen_since=seen_since,
    )
    assert dict(asked) == {0: 7, 10: 8, 30: 10}
