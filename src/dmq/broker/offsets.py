"""The verb `list_offset`: an offset by time, or an end of the log.

Reads at most one batch: the time index leads to it and its records are opened to find the first that
is new enough.
"""

from typing import NamedTuple

from dmq.broker.partition import Partition
from dmq.errors import ErrorCode, KafkaError
from dmq.records import iterate

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


def list_offset(partition: Partition, timestamp: int) -> FoundOffset:
    """The offset that `timestamp` (or one of the names above) stands for. Raises KafkaError."""
    if not partition.is_serving:
        raise KafkaError(
            ErrorCode.OFFSET_NOT_AVAILABLE, "the leader does not know its high watermark yet"
        )
    if timestamp == LATEST:
        return FoundOffset(partition.high_watermark, -1, partition.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = partition.log_start_offset
        return FoundOffset(start, -1, partition.epoch_at(start))
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return FoundOffset()
    if timestamp == MAX_TIMESTAMP:
        return _newest(partition)
    if timestamp < 0:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION, f"{timestamp} is no timestamp and names no offset"
        )
    return _first_since(partition, timestamp)


def _first_since(partition: Partition, timestamp: int) -> FoundOffset:
    high_watermark = partition.high_watermark
    found = partition.log.find_timestamp(timestamp, high_watermark)
    if found is None:
        return FoundOffset()
    for record in iterate(found.slice.pread()):
        if record.timestamp >= timestamp and partition.log_start_offset <= record.offset:
            if record.offset >= high_watermark:
                break
            return FoundOffset(record.offset, record.timestamp, found.epoch)
    return FoundOffset()


def _newest(partition: Partition) -> FoundOffset:
    """The first record with the greatest timestamp among the committed ones (KIP-734)."""
    found = partition.log.find_max_timestamp(partition.high_watermark)
    if found is None:
        return FoundOffset()
    for record in iterate(found.slice.pread()):
        if record.timestamp == found.max_timestamp:
            return FoundOffset(record.offset, record.timestamp, found.epoch)
    return FoundOffset()
