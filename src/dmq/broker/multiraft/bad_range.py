"""One damaged range of a log: where it begins, and who was asked for it.

Where it begins is found by a look at every batch before the first that is known to be bad. A segment may
have a GiB of them, so this is done in slices, and the place reached stays here: the loop has other things
to do, and peers take a broker for dead that is silent for half a second. The place does not depend on how
much of the segment is wanted, so it also stays when that changes.

Once bytes came for the first bad batches, the look goes on behind them: mostly the rest is good, and
its last records may be ours alone. Owned by repair.py.
"""

from dataclasses import dataclass

from dmq.broker.multiraft import cargo
from dmq.errors import ProtocolError
from dmq.raft.marks import Marks
from dmq.storage.files import File, is_unreadable
from dmq.storage.items import Damage
from dmq.storage.segment import BadBatchError, Segment, walk
from dmq.types import Voter

BATCH_COST = 4096
"""A batch takes as long as so many bytes, however small it is."""
FILE_COST = 64 * 1024
"""The same for a file that is opened."""


@dataclass(frozen=True, slots=True)
class RepairSettings:
    """How much of all damaged logs is done at once."""

    slice_bytes: int = 2 * 1024 * 1024
    """So much is looked at in one go. Too low: large segments wait long for their repair; too high:
    the loop stands still meanwhile."""
    pause_ms: int = 10
    """From one such look to the next, which leaves the loop to others for half of the time."""
    asks_max: int = 4
    """Ranges asked of one peer that it has not answered. It reads each from its disk at once, while its
    own clients wait. Too low: the link idles between question and answer."""


class BadRange:
    """See the module."""

    __slots__ = (
        "_end",
        "_segment_stop",
        "asked",
        "asked_at",
        "byte",
        "damage",
        "is_all",
        "is_known",
        "limit",
        "offset",
        "segment",
        "stop",
        "vain",
    )

    def __init__(self, damage: Damage, segment: Segment, end: int, stop: int) -> None:
        self.damage = damage
        self.segment = segment
        self._end = end
        """No byte from here on is worth a look."""
        self._segment_stop = stop
        self.byte = 0
        self.offset = segment.base
        """All before this byte and offset is good; once `is_known`, what is missing begins here."""
        self.is_known = False
        self.stop = stop
        self.limit: int | None = None
        """Where our log parts from the leader's; only what lies below is fetched."""
        self.is_all = True
        """Whether `stop` is the segment's end."""
        self.asked: Voter | None = None
        self.asked_at: int | None = None
        """When, if the answer is still awaited."""
        self.vain: dict[Voter, None] = {}
        """Who was asked for this, and gave nothing."""

    @property
    def stop_byte(self) -> int:
        return self.segment.size

    @property
    def is_whole(self) -> bool:
        """Whether all of the segment is good now."""
        return self.is_all and self.offset == self.stop and self.byte == self.stop_byte

    def set_limit(self, limit: int | None) -> None:
        """Only what lies below is wanted now; an answer to another question is not."""
        if limit == self.limit:
            return
        self.limit = limit
        self.stop = self._segment_stop if limit is None else min(self._segment_stop, limit)
        self.is_all = self.stop == self._segment_stop
        self.asked = self.asked_at = None
        self.vain.clear()

    def look_on(self, file: File, marks: Marks, budget: int) -> int:
        """Go on to the first batch that is bad or out of place, one batch at least; what it cost."""
        cost = 0
        try:
            for place in walk(file, self.byte, self._end):
                if cost and cost >= budget:
                    return cost
                cost += max(place.size, BATCH_COST)
                ((batch, epoch),) = cargo.split(file.read_at(place.position, place.size))
                if batch.base != self.offset or not marks.fits(batch.base, epoch):
                    break
                self.byte, self.offset = place.position + place.size, batch.next
        except (BadBatchError, ProtocolError, OSError) as error:
            if isinstance(error, OSError) and not is_unreadable(error):
                raise
            # Good up to here.
        self.is_known = True
        return cost

    def came(self, byte: int, offset: int) -> None:
        """Good bytes were written up to here. Those behind them were out of reach, and may be good."""
        self.byte, self.offset, self.asked_at = byte, offset, None
        self._end, self.is_known = self.stop_byte, False
        self.vain.clear()

    def wait_no_longer(self) -> None:
        """Who was asked gave no answer; a late one is still taken until another is asked."""
        assert self.asked is not None
        self.vain[self.asked] = None
        self.asked_at = None
