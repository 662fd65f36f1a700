"""The record batch: built, checked, stamped, iterated; other implementations agree."""

import contextlib
import struct
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from dmq.codecs import Codec
from dmq.errors import ErrorCode
from dmq.records import (
    CONTROL,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    BatchError,
    Record,
    build_batch,
    check_crc,
    glance,
    iterate,
    open_batch,
    pack_anew,
    read_header,
    scan,
    split_batches,
    stamp,
    stamp_append_time,
    validate_records,
)

CODECS = list(Codec)
BIG = 1 << 20

values = st.none() | st.binary(max_size=200)
record_fields = st.tuples(
    st.integers(0, 2**41),
    values,
    values,
    st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=8)), max_size=3),
)


def records_of(fields: list[tuple[int, bytes | None, bytes | None, list]]) -> list[Record]:
    return [
        Record(offset, time, key, value, tuple(headers))
        for offset, (time, key, value, headers) in enumerate(fields)
    ]


def sample(count: int = 3) -> list[Record]:
    return [Record(n, 1000 + n, b"k%d" % n, b"v" * n, (("h", b"1"),)) for n in range(count)]


def refused(data: bytes | bytearray) -> ErrorCode:
    with pytest.raises(BatchError) as caught:
        split_batches(memoryview(data))
    return caught.value.code


@given(st.lists(record_fields, min_size=1, max_size=8), st.sampled_from(CODECS))
def test_a_batch_gives_back_what_was_put_in(fields: list, codec: Codec) -> None:
    records = records_of(fields)
    batch = build_batch(records, codec=codec)
    (header,) = split_batches(memoryview(batch))
    assert list(iterate(batch, 0, header)) == records
    assert header.record_count == len(records)
    assert header.max_timestamp == max(record.timestamp for record in records)


@pytest.mark.parametrize("codec", CODECS)
def test_aiokafka_reads_our_batches(codec: Codec) -> None:
    records = [Record(n, 5000 + n, None if n == 1 else b"k", b"x" * n) for n in range(4)]
    batch = DefaultRecordBatch(bytes(build_batch(records, codec=codec)))
    assert batch.validate_crc()
    assert [(r.offset, r.timestamp, r.key, r.value) for r in batch] == [
        (r.offset, r.timestamp, r.key, r.value) for r in records
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_we_read_aiokafkas_batches(codec: Codec) -> None:
    builder = DefaultRecordBatchBuilder(2, codec, False, -1, -1, -1, 1 << 20)
    for n in range(50):
        headers = [("a", b"b"), ("n", None)]
        builder.append(n, timestamp=9000 + n, key=b"key", value=b"value" * 20, headers=headers)
    data = builder.build()
    (header,) = split_batches(memoryview(data))
    assert header.codec == codec
    got = list(iterate(data, 0, header))
    assert [r.offset for r in got] == list(range(50))
    assert got[7] == Record(7, 9007, b"key", b"value" * 20, (("a", b"b"), ("n", None)))


def test_stamping_leaves_the_crc_alone() -> None:
    batch = build_batch(sample())
    stamp(batch, 0, 77, 5)
    header = read_header(batch)
    assert (header.base_offset, header.leader_epoch) == (77, 5)
    assert check_crc(batch, 0, header)
    assert [r.offset for r in iterate(batch)] == [77, 78, 79]


def test_append_time_is_every_records_time() -> None:
    batch = build_batch(sample())
    stamp_append_time(batch, 0, 123456)
    header = read_header(batch)
    assert header.attributes & LOG_APPEND_TIME
    assert check_crc(batch, 0, header)
    assert {r.timestamp for r in iterate(batch)} == {123456}


def test_gaps_between_offsets_survive() -> None:
    records = [Record(10, 1, b"a", b"1"), Record(14, 2, b"b", b"2")]
    batch = build_batch(records, base_offset=8, last_offset=19)
    header = read_header(batch)
    assert (header.base_offset, header.last_offset, header.record_count) == (8, 19, 2)
    assert [r.offset for r in iterate(batch)] == [10, 14]


def test_scan_stops_at_a_torn_batch() -> None:
    one, two = build_batch(sample()), build_batch(sample(5))
    assert [pos for pos, _ in scan(bytes(one + two))] == [0, len(one)]
    assert [pos for pos, _ in scan(bytes(one + two[:-1]))] == [0]


def damaged(at: int, value: bytes) -> bytearray:
    batch = build_batch(sample())
    batch[at : at + len(value)] = value
    return batch


def resealed(at: int, value: bytes) -> bytearray:
    """Changed, with the CRC made anew: what a careless producer might send."""
    from crc32c import crc32c

    batch = damaged(at, value)
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return batch


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", ErrorCode.INVALID_RECORD),
        (build_batch(sample())[:-1], ErrorCode.INVALID_RECORD),
        (build_batch(sample())[: HEADER_SIZE - 1], ErrorCode.INVALID_RECORD),
        (damaged(70, b"\xff"), ErrorCode.CORRUPT_MESSAGE),
        (damaged(8, struct.pack(">i", -5)), ErrorCode.CORRUPT_MESSAGE),
        (damaged(8, struct.pack(">i", 2**31 - 1)), ErrorCode.INVALID_RECORD),
        (damaged(16, b"\x00"), ErrorCode.INVALID_RECORD),
        (damaged(16, b"\x01"), ErrorCode.INVALID_RECORD),
        (damaged(16, b"\x03"), ErrorCode.CORRUPT_MESSAGE),
        (damaged(0, struct.pack(">q", 7)), ErrorCode.INVALID_RECORD),
        (resealed(57, struct.pack(">i", 7)), ErrorCode.INVALID_RECORD),
        (resealed(57, struct.pack(">i", 0)), ErrorCode.INVALID_RECORD),
        (resealed(21, struct.pack(">h", CONTROL)), ErrorCode.INVALID_RECORD),
        (resealed(21, struct.pack(">h", 5)), ErrorCode.INVALID_RECORD),
        (resealed(21, struct.pack(">h", 0x40)), ErrorCode.INVALID_RECORD),
        (resealed(21, struct.pack(">h", 0x100)), ErrorCode.INVALID_RECORD),
        (resealed(27, struct.pack(">q", -2)), ErrorCode.INVALID_TIMESTAMP),
    ],
)
def test_bad_batches_are_refused_with_the_right_code(data: bytes, code: ErrorCode) -> None:
    assert refused(data) == code


