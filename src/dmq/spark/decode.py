"""Record batches as they came over the wire, turned into Arrow record batches of the source's schema.

The way of the bytes: `batches` says which batches count, compressed ones are opened here, `starts`
finds the records, `columns` makes vectors of them. Opened bytes are bounded: an answer whose batches
open to more is yielded in several pieces, so that memory stays flat whatever was compressed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dmq import records
from dmq.codecs import CodecError, decompress
from dmq.spark import columns
from dmq.spark.batches import Batch
from dmq.spark.columns import Flags, Numbers
from dmq.spark.failures import SparkSourceError
from dmq.spark.schema import CREATE_TIME, LOG_APPEND_TIME
from dmq.spark.starts import Bytes, MalformedError, Positions, record_starts

OPENED_BYTES_MAX = 64 << 20
"""Opened bytes decoded at a time; one batch that opens to more is a piece of its own."""
ATTRIBUTES_BYTES = 1


@dataclass(frozen=True)
class Wanted:
    """Which records of a partition: offsets from `start` on below `end`, times in ms within bounds."""

    topic: str
    partition: int
    start: int
    end: int
    time_min: int | None = None
    time_max: int | None = None

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class _Opened(NamedTuple):
    """Bytes of records, and of each batch in them: its header, where its records start and end."""

    data: Bytes
    headers: list[records.BatchHeader]
    bounds: list[tuple[int, int]]


def decode(
    data: memoryview, batches: Sequence[Batch], wanted: Wanted, schema: Any
) -> Iterator[Any]:
    """The wanted records of these batches as Arrow record batches. Raises SparkSourceError."""
    useful = [batch for batch in batches if _may_hold(batch.header, wanted)]
    for opened in _open(data, useful, wanted):
        try:
            made = _record_batch(opened, wanted, schema)
        except (MalformedError, IndexError) as error:
            first = opened.headers[0].base_offset
            raise SparkSourceError(
                f"{wanted}: records from offset {first} on are malformed ({error}); their producer"
                " wrote something else than it announced. Skip them with startingOffsets, or have"
                " the topic refuse such batches (record.validation=full)."
            ) from error
        if made.num_rows:
            yield made


def _may_hold(header: records.BatchHeader, wanted: Wanted) -> bool:
    if header.last_offset < wanted.start or header.base_offset >= wanted.end:
        return False
    return wanted.time_min is None or header.max_timestamp >= wanted.time_min


# --- bytes


def _open(data: memoryview, batches: list[Batch], wanted: Wanted) -> Iterator[_Opened]:
    """The batches' records in one buffer: the answer itself, if nothing is compressed."""
    if not any(batch.header.codec for batch in batches):
        if batches:
            yield _in_place(data, batches)
        return
    parts: list[Any] = []
    held: list[Batch] = []
    size = 0
    for batch in batches:
        part = _decompressed(data, batch, wanted)
        if held and size + len(part) > OPENED_BYTES_MAX:
            yield _joined(parts, held)
            parts, held, size = [], [], 0
        parts.append(part)
        held.append(batch)
        size += len(part)
    if held:
        yield _joined(parts, held)


def _in_place(data: memoryview, batches: list[Batch]) -> _Opened:
    headers = [batch.header for batch in batches]
    bounds = [(at + records.HEADER_SIZE, at + header.size) for at, header in batches]
    return _Opened(np.frombuffer(data, np.uint8), headers, bounds)


def _joined(parts: list[Any], batches: list[Batch]) -> _Opened:
    joined = parts[0] if len(parts) == 1 else b"".join(parts)
    ends = np.cumsum([len(part) for part in parts]).tolist()
    bounds = list(zip([0, *ends[:-1]], ends, strict=True))
    headers = [batch.header for batch in batches]
    return _Opened(np.frombuffer(joined, np.uint8), headers, bounds)


