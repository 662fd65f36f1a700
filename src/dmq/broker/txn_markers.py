"""The bytes of a transaction's end: a control batch with one record, as Kafka writes it.

    key    version 2 bytes · type 2 bytes (0 abort, 1 commit)
    value  version 2 bytes · coordinator epoch 4 bytes

Written by leaders when a coordinator tells them; read back when producer state is built from a log, and
by followers. Readers skip control batches that are neither, as Kafka's do. Decides nothing.
"""

import struct

from dmq.machines.producers.entries import Marker
from dmq.records import (
    CONTROL,
    TRANSACTIONAL,
    BatchHeader,
    Bytes,
    Record,
    build_batch,
    iterate,
)

ABORT, COMMIT = 0, 1

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_VERSION = 0


def build_marker(
    producer_id: int, producer_epoch: int, marker: Marker, now: int, base_offset: int = 0
) -> bytearray:
    """A batch to append; `now` is wall time."""
    key = _KEY.pack(_VERSION, COMMIT if marker.is_commit else ABORT)
    value = _VALUE.pack(_VERSION, marker.coordinator_epoch)
    return build_batch(
        [Record(base_offset, now, key, value)],
        attributes=CONTROL | TRANSACTIONAL,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )


def read_marker(batch: Bytes, at: int, header: BatchHeader) -> Marker | None:
    """What the control batch at `at` says; None if it ends no transaction, or if compaction took its
    record. Raises BatchError on bytes that are no record."""
    for record in iterate(batch, at, header):
        key, value = record.key or b"", record.value or b""
        if len(key) < _KEY.size or len(value) < _VALUE.size:
            return None
        kind = _KEY.unpack_from(key)[1]
        if kind not in (ABORT, COMMIT):
            return None
        return Marker(kind == COMMIT, _VALUE.unpack_from(value)[1])
    return None
