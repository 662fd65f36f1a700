"""The committed producer state of a partition as bytes, and back.

    magic 4 · version 2 · crc-32c of the rest 4
    position 24 · producers 4 · aborted transactions 4
    per producer: id, epoch, last sequence, last timestamp, coordinator epoch, start of its open
    transaction, batches in the window (1), window
    aborted transactions, as their index packs them

A local shortcut: it spares a restart the scan of the whole log, and is never sent as a promise. A
version or a sum that does not fit makes the reader fall back to an older one, or to the log. Taking
a snapshot is cheap, since entries never change; `encode` takes longer and may run in a thread.
"""

import struct
from typing import NamedTuple

from crc32c import crc32c

from dmq.errors import CorruptError
from dmq.machines.producers.entries import BATCH_BYTES, WINDOW_BATCHES, Entry
from dmq.types import Position

MAGIC = b"dmqP"
VERSION = 1

_HEAD = struct.Struct(">4sHI")
_COUNTS = struct.Struct(">qqqII")
_PRODUCER = struct.Struct(">qhiqiqB")
_ABORTED_BYTES = 32


class ProducerSnapshot(NamedTuple):
    """Producer state at a committed position."""

    position: Position
    producers: list[tuple[int, Entry]]
    """By producer id, the longest idle first."""
    aborted: bytes

    def encode(self) -> bytes:
        body = bytearray(
            _COUNTS.pack(*self.position, len(self.producers), len(self.aborted) // _ABORTED_BYTES)
        )
        for producer_id, entry in self.producers:
            *numbers, window = entry
            body += _PRODUCER.pack(producer_id, *numbers, len(window) // BATCH_BYTES)
            body += window
        body += self.aborted
        return _HEAD.pack(MAGIC, VERSION, crc32c(body)) + body

    @staticmethod
    def decode(data: bytes) -> "ProducerSnapshot":
        """Raises CorruptError if the bytes are not what `encode` gave."""
        if len(data) < _HEAD.size + _COUNTS.size:
            raise CorruptError("a producer snapshot is cut short")
        magic, version, crc = _HEAD.unpack_from(data)
        if magic != MAGIC or version != VERSION:
            raise CorruptError(f"no producer snapshot that we know: {magic!r}, version {version}")
        if crc32c(memoryview(data)[_HEAD.size :]) != crc:
            raise CorruptError("a producer snapshot fails its CRC")
        *position, count, aborted_count = _COUNTS.unpack_from(data, _HEAD.size)
        at = _HEAD.size + _COUNTS.size
        producers: list[tuple[int, Entry]] = []
        for _ in range(count):
            producer_id, epoch, last, time, coordinator, start, batches = _PRODUCER.unpack_from(
                data, at
            )
            assert batches <= WINDOW_BATCHES
            at += _PRODUCER.size
            window = data[at : at + batches * BATCH_BYTES]
            at += len(window)
            producers.append((producer_id, Entry(epoch, last, time, coordinator, start, window)))
        assert len(data) - at == aborted_count * _ABORTED_BYTES, "its CRC said that it is whole"
        return ProducerSnapshot(Position(*position), producers, data[at:])
