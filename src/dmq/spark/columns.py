"""Arrow columns out of the bytes of many records: vectors of positions, never an object per record.

A varint column is decoded for all records at once: the loop is over the bytes of a varint, not over
the records. A column of bytes is one gather in C++. Called by `decode` alone.
"""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dmq.spark.starts import Bytes, MalformedError, Positions

Numbers = NDArray[np.int64]
Flags = NDArray[np.bool_]

_VARINT_BYTES_MAX = 10


def varints(data: Bytes, at: Positions) -> tuple[Numbers, Positions]:
    """The zigzag numbers at these positions, and the positions behind them."""
    first = data[at]
    more = first >= 0x80
    values = first.astype(np.int64)
    if not more.any():
        return _unzigzag(values), at + 1
    # Two bytes are read of every number: most columns have both kinds, and choosing costs more.
    second = np.take(data, at + 1, mode="clip")
    values = np.where(more, (values & 0x7F) | ((second.astype(np.int64) & 0x7F) << 7), values)
    after = at + 1 + more
    longer = np.flatnonzero(more & (second >= 0x80))
    if len(longer):
        _rest(data, values, after, longer)
    return _unzigzag(values), after


def _rest(data: Bytes, values: Numbers, after: Positions, longer: Positions) -> None:
    """Bytes from the third on, of the few numbers that have them, in place."""
    for size in range(2, _VARINT_BYTES_MAX):
        byte = data[after[longer]]
        values[longer] |= (byte.astype(np.int64) & 0x7F) << (7 * size)
        after[longer] += 1
        longer = longer[byte >= 0x80]
        if not len(longer):
            return
    raise MalformedError("a number has too many bytes")


def _unzigzag(values: Numbers) -> Numbers:
    if values.size and values.min() >= 0:
        return (values >> 1) ^ -(values & 1)
    # The sign bit of a number of ten bytes is part of its value here.
    return (values >> 1 & np.int64(0x7FFF_FFFF_FFFF_FFFF)) ^ -(values & 1)


def spans(data: Bytes, at: Positions) -> tuple[Positions, Numbers, Positions]:
    """Length-prefixed bytes: where they start, how long they are (-1: null), what follows."""
    lengths, starts = varints(data, at)
    if lengths.size and lengths.max() > len(data):  # Sums with larger ones could wrap around.
        raise MalformedError("a field is longer than its batch")
    if lengths.size and lengths.min() < 0:
        if lengths.min() < -1:
            raise MalformedError("a field has a negative length")
        return starts, lengths, starts + np.maximum(lengths, 0)
    return starts, lengths, starts + lengths


def binary_column(data: Bytes, starts: Positions, lengths: Numbers) -> Any:
    """The bytes of all spans as an Arrow array; a length of -1 is null.

    Start and end of each span are laid out as the offsets of an array of twice the length over the
    whole buffer: its even slots are the values. Taking them is one copy, done by Arrow.
    """
    count = len(starts)
    nulls = lengths < 0
    has_nulls = bool(nulls.any())
    if nulls.all():  # Of none, too.
        return pa.nulls(count, pa.binary())
    if has_nulls:
        lengths = np.where(nulls, 0, lengths)
    edges = np.empty(2 * count + 1, np.int32)
    edges[0:-1:2] = starts
    edges[1::2] = starts + lengths
    edges[-1] = edges[-2]
    doubled = pa.Array.from_buffers(
        pa.binary(), 2 * count, [None, pa.py_buffer(edges), pa.py_buffer(data)]
    )
    slots = np.arange(0, 2 * count, 2, dtype=np.int32)
    return doubled.take(pa.array(slots, mask=nulls) if has_nulls else pa.array(slots))


def text_column(data: Bytes, starts: Positions, lengths: Numbers) -> Any:
    """The same as strings. Bytes that are no UTF-8 become U+FFFD, as in Java's client."""
    raw = binary_column(data, starts, lengths)
    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:
        texts = (None if one is None else one.decode("utf-8", "replace") for one in raw.to_pylist())
        return pa.array(list(texts), pa.string())


def headers_column(data: Bytes, at: Positions, kind: Any) -> tuple[Any, Positions]:
    """The headers of all records as lists of (key, value), null where there are none, and the ends.

    `kind` is the Arrow type of the column. The loop is over the headers of the record that has most.
    """
    counts, after = varints(data, at)
    if counts.size and counts.min() < 0:
        raise MalformedError("a record has a negative number of headers")
    firsts = np.zeros(len(at) + 1, np.int64)
    np.cumsum(counts, out=firsts[1:])
    total = int(firsts[-1])
    if total > len(data):
        raise MalformedError("more headers than bytes")
    key_at, key_size, value_at, value_size = (np.zeros(total, np.int64) for _ in range(4))
    rows, number = np.flatnonzero(counts), 0
    while len(rows):
        slots = firsts[rows] + number
        key_at[slots], key_size[slots], after[rows] = spans(data, after[rows])
        value_at[slots], value_size[slots], after[rows] = spans(data, after[rows])
        number += 1
        rows = rows[counts[rows] > number]
    if (key_size < 0).any():
        raise MalformedError("a header without a name")
    pairs = pa.StructArray.from_arrays(
        [text_column(data, key_at, key_size), binary_column(data, value_at, value_size)],
        fields=[kind.value_type.field(0), kind.value_type.field(1)],
    )
    there = pa.py_buffer(np.packbits(counts > 0, bitorder="little"))
    lists = [there, pa.py_buffer(firsts.astype(np.int32))]
    return pa.Array.from_buffers(kind, len(at), lists, children=[pairs]), after
