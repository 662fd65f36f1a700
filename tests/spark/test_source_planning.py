"""The arithmetic of ranges and limits, on anything that hypothesis comes up with."""

from hypothesis import given
from hypothesis import strategies as st

from dmq.spark.planning import Range, backlog, limited, limited_by_weight, ranges_between, split

range_lists = st.lists(
    st.tuples(st.integers(0, 10**12), st.integers(0, 10**7)), min_size=1, max_size=12
).map(lambda pairs: [Range("t", n, start, start + size) for n, (start, size) in enumerate(pairs)])


@given(range_lists, st.none() | st.integers(1, 60), st.none() | st.integers(10**5, 10**8))
def test_pieces_cover_their_ranges_without_gaps_or_overlaps(
    ranges: list[Range], min_partitions: int | None, max_records: int | None
) -> None:
    pieces = split(ranges, min_partitions, max_records)
    for whole in ranges:
        at = whole.start
        for piece in (piece for piece in pieces if piece.partition == whole.partition):
            assert piece.start == at
            assert piece.size > 0
            assert max_records is None or piece.size <= max_records
            at = piece.end
        assert at == whole.end


@given(range_lists)
def test_without_options_there_is_one_task_for_each_partition_with_records(
    ranges: list[Range],
) -> None:
    assert split(ranges, None, None) == [range_ for range_ in ranges if range_.size]


@given(range_lists, st.integers(1, 10**8), st.floats(0.5, 5000))
def test_a_limit_is_kept_starves_nobody_and_passes_no_end(
    ranges: list[Range], most: int, weight: float
) -> None:
    start = {(r.topic, r.partition): r.start for r in ranges}
    end = {(r.topic, r.partition): r.end for r in ranges}
    waiting = [p for p in end if end[p] > start[p]]
    for found in (
        limited(start, end, most),
        limited_by_weight(start, end, most * weight, dict.fromkeys(end, weight)),
    ):
        # A share below one becomes one, so that there may be one more for each partition.
        assert backlog(start, found) <= most + len(waiting)
        assert all(start[p] < found[p] <= end[p] for p in waiting)
        assert all(found[p] == end[p] for p in end if p not in waiting)


def test_ranges_begin_where_the_last_batch_ended() -> None:
    start = {("a", 0): 5, ("a", 1): 7, ("b", 0): 0}
    end = {("a", 0): 9, ("a", 1): 7, ("b", 0): 2}
    assert ranges_between(start, end) == [Range("a", 0, 5, 9), Range("b", 0, 0, 2)]
