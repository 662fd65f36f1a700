"""The Machine protocol: the seam between what records mean and the log that holds them.

    handle(command, now)   looks at the state, changes nothing, gives an answer and records
    apply(record)          changes the state; the only thing that does

The host calls `handle` on the leader only, appends the outcome's records as one batch, applies them
in the same call, and sends the answer when the position that the state then had is committed. A
follower only applies. A machine that applied what was cut goes back to what is committed.
"""

import dataclasses
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from dmq.types import Millis

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Record(NamedTuple):
    """A keyed upsert; without a value, a tombstone. The last value of each key is the state."""

    key: bytes
    value: bytes | None


class Command(Generic[R_co]):
    """A request to a machine; the parameter is the type of its answer."""

    __slots__ = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome(Generic[R]):
    """An answer, and the records that must be committed before it leaves."""

    response: R
    records: list[Record]


class Machine(Protocol):
    """What the host of a machine relies on."""

    def handle(self, command: Command[R], now: Millis) -> Outcome[R]: ...

    def apply(self, record: Record) -> Any: ...
