"""The decoder against two readings that share no code with it: ours record by record, kafka-python's."""

import contextlib
import struct
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kafka.record import MemoryRecords

from dmq import records
from dmq.codecs import Codec
from dmq.records import Record, build_batch
from dmq.spark.batches import select
from dmq.spark.decode import Wanted, decode
from dmq.spark.failures import SparkSourceError
from dmq.spark.schema import arrow_schema, source_schema
from dmq.wire.messages.k01_fetch import AbortedTransaction

SCHEMA = arrow_schema(source_schema(includes_headers=True))
EVERYTHING = Wanted("t", 3, 0, 2**62)
NOW = 1_700_000_000_000

sizes = st.one_of(
    st.integers(0, 3),
    st.sampled_from([52, 53, 54, 62, 63, 64, 65, 120, 8180, 8191, 8192, 8193, 20000]),
)
blobs = st.none() | st.builds(lambda size, byte: bytes([byte]) * size, sizes, st.integers(0, 255))
names = st.text(max_size=6)
header_lists = st.lists(st.tuples(names, st.none() | st.binary(max_size=4)), max_size=3).map(tuple)
steps = st.one_of(st.just(0), st.integers(-70, 70), st.integers(-(2**40), 2**40))


@st.composite
def record_lists(draw: st.DrawFn) -> list[Record]:
    """Runs of like records and single ones in turn; offsets have holes, as compaction leaves them."""
    found: list[Record] = []
    offset, time = draw(st.integers(0, 2**33)), NOW
    for _ in range(draw(st.integers(1, 6))):
        key, value, headers = draw(blobs), draw(blobs), draw(st.just(()) | header_lists)
        hole, step = draw(st.sampled_from([0, 0, 0, 1, 70])), draw(steps)
        for _ in range(draw(st.sampled_from([1, 1, 2, 9, 17, 40, 200]))):
            found.append(Record(offset, time, key, value, headers))
            offset += 1 + hole
            time = max(0, time + step)
    return found


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """Some batches in a row, in any codec, by either clock."""
    found, base = bytearray(), 0
    for _ in range(draw(st.integers(1, 4))):
        held = draw(record_lists())
        first = held[0].offset
        moved = [record._replace(offset=base + record.offset - first) for record in held]
        found += build_batch(
            moved,
            codec=draw(st.sampled_from(list(Codec))),
            attributes=draw(st.sampled_from([0, records.LOG_APPEND_TIME])),
            last_offset=moved[-1].offset + draw(st.sampled_from([0, 0, 5])),
        )
        base = _end(found)
    return bytes(found)


def _end(log: bytearray) -> int:
    return max(header.next_offset for _, header in records.scan(log))


def decoded(log: bytes, wanted: Wanted = EVERYTHING, **choices: Any) -> list[dict[str, Any]]:
    """Rows as Spark would get them."""
    view = memoryview(log)
    chosen = select(view, choices.get("aborted"), checks_crcs=True, where="t-3")
    made = list(decode(view, chosen.batches, wanted, SCHEMA))
    for batch in made:
        batch.validate(full=True)
        assert batch.schema.equals(SCHEMA)
    return [row for batch in made for row in batch.to_pylist()]


def by_ours(log: bytes) -> Iterator[dict[str, Any]]:
    for at, header in records.scan(log):
        for record in records.iterate(log, at, header):
            yield {
                "key": record.key,
                "value": record.value,
                "topic": "t",
                "partition": 3,
                "offset": record.offset,
                "timestamp": pa.scalar(record.timestamp * 1000, pa.timestamp("us", "UTC")).as_py(),
                "timestampType": int(header.has_log_append_time),
                "headers": [{"key": k, "value": v} for k, v in record.headers] or None,
            }


def by_kafka_python(log: bytes) -> Iterator[tuple[Any, ...]]:
    batches = MemoryRecords(log)
    while (batch := batches.next_batch()) is not None:
        for record in batch:
            key, value = (None if b is None else bytes(b) for b in (record.key, record.value))
            headers = [(k, None if v is None else bytes(v)) for k, v in record.headers]
            yield record.offset, record.timestamp, record.timestamp_type, key, value, headers


@given(logs())
@settings(max_examples=150)
def test_every_record_is_read_as_the_loop_over_records_reads_it(log: bytes) -> None:
    assert decoded(log) == list(by_ours(log))


@given(logs())
@settings(max_examples=50)
def test_kafka_python_reads_the_same(log: bytes) -> None:
    mine = [
        (
            row["offset"],
            round(row["timestamp"].timestamp() * 1000),
            row["timestampType"],
            row["key"],
            row["value"],
            [(header["key"], header["value"]) for header in row["headers"] or []],
        )
        for row in decoded(log)
    ]
    assert mine == list(by_kafka_python(log))


@given(logs(), st.integers(0, 300), st.integers(0, 300))
@settings(max_examples=50)
def test_only_the_wanted_offsets_come_out(log: bytes, start: int, size: int) -> None:
    wanted = Wanted("t", 3, start, start + size)
    expected = [row for row in by_ours(log) if start <= row["offset"] < start + size]
    assert decoded(log, wanted) == expected


@given(logs(), st.integers(-200, 200), st.integers(0, 400))
@settings(max_examples=50)
def test_only_the_wanted_times_come_out(log: bytes, low: int, span: int) -> None:
    wanted = Wanted("t", 3, 0, 2**62, NOW + low, NOW + low + span)
    limits = [pa.scalar(ms * 1000, pa.timestamp("us", "UTC")).as_py() for ms in
              (NOW + low, NOW + low + span)]  # fmt: skip
    expected = [row for row in by_ours(log) if limits[0] <= row["timestamp"] <= limits[1]]
    assert decoded(log, wanted) == expected