def _decompressed(data: memoryview, batch: Batch, wanted: Wanted) -> bytes | memoryview:
    at, header = batch
    packed = data[at + records.HEADER_SIZE : at + header.size]
    try:
        return decompress(header.codec, packed, records.DECOMPRESSED_BYTES_MAX)
    except CodecError as error:
        raise SparkSourceError(
            f"{wanted}: the batch at offset {header.base_offset} can't be decompressed: {error}"
        ) from error


# --- columns


def _record_batch(opened: _Opened, wanted: Wanted, schema: Any) -> Any:
    data = opened.data
    at = _starts(opened)
    counts = [header.record_count for header in opened.headers]
    lengths, body = columns.varints(data, at)
    ends = body + lengths
    time_deltas, after = columns.varints(data, body + ATTRIBUTES_BYTES)
    offset_deltas, after = columns.varints(data, after)
    key_at, key_size, after = columns.spans(data, after)
    value_at, value_size, after = columns.spans(data, after)
    if (after >= ends).any():  # The number of headers is still to come.
        raise MalformedError("a field runs beyond its record")
    bases = np.array([header.base_offset for header in opened.headers], np.int64)
    offsets = np.repeat(bases, counts) + offset_deltas
    times, kinds = _times(opened, counts, time_deltas)
    made = {
        "key": columns.binary_column(data, key_at, key_size),
        "value": columns.binary_column(data, value_at, value_size),
        "topic": pa.repeat(pa.scalar(wanted.topic, pa.string()), len(at)),
        "partition": pa.array(np.full(len(at), wanted.partition, np.int32)),
        "offset": pa.array(offsets),
        "timestamp": _timestamps(times),
        "timestampType": pa.array(kinds),
    }
    if "headers" in schema.names:
        kind = schema.field("headers").type
        made["headers"], after = columns.headers_column(data, after, kind)
        if (after != ends).any():
            raise MalformedError("a record's headers do not end where it does")
    whole = pa.RecordBatch.from_arrays([made[name] for name in schema.names], schema=schema)
    return _only(whole, offsets, times, wanted)


def _starts(opened: _Opened) -> Positions:
    pieces: list[Positions] = []
    for header, (start, end) in zip(opened.headers, opened.bounds, strict=True):
        pieces += record_starts(opened.data, start, end, header.record_count)
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def _times(opened: _Opened, counts: list[int], deltas: Numbers) -> tuple[Numbers, Any]:
    """Milliseconds and `timestampType` of each record; the broker's time is one for a whole batch."""
    bases = np.array([header.base_timestamp for header in opened.headers], np.int64)
    by_broker = np.array([header.has_log_append_time for header in opened.headers], np.bool_)
    if not by_broker.any():
        return np.repeat(bases, counts) + deltas, np.full(len(deltas), CREATE_TIME, np.int32)
    newest = np.array([header.max_timestamp for header in opened.headers], np.int64)
    is_append: Flags = np.repeat(by_broker, counts)
    times = np.where(is_append, np.repeat(newest, counts), np.repeat(bases, counts) + deltas)
    kinds = np.where(is_append, LOG_APPEND_TIME, CREATE_TIME).astype(np.int32)
    return times, kinds


def _timestamps(times: Numbers) -> Any:
    kind = pa.timestamp("us", "UTC")
    return pa.Array.from_buffers(kind, len(times), [None, pa.py_buffer(times * 1000)])


def _only(whole: Any, offsets: Numbers, times: Numbers, wanted: Wanted) -> Any:
    """The rows within the wanted bounds. Offsets rise, so theirs is a slice."""
    low = int(np.searchsorted(offsets, wanted.start))
    high = int(np.searchsorted(offsets, wanted.end))
    part = whole if high - low == len(offsets) else whole.slice(low, high - low)
    if wanted.time_min is None and wanted.time_max is None:
        return part
    inside = times[low:high]
    keep = np.ones(len(inside), np.bool_)
    if wanted.time_min is not None:
        keep &= inside >= wanted.time_min
    if wanted.time_max is not None:
        keep &= inside <= wanted.time_max
    return part if keep.all() else part.filter(pa.array(keep))
