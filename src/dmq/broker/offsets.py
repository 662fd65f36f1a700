"""The verb `list_offset`: an offset by time, or an end of the log.

A time leads by the time index to at most one batch, whose records must be opened to find the first
that is new enough: that is the caller's, in a thread, because it may take long (`Sought.open`).
What depends on where the log ends is told by a leader whose lease stands, or when a majority has
answered it since (SPEC §5): else one that was deposed and does not know it would tell an old end.
"""

from typing import NamedTuple

from dmq.broker.answer import Answer
from dmq.broker.partition import Partition
from dmq.errors import ErrorCode, KafkaError
from dmq.records import glance, open_batch, read_header
from dmq.storage.reading import FoundBatch

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6


class FoundOffset(NamedTuple):
    """-1 in all fields: there is none."""

    offset: int = -1
    timestamp: int = -1
    leader_epoch: int = -1


class Unsure(NamedTuple):
    """The leader may have been deposed: ask again when that is known not to be."""

    newest: Answer[None]


class Sought(NamedTuple):
    """A batch that has the record, if there is one."""

    batch: FoundBatch
    timestamp: int
    start: int
    end: int
    """Offsets of the log between which the record must lie."""

    def open(self) -> FoundOffset:
        """The first record of that time or later. Blocks. Raises BatchError, OSError."""
        data = self.batch.slice.pread()
        header = read_header(data)
        base, first = header.base_offset, header.base_timestamp
        for seen in glance(bytes(open_batch(data, 0, header)), header.record_count):
            offset = base + seen.offset_delta
            time = header.max_timestamp if header.has_log_append_time else first + seen.time_delta
            if time >= self.timestamp and offset >= self.start:
                return FoundOffset(offset, time, self.batch.epoch) if offset < self.end else NONE
        return NONE


NONE = FoundOffset()


def list_offset(
    partition: Partition, timestamp: int, *, committed_only: bool = False, is_sure: bool = False
) -> FoundOffset | Sought | Unsure:
    """The offset that `timestamp` (or one of the names above) stands for. Raises KafkaError.

    `committed_only`: for readers of committed transactions the log ends where one is undecided.
    `is_sure`: an `Unsure` answer was waited for.
    """
    partition.check_leads()
    if not partition.is_serving:
        raise KafkaError(
            ErrorCode.OFFSET_NOT_AVAILABLE, "the leader does not know its high watermark yet"
        )
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = partition.log_start_offset
        return FoundOffset(start, -1, partition.epoch_at(start))
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return NONE
    if not is_sure and not partition.is_newest():
        return Unsure(partition.newest())
    end = partition.last_stable_offset() if committed_only else partition.high_watermark
    if timestamp == LATEST:
        return FoundOffset(end, -1, partition.leader_epoch)
    if timestamp == MAX_TIMESTAMP:  # The first of the newest among the committed ones (KIP-734).
        newest = partition.log.find_max_timestamp(end)
        return NONE if newest is None else _sought(partition, newest, newest.max_timestamp, end)
    if timestamp < 0:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION, f"{timestamp} is no timestamp and names no offset"
        )
    found = partition.log.find_timestamp(timestamp, end)
    return NONE if found is None else _sought(partition, found, timestamp, end)


def _sought(partition: Partition, batch: FoundBatch, timestamp: int, end: int) -> Sought:
    return Sought(batch, timestamp, partition.log_start_offset, end)
