"""Record batches for wire-level tests, built and read by aiokafka, and bent by hand.

Owns the layout of the 61-byte batch header as far as tests change it. Never uses the project's own
`records`. Called by the compat and hostile tests.
"""

import struct
import time
from typing import Any

import crc32c
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
# Where the fields of a batch are, and how wide (magic 2).
BASE_OFFSET = (0, ">q")
LENGTH = (8, ">i")
LEADER_EPOCH = (12, ">i")
MAGIC = (16, ">b")
CRC = (17, ">I")
ATTRIBUTES = (21, ">h")
LAST_OFFSET_DELTA = (23, ">i")
MAX_TIMESTAMP = (35, ">q")
COUNT = (57, ">i")
HEADER_BYTES = 61
Field = tuple[int, str]


def build(
    values: list[bytes | None],
    *,
    compression: str = "none",
    timestamp_ms: int | None = None,
    key: bytes | None = None,
) -> bytes:
    """One batch of records without headers, stamped one millisecond apart."""
    builder = DefaultRecordBatchBuilder(2, CODECS[compression], 0, -1, -1, -1, 1 << 26)
    first_ms = int(time.time() * 1000) if timestamp_ms is None else timestamp_ms
    for index, value in enumerate(values):
        assert builder.append(index, first_ms + index, key, value, []) is not None
    return bytes(builder.build())


def build_spread(first_ms: int, step_ms: int, count: int, *, compression: str = "none") -> bytes:
    """One batch of records whose timestamps are `step_ms` apart."""
    builder = DefaultRecordBatchBuilder(2, CODECS[compression], 0, -1, -1, -1, 1 << 20)
    for index in range(count):
        builder.append(index, first_ms + index * step_ms, None, b"x", [])
    return bytes(builder.build())


def build_old(magic: int, timestamp_ms: int | None = None) -> bytes:
    """One message in a format that is older than batches."""
    builder = LegacyRecordBatchBuilder(magic, 0, 1 << 20)
    builder.append(0, timestamp_ms or int(time.time() * 1000), None, b"old")
    return bytes(builder.build())


def changed(batch: bytes, field: Field, value: int, *, is_sealed: bool = True) -> bytes:
    """The batch with one field set; sealed means that the checksum says so too."""
    bent = bytearray(batch)
    offset, layout = field
    struct.pack_into(layout, bent, offset, value)
    return sealed(bytes(bent)) if is_sealed else bytes(bent)


def sealed(batch: bytes) -> bytes:
    """The batch with a correct checksum, whatever else is wrong with it."""
    bent = bytearray(batch)
    struct.pack_into(CRC[1], bent, CRC[0], crc32c.crc32c(bent[ATTRIBUTES[0] :]))
    return bytes(bent)


def field_of(batch: bytes, field: Field) -> int:
    (value,) = struct.unpack_from(field[1], batch, field[0])
    return int(value)


def batches_in(records: Any) -> list[bytes]:
    """The whole batches of a fetched slice; what may be cut off at its end is left out."""
    data = bytes(records or b"")
    found: list[bytes] = []
    while len(data) >= HEADER_BYTES:
        size = field_of(data, LENGTH) + 12
        if len(data) < size:
            break
        found.append(data[:size])
        data = data[size:]
    return found


def records_in(records: Any) -> list[tuple[int, int, bytes | None]]:
    """(offset, timestamp_ms, value) of every record in the whole batches of a fetched slice."""
    found: list[tuple[int, int, bytes | None]] = []
    for batch in batches_in(records):
        reader = MemoryRecords(batch)
        while reader.has_next():
            one = reader.next_batch()
            assert one.validate_crc()
            found += [(record.offset, record.timestamp, record.value) for record in one]
    return found