@given(st.binary(max_size=300))
def test_any_bytes_give_headers_or_a_batch_error(data: bytes) -> None:
    with contextlib.suppress(BatchError):
        split_batches(memoryview(data))


@given(st.binary(max_size=120), st.integers(-3, 1000), st.sampled_from(CODECS))
def test_any_record_bytes_give_records_or_a_batch_error(
    body: bytes, count: int, codec: Codec
) -> None:
    header = read_header(build_batch(sample()))
    header = header._replace(length=49 + len(body), record_count=count, attributes=codec)
    with contextlib.suppress(BatchError):
        list(iterate(bytes(HEADER_SIZE) + body, 0, header, BIG))


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_decompression_bomb_is_refused(codec: Codec) -> None:
    bomb = build_batch([Record(0, 1, None, bytes(30 * BIG))], codec=codec)
    header = read_header(bomb)
    with pytest.raises(BatchError) as caught:
        list(iterate(bomb, 0, header, BIG))
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


def test_full_validation_sees_what_the_header_hides() -> None:
    batch = build_batch([Record(0, 1, None, b"a"), Record(2, 2, None, b"b")], last_offset=1)
    (header,) = split_batches(memoryview(batch))
    with pytest.raises(BatchError):
        validate_records(bytes(batch[HEADER_SIZE:]), header)
    good = build_batch(sample())
    validate_records(bytes(good[HEADER_SIZE:]), read_header(good))


@given(st.lists(record_fields, min_size=1, max_size=20))
def test_a_glance_sees_what_a_reader_sees(fields: list[Any]) -> None:
    records = [
        Record(n, time, key, value, tuple(map(tuple, headers)))
        for n, (time, key, value, headers) in enumerate(fields)
    ]
    batch = build_batch(records)
    seen = list(glance(bytes(batch[HEADER_SIZE:]), len(records)))
    assert [one.offset_delta for one in seen] == [record.offset for record in records]
    assert [records[0].timestamp + one.time_delta for one in seen] == [r.timestamp for r in records]
    assert [one.has_key for one in seen] == [record.key is not None for record in records]


@given(st.binary(max_size=60), st.integers(1, 5))
def test_a_glance_at_anything_is_an_answer_or_a_batch_error(data: bytes, count: int) -> None:
    with contextlib.suppress(BatchError):
        assert len(list(glance(data, count))) == count


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("other", CODECS)
def test_a_batch_packed_anew_is_the_same_but_for_its_codec(codec: Codec, other: Codec) -> None:
    batch = build_batch(sample(), codec=codec, producer_id=7, producer_epoch=1, base_sequence=3)
    header = read_header(batch)
    again = pack_anew(bytes(open_batch(batch, 0, header)), header, other, None)
    (packed,) = split_batches(memoryview(again))
    assert packed.codec == other
    assert list(iterate(again)) == list(iterate(batch))
    same = {"length": 0, "crc": 0, "attributes": 0}
    assert packed._replace(**same) == header._replace(**same)
