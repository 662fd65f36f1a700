"""Transactions under compaction: which batches were committed, and which markers may go.

A batch counts when the marker behind it says commit. Those that were aborted overtake nothing and stay
as they are, with their markers: the abort index of the broker points at both, and a reader that is
told of an abort looks for its marker. A marker of a commit goes when nothing of its transaction is
left, `delete.retention.ms` after that was seen, as tombstones do: a replica that was away has the
records, and needs the marker to know that they are decided. Pure. Called by compaction_run.py.
"""

import struct
from bisect import bisect_left
from typing import NamedTuple

from dmq.records import NO_PRODUCER_ID, BatchHeader, iterate

_TYPE = struct.Struct(">hh")
_ABORT, _COMMIT = 0, 1


class _Span(NamedTuple):
    """An aborted transaction: its first batch and its marker."""

    first: int
    marker: int


class Transactions:
    """What the batches of a log say, told in their order by `note`."""

    def __init__(self) -> None:
        self._open: dict[int, int] = {}
        """Producer id -> base offset of the first batch since its last marker."""
        self._aborted: dict[int, list[_Span]] = {}
        self._kept: set[int] = set()
        """Producers with a batch in the new files since their last marker."""

    # ---- before: what happened

    def note(self, header: BatchHeader, batch: memoryview) -> None:
        """The next batch of the log; of control batches the records are read."""
        producer_id = header.producer_id
        if producer_id == NO_PRODUCER_ID or not header.is_transactional:
            return
        if not header.is_control:
            self._open.setdefault(producer_id, header.base_offset)
            return
        kind = marker_type(header, batch)
        if kind not in (_ABORT, _COMMIT):
            return  # Not an end that is known here: the transaction counts as open.
        first = self._open.pop(producer_id, None)
        if kind == _ABORT and first is not None:
            self._aborted.setdefault(producer_id, []).append(_Span(first, header.base_offset))

    @property
    def first_open(self) -> int | None:
        """Where the first transaction begins whose end is not there."""
        return min(self._open.values(), default=None)

    def is_committed(self, header: BatchHeader) -> bool:
        """Of a batch before `first_open`; one outside of any transaction counts as well."""
        if not header.is_transactional:
            return True
        spans = self._aborted.get(header.producer_id)
        if not spans:
            return True
        at = bisect_left(spans, header.base_offset, key=lambda span: span.marker)
        return at == len(spans) or header.base_offset < spans[at].first

    # ---- while copying: what is left

    def copied(self, header: BatchHeader, is_kept: bool) -> None:
        """A batch was judged, in the order of the log."""
        if header.is_control:
            self._kept.discard(header.producer_id)
        elif is_kept and header.is_transactional:
            self._kept.add(header.producer_id)

    def is_bare_commit(self, header: BatchHeader, batch: memoryview) -> bool:
        """Whether this is the marker of a commit of which nothing was kept."""
        if not header.is_control or header.producer_id in self._kept:
            return False
        return header.is_transactional and marker_type(header, batch) == _COMMIT


def marker_type(header: BatchHeader, batch: memoryview) -> int | None:
    """What a control batch says; None if it can't be read."""
    for record in iterate(batch, 0, header):
        if record.key is not None and len(record.key) >= _TYPE.size:
            return int(_TYPE.unpack_from(record.key)[1])
    return None
