"""Which record batches of a fetched partition a reader may see, told by their headers alone.

Control batches and, with read_committed, batches of aborted transactions are dropped; a batch that is
cut short at the end of the answer is left for the next fetch. No record is looked at.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from dmq import records
from dmq.records import BatchHeader
from dmq.spark.failures import SparkSourceError
from dmq.wire.messages.k01_fetch import AbortedTransaction

ABORT = 0
"""The type of a control record that ends an aborted transaction."""
_MAGIC_AT = 16
_CONTROL_TYPE = struct.Struct(">hh")


class Batch(NamedTuple):
    """A batch with records for the reader: its header, and where it lies in the answer."""

    at: int
    header: BatchHeader


class Selection(NamedTuple):
    """The batches to decode, and the offset behind all that were there; None: nothing was."""

    batches: list[Batch]
    next_offset: int | None


def select(
    data: memoryview,
    aborted: Sequence[AbortedTransaction] | None,
    *,
    checks_crcs: bool,
    where: str,
) -> Selection:
    """Walk the headers in `data`. `aborted` is None for read_uncommitted.

    Raises SparkSourceError on bytes that are not what a producer sent.
    """
    found: list[Batch] = []
    next_offset = None
    transactions = _Aborted(aborted or ())
    for at, header in records.scan(data):
        _check(data, at, header, checks_crcs, where)
        next_offset = header.next_offset
        if header.is_control:
            transactions.meet_marker(data, at, header)
        elif header.record_count and not transactions.has(header):
            found.append(Batch(at, header))
    if next_offset is None and len(data) > _MAGIC_AT:
        _check_format(data[_MAGIC_AT], where)
    return Selection(found, next_offset)


class _Aborted:
    """Which producers' records are to be dropped, while headers go by in offset order."""

    def __init__(self, aborted: Sequence[AbortedTransaction]) -> None:
        self._to_come = sorted(aborted, key=lambda one: one.first_offset, reverse=True)
        self._open: set[int] = set()

    def has(self, header: BatchHeader) -> bool:
        if not header.is_transactional:
            return False
        self._advance(header)
        return header.producer_id in self._open

    def meet_marker(self, data: memoryview, at: int, header: BatchHeader) -> None:
        self._advance(header)
        if header.producer_id in self._open and _control_type(data, at, header) == ABORT:
            self._open.discard(header.producer_id)

    def _advance(self, header: BatchHeader) -> None:
        while self._to_come and self._to_come[-1].first_offset <= header.last_offset:
            self._open.add(self._to_come.pop().producer_id)


def _control_type(data: memoryview, at: int, header: BatchHeader) -> int | None:
    """The type in the key of the marker; None if it is not readable, so that nothing is ended."""
    for record in records.iterate(data[at : at + header.size], 0, header):
        if record.key is not None and len(record.key) >= _CONTROL_TYPE.size:
            return int(_CONTROL_TYPE.unpack_from(record.key)[1])
    return None


def _check(data: memoryview, at: int, header: BatchHeader, checks_crcs: bool, where: str) -> None:
    _check_format(header.magic, where)
    if checks_crcs and not records.check_crc(data, at, header):
        raise SparkSourceError(
            f"{where}: the batch at offset {header.base_offset} fails its checksum: it was changed on"
            " a disk or on the way. Read it from another replica (restart the broker that leads the"
            " partition), or set kafka.check.crcs=false to read it as it is."
        )


def _check_format(magic: int, where: str) -> None:
    if magic != records.MAGIC:
        raise SparkSourceError(
            f"{where} holds records of format {magic}, from before Kafka 0.11, which this source does"
            " not read; Spark's own Kafka source does"
        )
