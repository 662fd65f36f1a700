"""What a partition knows of one producer, and what its next batch or marker makes of that.

An `Entry` never changes: each batch makes a new one. So "before" and "after" of an uncommitted batch
are two references, a commit stores one and a cut goes back to the other. The window of batches that
a duplicate is looked for in lies packed in bytes: it is read when a sequence is not the next one,
which is rare, and 100,000 producers of five batches each must fit in memory.

Called by state.py and snapshot.py.
"""

import struct
from typing import NamedTuple

from dmq.records import TRANSACTIONAL, BatchHeader

NO_SEQUENCE = -1
NO_OFFSET = -1
NO_COORDINATOR_EPOCH = -1

SEQUENCE_MASK = 2**31 - 1
"""Sequences wrap to 0 after 2^31 - 1."""

WINDOW_BATCHES = 5
"""As many as a client may have in flight with idempotence; Kafka keeps the same number."""

_BATCH = struct.Struct(">iiqq")
"""First and last sequence, base offset, newest timestamp."""
BATCH_BYTES = _BATCH.size
_KEPT_BYTES = BATCH_BYTES * (WINDOW_BATCHES - 1)


class Entry(NamedTuple):
    """A producer at one position of the log."""

    epoch: int
    last_sequence: int
    """-1: none yet in this epoch."""
    last_timestamp: int
    coordinator_epoch: int
    """Of the last marker; -1: there was none."""
    txn_start: int
    """Base offset of the first batch of the open transaction; -1: none is open."""
    window: bytes
    """The last batches of this epoch, the newest last."""


class Marker(NamedTuple):
    """What a control batch says: the end of its producer's transaction."""

    is_commit: bool
    coordinator_epoch: int


class Recalled(NamedTuple):
    """A batch in the window."""

    base_offset: int
    timestamp: int


def sequence_after(sequence: int, count: int) -> int:
    """The sequence `count` records later."""
    return (sequence + count) & SEQUENCE_MASK


def is_before(sequence: int, other: int) -> bool:
    """Sequences go round: the shorter way decides."""
    return 0 < (other - sequence) & SEQUENCE_MASK <= SEQUENCE_MASK // 2


def recall(window: bytes, first: int, last: int) -> Recalled | None:
    """The batch with exactly these sequences, if it is among the last ones."""
    for kept_first, kept_last, base_offset, timestamp in _BATCH.iter_unpack(window):
        if kept_first == first and kept_last == last:
            return Recalled(base_offset, timestamp)
    return None


def newest_first_sequence(window: bytes) -> int:
    """First sequence of the newest batch in a window that is not empty."""
    first: int = _BATCH.unpack_from(window, len(window) - BATCH_BYTES)[0]
    return first


def after_batch(entry: Entry | None, header: BatchHeader) -> Entry:
    """The producer after one more batch of records."""
    base_offset, _, _, _, _, attributes, delta, _, timestamp, _, epoch, sequence, _ = header
    if entry is None:
        last, coordinator_epoch, txn_start, window = NO_SEQUENCE, NO_COORDINATOR_EPOCH, -1, b""
    else:
        was, last, _, coordinator_epoch, txn_start, window = entry
        if was != epoch:
            last, window = NO_SEQUENCE, b""
    if sequence >= 0:  # Coordinators write in a producer's name without sequences.
        last = (sequence + delta) & SEQUENCE_MASK
        window = window[-_KEPT_BYTES:] + _BATCH.pack(sequence, last, base_offset, timestamp)
    if txn_start < 0 and attributes & TRANSACTIONAL:
        txn_start = base_offset
    return Entry(epoch, last, timestamp, coordinator_epoch, txn_start, window)


def after_marker(entry: Entry | None, header: BatchHeader, marker: Marker) -> Entry:
    """The producer after the end of its transaction; a new epoch begins with sequence 0."""
    last, window = NO_SEQUENCE, b""
    if entry is not None and entry.epoch == header.producer_epoch:
        last, window = entry.last_sequence, entry.window
    return Entry(
        header.producer_epoch,
        last,
        header.max_timestamp,
        marker.coordinator_epoch,
        NO_OFFSET,
        window,
    )
