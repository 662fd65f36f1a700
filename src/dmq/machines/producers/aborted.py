"""The abort index: which transactions of a partition were aborted, and where their records lie.

Gets an entry when an abort marker is **committed**, so nothing in it is ever taken back; loses
entries only as the log's start moves past their markers. Packed: 32 bytes for each aborted
transaction that the log still holds. Never looks at a record.

Called by state.py; Fetch asks it, so that readers of committed records know what to skip.
"""

import struct
from typing import NamedTuple

_ENTRY = struct.Struct(">qqqq")


class AbortedTxn(NamedTuple):
    """An aborted transaction, from its first record to its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    """Of the marker."""
    last_stable_offset: int
    """When the marker was committed: what aborts later begins there or later."""


class AbortIndex:
    """Aborted transactions in the order of their markers."""

    __slots__ = ("_packed",)

    def __init__(self, packed: bytes = b"") -> None:
        self._packed = bytearray(packed)

    def __len__(self) -> int:
        return len(self._packed) // _ENTRY.size

    def add(self, aborted: AbortedTxn) -> None:
        assert not self._packed or self._at(len(self) - 1).last_offset < aborted.last_offset
        self._packed += _ENTRY.pack(*aborted)

    def overlapping(self, start: int, end: int) -> list[AbortedTxn]:
        """Those with records in [start, end), in the order of their markers."""
        found: list[AbortedTxn] = []
        for index in range(self._first_from(start), len(self)):
            aborted = self._at(index)
            if aborted.first_offset < end:
                found.append(aborted)
            if aborted.last_stable_offset >= end:
                break  # All that were aborted later begin at that offset or beyond.
        return found

    def trim(self, log_start: int) -> None:
        """Forget transactions that lie below the log's start altogether."""
        if self._packed:
            del self._packed[: self._first_from(log_start) * _ENTRY.size]

    def pack(self) -> bytes:
        """All entries as bytes, for the constructor."""
        return bytes(self._packed)

    def _at(self, index: int) -> AbortedTxn:
        return AbortedTxn._make(_ENTRY.unpack_from(self._packed, index * _ENTRY.size))

    def _first_from(self, offset: int) -> int:
        """Index of the first entry whose marker is at `offset` or beyond."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self._at(middle).last_offset < offset:
                low = middle + 1
            else:
                high = middle
        return low
