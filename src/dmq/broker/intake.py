"""What a producer's batch must be before it may enter a topic's log, and what is changed in it.

Owns the topic's rules on batches: size, timestamps, codec, keys of compacted topics, full
validation. One `Intake` per topic, shared by its partitions, replaced when its settings change.
The common case (keep codec and times, check the header) opens no record. Opening a large batch takes
longer than the loop has: `must_open` says so before, and `admit` may then be called in a thread.
"""

from crc32c import crc32c

from dmq.codecs import Codec
from dmq.config.topic import TopicConfig
from dmq.errors import ErrorCode
from dmq.records import (
    CODEC_MASK,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME,
    MAGIC,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchError,
    BatchHeader,
    glance,
    open_batch,
    pack_anew,
    split_batches,
    stamp_append_time,
    validate_records,
)

_PLAIN_ATTRIBUTES = CODEC_MASK | TRANSACTIONAL

OPENED_BYTES_MAX = 64 * 1024 * 1024
"""A batch that must be opened may grow to this: 64 times the default limit on its packed size."""
GLANCES_MAX = 100
"""So many plain records are looked at in the loop: less than a switch of threads takes."""


class Intake:
    """The rules of one topic; see the module."""

    __slots__ = (
        "_after_ms",
        "_before_ms",
        "_bytes_max",
        "_codec",
        "_has_append_time",
        "_is_compacted",
        "_level",
        "_validates_fully",
        "config",
        "is_plain",
    )

    def __init__(self, config: TopicConfig) -> None:
        self.config = config
        self._bytes_max = config.max_message_bytes
        self._before_ms = config.message_timestamp_before_max_ms
        self._after_ms = config.message_timestamp_after_max_ms
        self._has_append_time = config.message_timestamp_type == "LogAppendTime"
        self._is_compacted = "compact" in config.cleanup_policy
        self._validates_fully = config.record_validation == "full"
        self._codec, self._level = _codec_of(config)
        self.is_plain = not (
            self._has_append_time
            or self._is_compacted
            or self._validates_fully
            or self._codec is not None
        )

    def must_open(self, data: memoryview) -> bool:
        """Whether `admit` will open this batch and take its time."""
        if self.is_plain or not HEADER_SIZE <= len(data) <= self._bytes_max:
            return False
        header = BatchHeader._make(HEADER.unpack_from(data))
        if self._packs_anew(header):
            return True
        opens = self._is_compacted or self._validates_fully
        return opens and (header.codec != Codec.NONE or header.record_count > GLANCES_MAX)

    def _packs_anew(self, header: BatchHeader) -> bool:
        return self._codec is not None and self._codec != header.codec

    def admit(self, data: memoryview, now: int) -> tuple[memoryview, int]:
        """(batch, append time or -1). Raises BatchError with the producer's code."""
        if self.is_plain and self._is_plainly_good(data, now):
            return data, -1
        return self._admit_with_care(data, now)

    def _is_plainly_good(self, data: memoryview, now: int) -> bool:
        """One look at the header and the CRC: the case of nearly every batch. Whoever fails here
        is looked at again, slowly, to be told why."""
        size = len(data)
        if not HEADER_SIZE <= size <= self._bytes_max:
            return False
        base, length, _, magic, crc, attributes, delta, first, newest, _, _, _, count = (
            HEADER.unpack_from(data)
        )
        return bool(
            magic == MAGIC
            and base == 0
            and length + LENGTH_OVERHEAD == size
            and count == delta + 1 > 0
            and attributes & ~_PLAIN_ATTRIBUTES == 0
            and attributes & CODEC_MASK <= Codec.ZSTD
            and now - self._before_ms <= first >= NO_TIMESTAMP
            and 0 <= newest <= now + self._after_ms
            and crc32c(data[CRC_START:]) == crc
        )

    def _admit_with_care(self, data: memoryview, now: int) -> tuple[memoryview, int]:
        """All checks in their order, each with its code."""
        headers = split_batches(data)
        if len(headers) != 1:
            raise BatchError(
                ErrorCode.INVALID_RECORD, "a produce request holds one batch per partition"
            )
        header = headers[0]
        if header.size > self._bytes_max:
            raise BatchError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"batch of {header.size} bytes is larger than max.message.bytes={self._bytes_max}",
            )
        if header.attributes & LOG_APPEND_TIME:
            raise BatchError(
                ErrorCode.INVALID_TIMESTAMP, "producers must not set the LogAppendTime flag"
            )
        if self.is_plain:
            self._check_times(header.base_timestamp, header.max_timestamp, now)
            return data, -1
        return self._admit_opened(data, header, now)

    def _check_times(self, first: int, newest: int, now: int) -> None:
        if newest != NO_TIMESTAMP and newest - now > self._after_ms:
            raise BatchError(
                ErrorCode.INVALID_TIMESTAMP,
                f"timestamp {newest} is more than message.timestamp.after.max.ms="
                f"{self._after_ms} ahead of the broker's {now}",
            )
        if first != NO_TIMESTAMP and now - first > self._before_ms:
            raise BatchError(
                ErrorCode.INVALID_TIMESTAMP,
                f"timestamp {first} is more than message.timestamp.before.max.ms="
                f"{self._before_ms} behind the broker's {now}",
            )

    def _admit_opened(
        self, data: memoryview, header: BatchHeader, now: int
    ) -> tuple[memoryview, int]:
        """Topics that open batches or change them."""
        packs_anew = self._packs_anew(header)
        if packs_anew or self._validates_fully or self._is_compacted:
            opened = bytes(open_batch(data, 0, header, OPENED_BYTES_MAX))
            if self._validates_fully:
                validate_records(opened, header)
            if self._is_compacted:
                _check_keys(opened, header)
            if packs_anew:
                data = self._pack(opened, header)
        if not self._has_append_time:
            self._check_times(header.base_timestamp, header.max_timestamp, now)
        if self._has_append_time:
            stamp_append_time(data, 0, now)
        return data, now if self._has_append_time else -1

    def _pack(self, opened: bytes, header: BatchHeader) -> memoryview:
        """The same batch in the topic's codec."""
        assert self._codec is not None
        batch = pack_anew(opened, header, self._codec, self._level)
        if len(batch) > self._bytes_max:
            raise BatchError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"batch grows to {len(batch)} bytes as {self.config.compression_type}, "
                f"max.message.bytes={self._bytes_max}",
            )
        return memoryview(batch)


def _check_keys(opened: bytes, header: BatchHeader) -> None:
    if not all(record.has_key for record in glance(opened, header.record_count)):
        raise BatchError(
            ErrorCode.INVALID_RECORD, "a compacted topic takes no record without a key"
        )


def _codec_of(config: TopicConfig) -> tuple[int | None, int | None]:
    """(codec, level) that the topic demands; None where the producer's choice stays."""
    name = config.compression_type
    if name == "producer":
        return None, None
    if name == "uncompressed":
        return Codec.NONE, None
    levels = {
        "gzip": config.compression_gzip_level,
        "lz4": config.compression_lz4_level,
        "zstd": config.compression_zstd_level,
    }
    return Codec[name.upper()], levels.get(name)