@given(logs(), st.data())
@settings(max_examples=50)
def test_an_answer_that_is_cut_short_yields_its_whole_batches(log: bytes, data: Any) -> None:
    cut = log[: data.draw(st.integers(0, len(log)))]
    view = memoryview(cut)
    chosen = select(view, None, checks_crcs=True, where="t-3")
    assert decoded(cut) == list(by_ours(cut))
    whole = [header.next_offset for _, header in records.scan(cut)]
    assert chosen.next_offset == (whole[-1] if whole else None)


@given(logs(), st.data())
@settings(max_examples=150)
@example(bytes(build_batch([Record(0, NOW, b"k", b"v")])), None)
def test_bytes_that_are_no_records_are_refused_and_never_followed(log: bytes, data: Any) -> None:
    """With CRCs off, any bytes may reach the decoder: it must answer or refuse."""
    broken = bytearray(log)
    for at, header in records.scan(log):
        if data is not None and header.codec == Codec.NONE:
            for _ in range(data.draw(st.integers(1, 4))):
                where = data.draw(st.integers(at + records.HEADER_SIZE, at + header.size - 1))
                broken[where] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
    view = memoryview(broken)
    chosen = select(view, None, checks_crcs=False, where="t-3")
    with contextlib.suppress(SparkSourceError):
        for batch in decode(view, chosen.batches, EVERYTHING, SCHEMA):
            batch.validate(full=True)


# --- transactions


def _data(offset: int, producer: int, count: int = 3) -> bytearray:
    held = [Record(offset + i, NOW, None, b"%d" % producer) for i in range(count)]
    return build_batch(held, attributes=records.TRANSACTIONAL, producer_id=producer)


def _marker(offset: int, producer: int, *, commits: bool) -> bytearray:
    marker = Record(offset, NOW, struct.pack(">hh", 0, int(commits)), struct.pack(">hi", 0, 0))
    attributes = records.TRANSACTIONAL | records.CONTROL
    return build_batch([marker], attributes=attributes, producer_id=producer)


@given(st.lists(st.tuples(st.integers(1, 3), st.sampled_from("dddca")), max_size=40))
def test_aborted_transactions_are_dropped_and_committed_ones_are_not(
    steps: list[tuple[int, str]],
) -> None:
    """Producers write (d), commit (c) and abort (a) in turn; what is open at the end is beyond the
    last stable offset, so a broker would not have sent it."""
    log, offset, aborted = bytearray(), 0, []
    open_since: dict[int, int] = {}
    held: dict[int, list[int]] = {1: [], 2: [], 3: []}
    expected: list[int] = []
    ends = [(producer, "c") for producer in (1, 2, 3)]
    for producer, what in [*steps, *ends]:
        if what == "d":
            log += _data(offset, producer)
            open_since.setdefault(producer, offset)
            held[producer] += range(offset, offset + 3)
            offset += 3
            continue
        log += _marker(offset, producer, commits=what == "c")
        offset += 1
        if what == "a" and producer in open_since:
            aborted.append(AbortedTransaction(producer, open_since[producer]))
        elif what == "c":
            expected += held[producer]
        open_since.pop(producer, None)
        held[producer] = []
    committed = [row["offset"] for row in decoded(bytes(log), aborted=aborted)]
    assert committed == sorted(expected)
    everything = [row["offset"] for row in decoded(bytes(log), aborted=None)]
    assert set(expected) <= set(everything)
    assert len(everything) == 3 * sum(what == "d" for _, what in steps)


# --- one by one


def test_a_batch_of_very_many_small_records_is_read_at_once() -> None:
    held = [Record(i, NOW, None, b"x") for i in range(100_000)]
    rows = decoded(bytes(build_batch(held)))
    assert [row["offset"] for row in rows] == list(range(100_000))


def test_a_checksum_that_fails_is_told_with_the_offset() -> None:
    log = bytearray(build_batch([Record(41, NOW, b"k", b"value")]))
    log[-1] ^= 1
    with pytest.raises(SparkSourceError, match=r"offset 41 fails its checksum"):
        decoded(bytes(log))


def test_records_from_before_kafka_0_11_are_refused_with_a_way_out() -> None:
    log = bytearray(build_batch([Record(0, NOW, b"k", b"v")]))
    log[16] = 1
    with pytest.raises(SparkSourceError, match="Spark's own Kafka source does"):
        decoded(bytes(log))


def test_header_names_that_are_no_utf8_are_read_with_replacements() -> None:
    log = bytearray(build_batch([Record(0, NOW, b"k", b"v", (("name", b"1"),))]))
    at = bytes(log).index(b"name")
    log[at] = 0xFF
    view = memoryview(log)
    chosen = select(view, None, checks_crcs=False, where="t-3")
    (batch,) = decode(view, chosen.batches, EVERYTHING, SCHEMA)
    assert batch.to_pylist()[0]["headers"] == [{"key": "\ufffdame", "value": b"1"}]


def test_what_opens_to_very_much_comes_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dmq.spark.decode.OPENED_BYTES_MAX", 1 << 20)
    log = b"".join(
        bytes(build_batch([Record(i, NOW, None, bytes(400_000))], codec=Codec.ZSTD))
        for i in range(10)
    )
    view = memoryview(log)
    chosen = select(view, None, checks_crcs=True, where="t-3")
    made = list(decode(view, chosen.batches, EVERYTHING, SCHEMA))
    assert [batch.num_rows for batch in made] == [2] * 5
