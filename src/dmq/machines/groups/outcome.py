"""What the group machine gives back: answers now, answers later, records, and who wrote them.

A JoinGroup waits for the rebalance, a SyncGroup for the leader's assignment. Such a command is
answered with a `Later`; a later outcome, of another command or of a tick, names it in `settled`
together with the answer. Every `Later` is settled once: by the group, by a timer, or by `resign`.

What a host does with an outcome, in this order and without a pause between:

    1. `records` are appended as one batch, by `producer` if there is one, and applied
    2. `response` (unless it is a `Later`) and all of `settled` leave when the position that the log
       then has is committed
"""

import dataclasses
from typing import Any, NamedTuple, TypeVar

from dmq.machines.machine import Outcome

R = TypeVar("R")


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Later:
    """Stands for an answer that is not there yet, and is equal to no other. The number, counted by
    the machine, is for people."""

    number: int


class Settled(NamedTuple):
    """An answer that was waited for."""

    later: Later
    response: Any


class TransactionalProducer(NamedTuple):
    """Who writes the records: they count when its marker says so."""

    producer_id: int
    epoch: int


@dataclasses.dataclass(frozen=True, slots=True)
class GroupOutcome(Outcome[R]):
    """An outcome with what it settles. `response` may be a `Later`."""

    settled: tuple[Settled, ...] = ()
    producer: TransactionalProducer | None = None
