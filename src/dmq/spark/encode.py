"""Arrow columns → record batches (format v2), without a Python object per record.

The work is done by column: all lengths, all varints of one field, all keys and all values at once,
for all partitions together. `Rows` are columns sorted by partition, `Segment`s say which rows go to
one; `encode` cuts these into batches of at most so many bytes. Never does input or output. What the
bytes mean is told in `dmq.records`, which the tests hold this module against.
"""

import itertools
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c

from dmq.codecs import Codec, compress
from dmq.records import HEADER_SIZE, LENGTH_OVERHEAD, MAGIC, NO_PRODUCER_ID, TRANSACTIONAL

Integers = npt.NDArray[np.int64]
Octets = npt.NDArray[np.uint8]
Field = tuple[Octets, Integers]
"""One field of all records: a matrix of bytes, a row per record, and how many of a row count."""

BATCH_BYTES_MAX = 1_000_000
"""Below the 1 MiB that brokers take by default (`message.max.bytes`)."""
RECORD_OVERHEAD_MAX = 36
"""Six varints of at most 5 bytes, the attributes' byte, and some air for the largest of them."""

_FRONT = struct.Struct(">qiibI")
_COVERED = struct.Struct(">hiqqqhii")


@dataclass(frozen=True)
class Rows:
    """Records of one partition, as columns of the same length; keys, values and headers have nulls."""

    value: Any
    key: Any | None = None
    headers: Any | None = None

    def __len__(self) -> int:
        return len(self.value)

    def take(self, order: Any) -> "Rows":
        """These rows in another order."""
        return Rows(
            self.value.take(order),
            None if self.key is None else self.key.take(order),
            None if self.headers is None else self.headers.take(order),
        )

    def slice(self, start: int, count: int) -> "Rows":
        """Some of them, without copying."""
        return Rows(
            self.value.slice(start, count),
            None if self.key is None else self.key.slice(start, count),
            None if self.headers is None else self.headers.slice(start, count),
        )

    def sizes(self) -> Integers:
        """Bytes of each row's key and value, and of its headers, roughly."""
        sizes = np.maximum(_lengths(self.value), 0)
        if self.key is not None:
            sizes += np.maximum(_lengths(self.key), 0)
        if self.headers is not None:
            sizes += _header_sizes(self.headers)
        return sizes


@dataclass(frozen=True)
class Producer:
    """Who writes: -1 for nobody in particular."""

    id: int = NO_PRODUCER_ID
    epoch: int = -1
    is_transactional: bool = False


@dataclass(frozen=True)
class Batch:
    """Bytes ready to be sent, and the records in them."""

    data: bytes
    count: int


@dataclass
class Segment:
    """Rows from `start` to before `stop` that go to one partition; `sequence` is the first one's."""

    start: int
    stop: int
    sequence: int = -1


@dataclass(frozen=True)
class Packing:
    """How batches are made: the producer in their headers, the codec, and how large they may be."""

    producer: Producer
    codec: int = Codec.NONE
    bytes_max: int = BATCH_BYTES_MAX


def encode(
    rows: Rows, segments: list[Segment], packing: Packing, timestamp_ms: int
) -> Iterator[tuple[int, Batch]]:
    """Batches of all segments in their order, each with its segment's index.

    A batch is larger than `bytes_max` only if a single record is.
    """
    if not len(rows):
        return
    sizes = rows.sizes() + RECORD_OVERHEAD_MAX
    ends = np.cumsum(sizes)
    bytes_max = packing.bytes_max - HEADER_SIZE
    cuts = [cut(ends, each.start, each.stop, bytes_max) for each in segments]
    firsts = np.array([first for part in cuts for first in part[:-1]], dtype=np.int64)
    counts = np.diff(np.append(firsts, len(rows)))
    deltas = np.arange(len(rows), dtype=np.int64) - np.repeat(firsts, counts)
    body, bounds = _records(rows, deltas)
    for index, (segment, part) in enumerate(zip(segments, cuts, strict=True)):
        sequence = segment.sequence
        for first, last in itertools.pairwise(part):
            records = body[int(bounds[first]) : int(bounds[last])]
            yield index, _seal(records, last - first, sequence, packing, timestamp_ms)
            if sequence >= 0:
                sequence = next_sequence(sequence, last - first)


def _seal(
    records: memoryview, count: int, sequence: int, packing: Packing, timestamp_ms: int
) -> Batch:
    codec, producer = packing.codec, packing.producer
    packed = records if codec == Codec.NONE else compress(codec, bytes(records))
    covered = _COVERED.pack(
        codec | (TRANSACTIONAL if producer.is_transactional else 0),
        count - 1,
        timestamp_ms,
        timestamp_ms,
        producer.id,
        producer.epoch,
        sequence,
        count,
    )
    front = _FRONT.pack(
        0,
        HEADER_SIZE - LENGTH_OVERHEAD + len(packed),
        -1,
        MAGIC,
        crc32c(packed, crc32c(covered)),
    )
    return Batch(b"".join((front, covered, packed)), count)


def next_sequence(sequence: int, count: int) -> int:
    """Sequence numbers begin again at 0 after the largest of 31 bits."""
    return (sequence + count) & 0x7FFFFFFF


