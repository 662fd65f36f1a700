"""Counts visits of rare places inside production code that coordinators rest on; see sim/probes.py."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from sim.batches import RottenBatchError, peek
from sim.probes import counts

from dmq.broker.multiraft.replica import Replica
from dmq.errors import StorageError
from dmq.machines.producers.guards import VerificationGuards
from dmq.machines.transactions import machine as transactions
from dmq.machines.transactions.commands import AbortTimedOut, ResumeEndings
from dmq.storage.log import Log
from dmq.types import Position


def _await_again(self: Replica, base_offset: int, *rest: Any) -> Any:
    counts["duplicate answered"] += 1
    if self.epoch_at(base_offset) < self.core.epoch:
        counts["duplicate answered after failover"] += 1
    return _AWAIT_AGAIN(self, base_offset, *rest)


def _vouch(self: VerificationGuards, *args: Any) -> bool:
    stands: bool = _VOUCH(self, *args)
    counts["write after the end refused"] += not stands
    return stands


def _cut(self: Log, position: Position) -> Any:
    try:
        lost = peek(self, position.offset, self.readable_end)
    except (StorageError, RottenBatchError):
        lost = []
    for entry in lost:
        if entry.stamp is not None and entry.stamp.is_control:
            counts["marker cut"] += 1
    return _CUT(self, position)


def _counted(name: str, handler: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(handler)
    def handle(*args: Any) -> Any:
        outcome = handler(*args)
        counts[name] += len(outcome.response)
        return outcome

    return handle


_AWAIT_AGAIN: Any = Replica.await_again
Replica.await_again = wraps(_AWAIT_AGAIN)(_await_again)  # type: ignore[method-assign]
_VOUCH: Any = VerificationGuards.vouch
VerificationGuards.vouch = wraps(_VOUCH)(_vouch)  # type: ignore[method-assign]
_CUT: Any = Log.cut
Log.cut = wraps(_CUT)(_cut)  # type: ignore[method-assign]
for _command, _name in (
    (ResumeEndings, "ending resumed by a new coordinator"),
    (AbortTimedOut, "timed out"),
):
    transactions._HANDLERS[_command] = _counted(_name, transactions._HANDLERS[_command])
