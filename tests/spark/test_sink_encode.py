"""Record batches made by column hold what `dmq.records` reads from them, whatever the rows are."""

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmq.codecs import Codec
from dmq.records import HEADER_SIZE, Record, check_crc, iterate, read_header, split_batches
from dmq.spark.encode import Batch, Packing, Producer, Rows, Segment, cut, encode

BLOBS = st.one_of(st.none(), st.binary(max_size=300))
HEADERS = st.one_of(
    st.none(), st.lists(st.tuples(st.text(max_size=10), st.none() | st.binary(max_size=9)))
)
HEADER_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
ROWS = st.lists(st.tuples(BLOBS, BLOBS, HEADERS), min_size=1, max_size=200)


def columns(rows: list, *, keys: bool = True, headers: bool = True) -> Rows:
    """Rows as a task has them: slices of a larger array."""
    extra = (b"before", b"before", [("x", b"y")])
    table = [extra, *rows, extra]
    structs = [
        None if each is None else [{"key": name, "value": value} for name, value in each]
        for _, _, each in table
    ]
    return Rows(
        pa.array([value for _, value, _ in table], pa.binary()),
        pa.array([key for key, _, _ in table], pa.binary()) if keys else None,
        pa.array(structs, HEADER_TYPE) if headers else None,
    ).slice(1, len(rows))


def packed(rows: Rows, bytes_max: int = 1_000_000, sequence: int = -1, **how: Any) -> list[Batch]:
    """All rows for one partition."""
    packing = Packing(how.pop("producer", Producer()), bytes_max=bytes_max, **how)
    return [b for _, b in encode(rows, [Segment(0, len(rows), sequence)], packing, 1_700)]


def opened(batches: list[Batch]) -> list[Record]:
    records = []
    for batch in batches:
        header = read_header(batch.data)
        assert check_crc(batch.data, 0, header)
        assert header.record_count == batch.count
        split_batches(memoryview(batch.data))
        found = list(iterate(batch.data))
        assert [record.offset for record in found] == list(range(batch.count))
        records += found
    return records


@given(ROWS, st.integers(HEADER_SIZE + 1, 5000), st.sampled_from(list(Codec)))
def test_what_is_encoded_is_what_is_read(rows: list, bytes_max: int, codec: Codec) -> None:
    producer = Producer(77, 3, is_transactional=True)
    batches = packed(columns(rows), bytes_max, 5, producer=producer, codec=codec)
    found = opened(batches)
    assert [(r.key, r.value, list(r.headers)) for r in found] == [
        (key, value, list(headers or [])) for key, value, headers in rows
    ]
    assert {record.timestamp for record in found} == {1_700}
    sequence = 5
    for batch in batches:
        header = read_header(batch.data)
        assert header.base_sequence == sequence
        assert (header.producer_id, header.producer_epoch) == (77, 3)
        assert header.is_transactional
        sequence += batch.count


@given(ROWS, st.integers(HEADER_SIZE + 1, 3000))
def test_no_batch_is_too_large_unless_one_record_is(rows: list, bytes_max: int) -> None:
    for batch in packed(columns(rows), bytes_max):
        assert len(batch.data) <= bytes_max or batch.count == 1


@given(ROWS)
def test_rows_may_have_values_only(rows: list) -> None:
    batches = packed(columns(rows, keys=False, headers=False))
    assert [(r.key, r.value, r.headers) for r in opened(batches)] == [
        (None, value, ()) for _, value, _ in rows
    ]


@given(st.lists(st.integers(1, 50), max_size=60), st.integers(1, 100))
def test_cuts_fill_parts_as_far_as_they_may(sizes: list[int], bytes_max: int) -> None:
    bounds = cut(np.cumsum(np.array(sizes, dtype=np.int64)), 0, len(sizes), bytes_max)
    assert bounds[0] == 0
    assert bounds[-1] == len(sizes)
    for first, last in itertools.pairwise(bounds):
        assert last > first
        assert sum(sizes[first:last]) <= bytes_max or last == first + 1
        if last < len(sizes):
            assert sum(sizes[first : last + 1]) > bytes_max


@given(st.lists(ROWS, min_size=1, max_size=6), st.integers(HEADER_SIZE + 1, 3000))
def test_several_partitions_are_encoded_at_once(parts: list[list], bytes_max: int) -> None:
    ends = np.cumsum([len(part) for part in parts]).tolist()
    segments = [
        Segment(end - len(part), end, 100 * index)
        for index, (part, end) in enumerate(zip(parts, ends, strict=True))
    ]
    rows = columns([row for part in parts for row in part])
    found: dict[int, list[Batch]] = {index: [] for index in range(len(parts))}
    for index, batch in encode(rows, segments, Packing(Producer(), bytes_max=bytes_max), 0):
        found[index].append(batch)
    for index, part in enumerate(parts):
        assert [(r.key, r.value) for r in opened(found[index])] == [row[:2] for row in part]
        assert read_header(found[index][0].data).base_sequence == 100 * index


def test_sequence_numbers_begin_again_after_the_largest() -> None:
    rows = columns([(None, b"x", None)] * 3)
    batches = packed(rows, HEADER_SIZE + 1, 2**31 - 2)
    assert [read_header(b.data).base_sequence for b in batches] == [2**31 - 2, 2**31 - 1, 0]


def test_no_rows_make_no_batch() -> None:
    assert not packed(columns([]))


@pytest.mark.parametrize("size", [0, 63, 64, 8191, 8192, 1_048_575, 1_048_576])
def test_lengths_at_the_edges_of_varints(size: int) -> None:
    rows = columns([(b"k" * size, b"v" * size, [("h", b"z" * size)])])
    (record,) = opened(packed(rows))
    assert (record.key, record.value) == (b"k" * size, b"v" * size)
