"""Where the records of an opened batch begin: the one step that has to go from record to record.

Records have no index: each says its length, and the next one begins behind it. Producers of like
records make runs of equal lengths, and a run is found by comparing length prefixes at a stride, many
at once. Exact either way: that record k+1 of a run begins where it is looked for follows from the
length of record k. Where runs keep missing, a plain loop over the length prefixes goes on.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Positions = NDArray[np.int64]

RUN_MAX = 4096
"""Records looked at in one comparison: more would touch memory that is not in a cache."""
RUN_MIN = 8
"""A shorter run is not worth its comparison."""
PROBE = 16
MISSES_MAX = 6
"""Short runs in a row after which the loop goes on alone."""
_PREFIX_BYTES_MAX = 3
"""Lengths of more bytes belong to records of a megabyte: these come alone."""
_LENGTH_BYTES_MAX = 5


class MalformedError(Exception):
    """The bytes are not the records that their batch announces."""


def record_starts(data: Bytes, start: int, end: int, count: int) -> list[Positions]:
    """Positions of the length prefixes of `count` records in data[start:end], in pieces.

    Raises MalformedError unless exactly `count` records fill the bytes.
    """
    found: list[Positions] = []
    at, left, misses = start, count, 0
    while left and misses < MISSES_MAX:
        stride, prefix_size = _length(data, at, end)
        run = 1
        if left > RUN_MIN and prefix_size <= _PREFIX_BYTES_MAX:
            run = _run(data, at, end, stride, prefix_size, left)
        found.append(np.arange(at, at + run * stride, stride, dtype=np.int64))
        misses = 0 if run > RUN_MIN else misses + 1
        at += run * stride
        left -= run
    if left:
        found.append(np.array(_loop(data[at:end].tobytes(), left), np.int64) + at)
        last = int(found[-1][-1])
        at = last + _length(data, last, end)[0]
    if at != end:
        raise MalformedError(f"{count} records end at byte {at - start}, not {end - start}")
    return found


def _length(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """Bytes from a record's prefix to the next record, and bytes of the prefix itself."""
    value = 0
    for size in range(1, _LENGTH_BYTES_MAX + 1):
        if at + size > end:
            break
        byte = int(data[at + size - 1])
        value |= (byte & 0x7F) << (7 * (size - 1))
        if byte < 0x80:
            whole = size + (value >> 1)
            if value & 1 or at + whole > end:
                break
            return whole, size
    raise MalformedError("a record's length runs beyond its batch")


def _run(data: Bytes, at: int, end: int, stride: int, prefix_size: int, left: int) -> int:
    """How many records from `at` on have the same length prefix."""
    fits = min(left, RUN_MAX, (end - at) // stride)
    run = _equal(data, at, stride, prefix_size, min(PROBE, fits))
    if run < min(PROBE, fits) or fits <= PROBE:
        return run
    return _equal(data, at, stride, prefix_size, fits)


def _equal(data: Bytes, at: int, stride: int, prefix_size: int, fits: int) -> int:
    stop = at + stride * (fits - 1) + 1
    same: Any = data[at:stop:stride] == data[at]
    for byte in range(1, prefix_size):
        same &= data[at + byte : stop + byte : stride] == data[at + byte]
    return fits if same.all() else int(same.argmin())


def _loop(data: bytes, count: int) -> list[int]:
    """Positions of `count` records from the first byte on."""
    found: list[int] = []
    add, at = found.append, 0
    try:
        for _ in range(count):
            add(at)
            byte = data[at]
            if byte < 0x80:
                at += 1 + (byte >> 1)
                continue
            second = data[at + 1]
            if second < 0x80:
                at += 2 + ((byte & 0x7F | second << 7) >> 1)
                continue
            at += _long_length(data, at)
    except IndexError:
        raise MalformedError("a record's length runs beyond its batch") from None
    return found


def _long_length(data: bytes, at: int) -> int:
    value = 0
    for size in range(_LENGTH_BYTES_MAX):
        byte = data[at + size]
        value |= (byte & 0x7F) << (7 * size)
        if byte < 0x80:
            return size + 1 + (value >> 1)
    raise MalformedError("a record's length has too many bytes")
