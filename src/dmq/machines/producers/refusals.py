"""Batches that were refused for now: those in flight behind them are refused with the same code.

A client with several batches in flight hears that the first can't be taken now (too few replicas, a
leader that still reads its log) and will send it again. Those behind it have been sent already. If
things are well again when they come in, one is missing before them; but to say so makes librdkafka take
a new epoch and number everything that it has in flight anew, in other partitions too, and what was
written there and not yet acknowledged is written twice. So they hear what the first one heard.

Soft state of a partition, and only an excuse: who misses another batch than the refused one, or comes
too often, is told the truth. Called by broker/producing.py.
"""

from dmq.errors import ErrorCode
from dmq.machines.producers.entries import is_before

REFUSALS_MAX = 10_000
"""At the limit the oldest goes: its producer is told by its next sequence."""
BEHIND_MAX = 5
"""As many as clients have in flight; then the first one should have come again."""


class _Refused:
    __slots__ = ("behind_left", "code", "epoch", "sequence")

    def __init__(self, epoch: int, sequence: int, code: ErrorCode) -> None:
        self.epoch = epoch
        self.sequence = sequence
        self.code = code
        self.behind_left = BEHIND_MAX


class Refusals:
    """The lowest sequence that was refused, by producer."""

    __slots__ = ("_refused",)

    def __init__(self) -> None:
        self._refused: dict[int, _Refused] = {}

    def __bool__(self) -> bool:
        return bool(self._refused)

    def refused(self, producer_id: int, epoch: int, sequence: int, code: ErrorCode) -> None:
        known = self._refused.get(producer_id)
        if known is not None and known.epoch == epoch and is_before(known.sequence, sequence):
            return
        if known is None and len(self._refused) >= REFUSALS_MAX:
            del self._refused[next(iter(self._refused))]
        self._refused[producer_id] = _Refused(epoch, sequence, code)

    def code_behind(self, producer_id: int, epoch: int, missing: int) -> ErrorCode | None:
        """What a batch hears before which `missing` is missing; None if that was not refused."""
        known = self._refused.get(producer_id)
        if known is None or (known.epoch, known.sequence) != (epoch, missing):
            return None
        if not known.behind_left:
            return None
        known.behind_left -= 1
        return known.code

    def appended(self, producer_id: int) -> None:
        """It came again."""
        self._refused.pop(producer_id, None)
