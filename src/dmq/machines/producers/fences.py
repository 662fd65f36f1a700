"""Batches that failed after they were admitted: their producers' later ones must not overtake them.

Needed for producers that the partition knows nothing else of: they may begin with any sequence, so
the second of two batches in flight would be taken when the first one failed. (Where something is
known, the next sequence is, too.) Soft: a new leader has none, as it saw nothing fail.

Called by state.py; rules.py asks.
"""

from dmq.machines.producers.entries import NO_SEQUENCE, is_before

FENCES_MAX = 10_000
"""At the limit the oldest goes: its producer is long gone, or will be told by its next sequence."""


class Fences:
    """The lowest sequence that failed, by producer."""

    __slots__ = ("_failed",)

    def __init__(self) -> None:
        self._failed: dict[int, tuple[int, int]] = {}

    def __bool__(self) -> bool:
        return bool(self._failed)

    def failed(self, producer_id: int, epoch: int, sequence: int) -> None:
        known_epoch, known = self._failed.get(producer_id, (-1, 0))
        if known_epoch == epoch and not is_before(sequence, known):
            return
        if len(self._failed) >= FENCES_MAX:
            del self._failed[next(iter(self._failed))]
        self._failed[producer_id] = epoch, sequence

    def expected(self, producer_id: int, epoch: int, sequence: int) -> int:
        """The sequence that must come before this one; -1: none that we know of."""
        failed_epoch, failed = self._failed.get(producer_id, (-1, 0))
        if failed_epoch == epoch and is_before(failed, sequence):
            return failed
        return NO_SEQUENCE

    def appended(self, producer_id: int) -> None:
        """The producer is known now."""
        self._failed.pop(producer_id, None)
