"""DecidedTransactions: which transactions of a log are open and which were aborted, and no more.

What a follower needs to serve readers of committed transactions: it judges no batch, so it can do without
the producers, their sequences and their windows. Told of committed batches alone, in the order of the
log, so nothing is ever taken back. Says what `ProducerState` says at the same commit point. A producer
without a transaction leaves nothing behind here.

Called by the broker's readers along a log. Numbers and headers only.
"""

from dmq.machines.producers.aborted import AbortedTxn, AbortIndex
from dmq.machines.producers.entries import Marker
from dmq.machines.producers.snapshot import ProducerSnapshot
from dmq.records import TRANSACTIONAL, BatchHeader


class DecidedTransactions:
    """See the module."""

    __slots__ = ("_aborted", "_log_start", "_open")

    def __init__(self, snapshot: ProducerSnapshot | None = None) -> None:
        self._open: dict[int, int] = {}
        """Producer → start of its open transaction, in the order of the starts."""
        self._aborted = AbortIndex(b"" if snapshot is None else snapshot.aborted)
        self._log_start = 0
        if snapshot is not None:
            started = [(entry.txn_start, id_) for id_, entry in snapshot.producers]
            self._open.update((id_, start) for start, id_ in sorted(started) if start >= 0)

    def committed(self, header: BatchHeader, marker: Marker | None = None) -> None:
        """The log's next batch; `marker`: what it says, if it ends a transaction."""
        producer_id, offset = header.producer_id, header.base_offset
        if producer_id < 0:
            return
        if marker is None:
            if header.attributes & TRANSACTIONAL:
                self._open.setdefault(producer_id, offset)
            return
        start = self._open.pop(producer_id, None)
        if start is not None and not marker.is_commit:
            stable = next(iter(self._open.values()), offset + 1)
            self._aborted.add(AbortedTxn(producer_id, start, offset, stable))

    def trim(self, log_start: int) -> None:
        """The log begins at `log_start` now."""
        self._log_start = log_start
        self._aborted.trim(log_start)

    def last_stable_offset(self, end: int) -> int:
        """Below it every transaction is decided; `end`: up to where batches were told."""
        if not self._open:
            return end
        return max(self._log_start, min(end, next(iter(self._open.values()))))

    @property
    def has_aborted(self) -> bool:
        return len(self._aborted) > 0

    def aborted(self, start: int, end: int) -> list[AbortedTxn]:
        """Aborted transactions with records in [start, end)."""
        return self._aborted.overlapping(start, end)
