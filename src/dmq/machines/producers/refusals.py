"""Batches that were refused for now: those in flight behind them are refused with the same code.

A client with several batches in flight hears that the first can't be taken now (too few replicas, a
leader that still reads its log) and will send it again. Those behind it have been sent already. If
things are well again when they come in, one is missing before them; but to say so makes librdkafka take
a new epoch and number everything that it has in flight anew, in other partitions too, and what was
written there and not yet acknowledged is written twice. So they hear what the first one heard. It need
not be the first that is missing: after a failover that one may be in the log, and the second not.

Soft state of a partition, and only an excuse: who misses a batch that was not refused, or comes too
often, is told the truth. Called by broker/producing.py.
"""

from dmq.errors import ErrorCode
from dmq.machines.producers.entries import is_before

REFUSALS_MAX = 10_000
"""At the limit the oldest goes: its producer is told by its next sequence."""
BEHIND_MAX = 10
"""Twice as many as clients have in flight: what was sent over a connection that is gone may come late,
among those that were sent again. Then the first one should have come again."""


class _Refused:
    __slots__ = ("behind_left", "code", "epoch", "first", "last")

    def __init__(self, epoch: int, sequence: int, code: ErrorCode) -> None:
        self.epoch = epoch
        self.first = self.last = sequence
        self.code = code
        self.behind_left = BEHIND_MAX

    def add(self, sequence: int, code: ErrorCode) -> None:
        if is_before(self.last, sequence):
            self.last = sequence
        if is_before(sequence, self.first):
            self.first = sequence
        self.code, self.behind_left = code, BEHIND_MAX

    def has(self, epoch: int, sequence: int) -> bool:
        is_outside = is_before(sequence, self.first) or is_before(self.last, sequence)
        return epoch == self.epoch and not is_outside


class Refusals:
    """Which sequences were refused, from the first to the last, by producer."""

    __slots__ = ("_refused",)

    def __init__(self) -> None:
        self._refused: dict[int, _Refused] = {}

    def __bool__(self) -> bool:
        return bool(self._refused)

    def refused(self, producer_id: int, epoch: int, sequence: int, code: ErrorCode) -> None:
        known = self._refused.get(producer_id)
        if known is not None and known.epoch == epoch:
            known.add(sequence, code)
            return
        if known is None and len(self._refused) >= REFUSALS_MAX:
            del self._refused[next(iter(self._refused))]
        self._refused[producer_id] = _Refused(epoch, sequence, code)

    def code_before(self, producer_id: int, epoch: int, sequence: int) -> ErrorCode | None:
        """What a batch hears of a producer of whom the log has nothing; None if none was refused that
        comes before it."""
        known = self._refused.get(producer_id)
        if known is None or not is_before(known.first, sequence):
            return None
        return self.code_behind(producer_id, epoch, known.first)

    def code_behind(self, producer_id: int, epoch: int, missing: int) -> ErrorCode | None:
        """What a batch hears before which `missing` is missing; None if that was not refused."""
        known = self._refused.get(producer_id)
        if known is None or not known.has(epoch, missing) or not known.behind_left:
            return None
        known.behind_left -= 1
        return known.code

    def appended(self, producer_id: int) -> None:
        """It came again."""
        self._refused.pop(producer_id, None)