def cut(ends: Integers, start: int, stop: int, bytes_max: int) -> list[int]:
    """Bounds of parts of the rows from `start` to `stop`, none larger than that; `ends` are sums.

    A row that is too large by itself makes a part of its own.
    """
    bounds = [start]
    while start < stop:
        before = int(ends[start - 1]) if start else 0
        fits = int(np.searchsorted(ends, before + bytes_max, side="right"))
        start = min(max(fits, start + 1), stop)
        bounds.append(start)
    return bounds


def varints(values: Integers) -> Field:
    """Zigzag varints of all values: the loop is over bytes of a varint, not over values."""
    zigzag = ((values << 1) ^ (values >> 63)).view(np.uint64)
    lengths = np.ones(len(values), dtype=np.int64)
    largest, width = int(zigzag.max(initial=0)), 1
    while largest >> (7 * width):
        lengths += zigzag >= np.uint64(1 << (7 * width))
        width += 1
    octets = np.empty((len(values), width), dtype=np.uint8)
    for at in range(width):
        octets[:, at] = (zigzag >> np.uint64(7 * at)).astype(np.uint8) & 0x7F
        octets[:, at] |= (lengths > at + 1).astype(np.uint8) << 7
    return octets, lengths


def _records(rows: Rows, deltas: Integers) -> tuple[memoryview, npt.NDArray[np.int32]]:
    """All records one behind the other, and where each begins (one more: where the last ends)."""
    count = len(rows)
    key_sizes = np.full(count, -1, np.int64) if rows.key is None else _lengths(rows.key)
    value_sizes = _lengths(rows.value)
    time_delta: Field = (np.zeros((count, 1), np.uint8), np.ones(count, np.int64))
    offset_delta, key_size, value_size = varints(deltas), varints(key_sizes), varints(value_sizes)
    tail = _tail(rows.headers, count)
    size = 1 + time_delta[1] + offset_delta[1] + key_size[1] + value_size[1]
    size += np.maximum(key_sizes, 0) + np.maximum(value_sizes, 0) + _lengths(tail)
    attributes = time_delta  # The same byte of zero.
    front = [varints(size), attributes, time_delta, offset_delta, key_size]
    if rows.key is None or rows.key.null_count == count:
        parts = [_joined(*front, value_size)]
    else:
        parts = [_joined(*front), _filled(rows.key), _joined(value_size)]
    whole = pc.binary_join_element_wise(*parts, _filled(rows.value), tail, b"")
    _, offsets, data = whole.buffers()
    ends = np.frombuffer(offsets, np.int32)[whole.offset : whole.offset + count + 1]
    return memoryview(data), ends


def _joined(*fields: Field) -> Any:
    """Fields side by side, as one Arrow binary array."""
    count = len(fields[0][1])
    lengths = np.sum([each for _, each in fields], axis=0)
    octets = np.concatenate([each for each, _ in fields], axis=1)
    if int(lengths.sum()) != octets.size:
        mask = [np.arange(each.shape[1]) < lengths_[:, None] for each, lengths_ in fields]
        octets = octets[np.concatenate(mask, axis=1)]
    return _binary(count, _offsets(lengths), np.ascontiguousarray(octets))


def _tail(headers: Any | None, count: int) -> Any:
    """What comes behind the value: how many headers, and these."""
    if headers is None:
        zeros = np.zeros(count, np.uint8)
        return _binary(count, np.arange(count + 1, dtype=np.int32), zeros)
    counts = _header_counts(headers)
    each = pc.list_flatten(headers)
    names, values = pc.struct_field(each, [0]), pc.struct_field(each, [1])
    names, values = names.cast(pa.binary()), values.cast(pa.binary())
    encoded = pc.binary_join_element_wise(
        _joined(varints(_lengths(names))),
        names,
        _joined(varints(_lengths(values))),
        _filled(values),
        b"",
    )
    # The headers of a record lie side by side already: only the bounds differ.
    bounds = np.frombuffer(encoded.buffers()[1], np.int32)[: len(encoded) + 1]
    data = encoded.buffers()[2]
    octets = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    together = _binary(count, bounds[_offsets(counts)], octets)
    return pc.binary_join_element_wise(_joined(varints(counts)), together, b"")


def _header_counts(headers: Any) -> Integers:
    counts: Integers = np.asarray(pc.fill_null(pc.list_value_length(headers), 0)).astype(np.int64)
    return counts


def _header_sizes(headers: Any) -> Integers:
    each = pc.list_flatten(headers)
    sizes = np.maximum(_lengths(pc.struct_field(each, [0])), 0)
    sizes += np.maximum(_lengths(pc.struct_field(each, [1])), 0) + 10
    until = np.concatenate([[0], np.cumsum(sizes)])
    bounds = _offsets(_header_counts(headers)).astype(np.int64)
    found: Integers = until[bounds[1:]] - until[bounds[:-1]]
    return found


def _lengths(column: Any) -> Integers:
    """Bytes of each value, -1 for null."""
    lengths: Integers = np.asarray(pc.fill_null(pc.binary_length(column), -1)).astype(np.int64)
    return lengths


def _filled(column: Any) -> Any:
    return pc.fill_null(column, b"") if column.null_count else column


def _offsets(lengths: Integers) -> npt.NDArray[np.int32]:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _binary(count: int, offsets: npt.NDArray[np.int32], octets: Octets) -> Any:
    buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets)), pa.py_buffer(octets)]
    return pa.Array.from_buffers(pa.binary(), count, buffers)
