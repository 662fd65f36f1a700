"""Markers on their way: each decided transaction until all its partitions have their marker.

A marker is sent until its partition's leader says that it is committed. Some refusals mean the same:
INVALID_PRODUCER_EPOCH (a later epoch has been there, so this end was before), or a partition that is
gone with its topic. TRANSACTION_COORDINATOR_FENCED means that another coordinator is at it. Everything
else is tried again. Soft state of one coordinator: the next one finds what is left in its log.

Never writes a marker itself; `transaction_coordinator.py` says how, and is told when one ending is done.
"""

from collections.abc import Callable
from functools import partial

from dmq.broker.answer import Answer
from dmq.errors import DmqError, ErrorCode
from dmq.machines.transactions.commands import Ending, TxnMarker
from dmq.types import TopicPartition

WriteMarker = Callable[[TxnMarker], Answer[None]]
"""To the partition's leader, wherever it is."""

_DONE = (ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH)
_GONE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class _Under:
    """One ending that is under way."""

    __slots__ = ("ending", "failed", "lacking")

    def __init__(self, ending: Ending) -> None:
        self.ending = ending
        self.lacking = set(ending.markers)
        self.failed: list[TxnMarker] = []


class Endings:
    """All endings of one coordinator."""

    __slots__ = ("_finish", "_has_partition", "_under_way", "_write")

    def __init__(
        self,
        write: WriteMarker,
        finish: Callable[[Ending], None],
        has_partition: Callable[[TopicPartition], bool],
    ) -> None:
        self._write = write
        self._finish = finish
        self._has_partition = has_partition
        self._under_way: dict[tuple[str, int, int], _Under] = {}

    def __len__(self) -> int:
        return len(self._under_way)

    def begin(self, ending: Ending) -> None:
        """Send its markers; nothing, if they are under way."""
        key = ending[:3]
        if key in self._under_way:
            return
        under = self._under_way[key] = _Under(ending)
        for marker in ending.markers:
            self._send(under, marker)
        if not ending.markers:
            self._finished(under)

    def send_again(self) -> None:
        """Try again where it failed. Call it from time to time."""
        for under in list(self._under_way.values()):
            failed, under.failed = under.failed, []
            for marker in failed:
                self._send(under, marker)

    def clear(self) -> None:
        """Another coordinator takes over."""
        self._under_way.clear()

    def _send(self, under: _Under, marker: TxnMarker) -> None:
        self._write(marker).on_done(partial(self._answered, under, marker))

    def _answered(self, under: _Under, marker: TxnMarker, answer: Answer[None]) -> None:
        if self._under_way.get(under.ending[:3]) is not under:
            return  # Of a former stay.
        code = _code_of(answer)
        if code in _GONE and not self._has_partition(TopicPartition(*marker[:2])):
            code = ErrorCode.NONE
        if code is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            del self._under_way[under.ending[:3]]
        elif code not in _DONE:
            under.failed.append(marker)
        else:
            under.lacking.discard(marker)
            if not under.lacking:
                self._finished(under)

    def _finished(self, under: _Under) -> None:
        del self._under_way[under.ending[:3]]
        self._finish(under.ending)


def _code_of(answer: Answer[None]) -> ErrorCode:
    try:
        answer.get()
    except DmqError as error:
        return error.code
    return ErrorCode.NONE
