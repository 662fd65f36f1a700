"""Records of compacted topics: their keys and values follow from the number of the attempt.

So whoever finds a batch knows what its producer sent, whatever compaction has left of it. There are few
keys: most records are superseded soon, some by a tombstone. One key is longer than what compaction keeps
of keys in memory.
"""

from functools import cache, lru_cache
from typing import NamedTuple

from crc32c import crc32c
from sim import batches
from sim.batches import Entry

from dmq.records import HEADER, HEADER_SIZE, Record, build_batch, iterate_opened, read_header

FILLER = -1
"""The number of a batch without records, in the place of what compaction took from a sender's log."""
RECORDS_MAX = 3
"""In a batch."""
_KEYS = [b"a key that is longer than its digest", *(b"key%d" % n for n in range(5))]
_SHAPE = HEADER.pack(0, 0, 0, 2, 0, 0, 0, 0, 0, -1, -1, -1, 0)


class Sent(NamedTuple):
    """One record of an attempt."""

    key: bytes
    value: bytes | None
    """None: a tombstone."""


@cache
def records_of(number: int) -> tuple[Sent, ...]:
    """What the attempt with this number sends."""
    dice = crc32c(b"%d" % number)
    count, filling = (1, 1, 2, RECORDS_MAX)[dice & 3], (0, 20, 150)[(dice >> 2) % 3]
    return tuple(_record(number, n, filling) for n in range(count))


def _record(number: int, n: int, filling: int) -> Sent:
    dice = crc32c(b"%d %d" % (number, n))
    is_tombstone = (dice >> 8) % 6 == 0
    value = None if is_tombstone else b"%d %d " % (number, n) + b"x" * filling
    return Sent(_KEYS[dice % len(_KEYS)], value)


def make(number: int) -> bytearray:
    """The batch of this attempt; offset and epoch are still to be stamped."""
    return batches.pack(number, len(records_of(number)), _body(number))


@cache
def _body(number: int) -> bytes:
    records = [Record(n, 0, *sent) for n, sent in enumerate(records_of(number))]
    return bytes(build_batch(records)[HEADER_SIZE:])


def opened(entry: Entry) -> dict[int, Sent]:
    """The records of a batch that was read, by their offsets."""
    assert entry.content is not None
    count = read_header(entry.content).record_count
    return {entry.base + at: sent for at, sent in _open(entry.content[HEADER_SIZE:], count)}


@lru_cache(maxsize=10_000)
def _open(body: bytes, count: int) -> tuple[tuple[int, Sent], ...]:
    header = read_header(_SHAPE)._replace(record_count=count)
    records = iterate_opened(body, header)
    return tuple((r.offset, Sent(r.key or b"", r.value)) for r in records)
