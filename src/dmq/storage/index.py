"""The sparse indexes of one segment, byte-compatible with Kafka's .index and .timeindex files.

An offset entry is (last offset of a batch, byte at which that batch begins); a time entry is
(greatest timestamp so far, last offset of the batch that has it). One entry per
`index_interval_bytes` of log. Derived, never truth: what is read from a file is checked against
the log before it is believed, and made anew from the log when in doubt (segment.py).
"""

import sys
from array import array
from bisect import bisect_left, bisect_right

_OFFSET_ENTRY_BYTES = 8
_TIME_ENTRY_BYTES = 12
RELATIVE_OFFSET_MAX = 2**31 - 1


class Index:
    """Both indexes in memory; offsets are relative to the segment's base."""

    __slots__ = (
        "covered",
        "max_offset",
        "max_timestamp",
        "offsets",
        "positions",
        "since",
        "time_offsets",
        "times",
    )

    def __init__(self) -> None:
        self.offsets = array("I")
        self.positions = array("I")
        self.times = array("q")
        self.time_offsets = array("I")
        self.since = 0
        """Bytes since the last entry."""
        self.covered = 0
        """Bytes of the segment that the index speaks of."""
        self.max_timestamp = -1
        self.max_offset = 0
        """Last offset of the batch that has the greatest timestamp."""

    def note(
        self, position: int, length: int, last: int, max_timestamp: int, interval_bytes: int
    ) -> None:
        """A batch of `length` bytes at `position`; `last` is its last offset, relative."""
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_offset = last
        if self.since > interval_bytes:
            self.offsets.append(last)
            self.positions.append(position)
            self.note_time()
            self.since = 0
        self.since += length
        self.covered = position + length

    def note_time(self) -> None:
        """An entry for the greatest timestamp so far, if it is news."""
        if self.max_timestamp > (self.times[-1] if self.times else -1):
            self.times.append(self.max_timestamp)
            self.time_offsets.append(self.max_offset)

    def entries(self) -> int:
        return len(self.offsets)

    def floor(self, relative: int) -> tuple[int, int] | None:
        """The greatest (offset, position) whose offset is <= `relative`."""
        at = bisect_right(self.offsets, relative) - 1
        return (self.offsets[at], self.positions[at]) if at >= 0 else None

    def ceiling(self, position: int) -> tuple[int, int] | None:
        """The first (offset, position) whose position is >= `position`."""
        at = bisect_left(self.positions, position)
        return (self.offsets[at], self.positions[at]) if at < len(self.positions) else None

    def time_floor(self, timestamp: int) -> tuple[int, int] | None:
        """The greatest (timestamp, offset) whose timestamp is below `timestamp`."""
        at = bisect_left(self.times, timestamp) - 1
        return (self.times[at], self.time_offsets[at]) if at >= 0 else None

    def cut(self, size: int, end: int) -> None:
        """Forget what lies at or beyond byte `size`, offset `end` (relative).

        Leaves the index covering only up to its last entry: what follows is looked at again.
        """
        keep = bisect_left(self.positions, size)
        del self.offsets[keep:], self.positions[keep:]
        keep = bisect_left(self.time_offsets, end)
        del self.times[keep:], self.time_offsets[keep:]
        self.rewind()

    def rewind(self) -> None:
        """Believe only up to the last entry."""
        self.covered = self.positions[-1] if self.positions else 0
        self.since = 0
        if self.times:
            self.max_timestamp, self.max_offset = self.times[-1], self.time_offsets[-1]
        else:
            self.max_timestamp, self.max_offset = -1, 0

    def offset_bytes(self) -> bytes:
        """The .index file."""
        both = array("I", bytes(_OFFSET_ENTRY_BYTES * len(self.offsets)))
        both[0::2] = self.offsets
        both[1::2] = self.positions
        return _big_endian(both).tobytes()

    def time_bytes(self) -> bytes:
        """The .timeindex file."""
        times = _big_endian(array("q", self.times)).tobytes()
        offsets = _big_endian(array("I", self.time_offsets)).tobytes()
        out = bytearray(_TIME_ENTRY_BYTES * len(self.times))
        for byte in range(8):
            out[byte::_TIME_ENTRY_BYTES] = times[byte::8]
        for byte in range(4):
            out[8 + byte :: _TIME_ENTRY_BYTES] = offsets[byte::4]
        return bytes(out)


def load(offset_raw: bytes, time_raw: bytes, size: int) -> Index:
    """From files' bytes, up to the first entry that makes no sense or is not below `size`."""
    index = Index()
    whole = len(offset_raw) - len(offset_raw) % _OFFSET_ENTRY_BYTES
    both = _big_endian(array("I", offset_raw[:whole]))
    index.offsets, index.positions = both[0::2], both[1::2]
    keep = min(
        _rising(index.offsets, -1), _rising(index.positions, 0), _below(index.positions, size)
    )
    del index.offsets[keep:], index.positions[keep:]
    count = len(time_raw) // _TIME_ENTRY_BYTES
    times, offsets = bytearray(8 * count), bytearray(4 * count)
    for byte in range(8):
        times[byte::8] = time_raw[byte : _TIME_ENTRY_BYTES * count : _TIME_ENTRY_BYTES]
    for byte in range(4):
        offsets[byte::4] = time_raw[8 + byte : _TIME_ENTRY_BYTES * count : _TIME_ENTRY_BYTES]
    index.times = _big_endian(array("q", bytes(times)))
    index.time_offsets = _big_endian(array("I", bytes(offsets)))
    keep = min(_rising(index.times, -1), _rising(index.time_offsets, -1))
    keep = min(keep, bisect_right(index.time_offsets, index.offsets[-1])) if index.offsets else 0
    del index.times[keep:], index.time_offsets[keep:]
    index.rewind()
    return index


def _big_endian(values: "array[int]") -> "array[int]":
    if sys.byteorder == "little":
        values = values[:]
        values.byteswap()
    return values


def _rising(values: "array[int]", above: int) -> int:
    """How many of `values` rise strictly from `above`."""
    before = above
    for count, value in enumerate(values):
        if value <= before:
            return count
        before = value
    return len(values)


def _below(values: "array[int]", limit: int) -> int:
    return next((at for at, value in enumerate(values) if value >= limit), len(values))
