"""The transaction coordinator of one partition of `__transaction_state`.

`handle` looks and answers, `apply` changes; `machines/machine.py` says who calls them. Nothing is
pending in between: records are applied as they are appended, so a second command sees what the
first one decided, and its answer waits until that is committed. Timers are not kept here: the host
asks `AbortTimedOut` and `ForgetIdle` from time to time, and `ResumeEndings` when it begins to lead.
"""

from collections.abc import Callable
from itertools import islice
from typing import Any, NamedTuple, TypeVar, cast

from dmq.errors import ErrorCode, KafkaError
from dmq.machines.machine import Command, Outcome, Record
from dmq.machines.transactions.adding import add_partitions, verify_partitions
from dmq.machines.transactions.commands import (
    AbortTimedOut,
    AddPartitions,
    DescribeTransaction,
    Ended,
    Ending,
    EndTransaction,
    ForgetIdle,
    Initialised,
    InitProducerId,
    ListTransactions,
    MarkersWritten,
    ResumeEndings,
    TransactionView,
    VerifyPartitions,
)
from dmq.machines.transactions.ending import complete, end_transaction, ended, ending_of, fence
from dmq.machines.transactions.facts import (
    AT_REST,
    PREPARED,
    Codec,
    Transaction,
    TransactionFact,
)
from dmq.machines.transactions.initialising import check_timeout, initialise
from dmq.machines.transactions.looking import describe, list_all
from dmq.machines.transactions.state import TransactionState
from dmq.types import Millis, TopicPartition

R = TypeVar("R")

LOOKS = 1_000
"""Ids looked at, or transactions ended, per command: a few milliseconds and one moderate batch."""


class TransactionLimits(NamedTuple):
    """Bounds, from the broker's settings."""

    timeout_max_ms: int = 900_000
    id_expiration_ms: int = 7 * 24 * 60 * 60 * 1000
    ids_max: int = 100_000
    """At the limit a new id takes the place of the longest unused one that has nothing open; if
    there is none, it is told to come again."""


class TransactionMachine:
    """See the module. `coordinator_epoch` is the leader epoch of its partition; the host sets it
    when it begins to lead."""

    __slots__ = ("_codec", "coordinator_epoch", "limits", "state")

    def __init__(self, codec: Codec, limits: TransactionLimits) -> None:
        self._codec = codec
        self.limits = limits
        self.coordinator_epoch = -1
        self.state = TransactionState()

    def reset(self) -> None:
        """Forget everything: the log is read anew."""
        self.state = TransactionState()

    def handle(self, command: Command[R], now: Millis) -> Outcome[R]:
        """An answer and the records that make it true. Raises KafkaError if it is refused."""
        return cast("Outcome[R]", _HANDLERS[type(command)](self, command, now))

    def apply(self, record: Record) -> TransactionFact:
        """Changes the state as a record says, and tells what it said. Raises DmqError."""
        fact = self._codec.decode(record)
        self.state.apply(fact)
        return fact

    def _record(self, transactional_id: str, transaction: Transaction | None) -> Record:
        return self._codec.encode(TransactionFact(transactional_id, transaction))

    def _ending(self, transactional_id: str, transaction: Transaction) -> Ending | None:
        return ending_of(transactional_id, transaction, self.coordinator_epoch)

    # ---- what producers ask

    def _initialise(self, command: InitProducerId, now: int) -> Outcome[Initialised]:
        name = _named(command.transactional_id)
        check_timeout(command.timeout_ms, self.limits.timeout_max_ms)
        before = self.state.find(name)
        after = initialise(before, command, now)
        records = [] if before is not None else self._make_room()
        records.append(self._record(name, after))
        if after.state in PREPARED:
            code, ending = ErrorCode.CONCURRENT_TRANSACTIONS, self._ending(name, after)
            return Outcome(Initialised(code, ending=ending), records)
        return Outcome(
            Initialised(ErrorCode.NONE, after.producer_id, after.producer_epoch), records
        )

    def _make_room(self) -> list[Record]:
        if len(self.state) < self.limits.ids_max:
            return []
        for name, transaction in islice(self.state.all(), LOOKS):
            if transaction.state in AT_REST:
                return [self._record(name, None)]
        raise KafkaError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            f"{len(self.state)} transactional ids are in use, which is the limit",
        )

    def _add(self, command: AddPartitions, now: int) -> Outcome[None]:
        name = _named(command.transactional_id)
        after = add_partitions(self.state.find(name), command, now)
        return Outcome(None, [] if after is None else [self._record(name, after)])

    def _verify(
        self, command: VerifyPartitions, now: int
    ) -> Outcome[dict[TopicPartition, ErrorCode]]:
        name = _named(command.transactional_id)
        return Outcome(verify_partitions(self.state.find(name), command), [])

    def _end(self, command: EndTransaction, now: int) -> Outcome[Ended]:
        name = _named(command.transactional_id)
        before = self.state.find(name)
        after = end_transaction(before, command, now)
        if after is None:  # Decided before; whoever decided it sees to the markers.
            assert before is not None
            return Outcome(ended(before, None), [])
        return Outcome(ended(after, self._ending(name, after)), [self._record(name, after)])

    # ---- what the host asks

    def _markers_written(self, command: MarkersWritten, now: int) -> Outcome[bool]:
        name = command.transactional_id
        found = self.state.find(name)
        if (
            found is None
            or found.state not in PREPARED
            or (found.producer_id, found.producer_epoch)
            != (command.producer_id, command.producer_epoch)
        ):
            return Outcome(False, [])
        return Outcome(True, [self._record(name, complete(found, now))])

    def _resume(self, command: ResumeEndings, now: int) -> Outcome[list[Ending]]:
        endings = [self._ending(name, found) for name, found in self.state.prepared()]
        return Outcome([ending for ending in endings if ending is not None], [])

    def _abort_timed_out(self, command: AbortTimedOut, now: int) -> Outcome[list[Ending]]:
        since = command.leading_since_ms
        late = (
            (name, found)
            for name, found in self.state.ongoing()
            if max(found.start_ms, since) + found.timeout_ms < now
        )
        aborted = [
            (name, fence(found, now, may_ask_again=True)) for name, found in islice(late, LOOKS)
        ]
        endings = [self._ending(name, found) for name, found in aborted]
        return Outcome(
            [ending for ending in endings if ending is not None],
            [self._record(name, found) for name, found in aborted],
        )

    def _forget_idle(self, command: ForgetIdle, now: int) -> Outcome[int]:
        limit = now - self.limits.id_expiration_ms
        records = [
            self._record(name, None)
            for name, found in islice(self.state.all(), LOOKS)
            if found.state in AT_REST and found.last_update_ms <= limit
        ]
        return Outcome(len(records), records)

    # ---- what people ask

    def _describe(self, command: DescribeTransaction, now: int) -> Outcome[TransactionView]:
        name = command.transactional_id
        return Outcome(describe(name, self.state.find(name)), [])

    def _list(self, command: ListTransactions, now: int) -> Outcome[list[TransactionView]]:
        return Outcome(list_all(self.state.all(), command, now), [])


def _named(transactional_id: str) -> str:
    if not transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a transactional id is not empty")
    return transactional_id


_HANDLERS: dict[type, Callable[[TransactionMachine, Any, int], Outcome[Any]]] = {
    InitProducerId: TransactionMachine._initialise,
    AddPartitions: TransactionMachine._add,
    VerifyPartitions: TransactionMachine._verify,
    EndTransaction: TransactionMachine._end,
    MarkersWritten: TransactionMachine._markers_written,
    ResumeEndings: TransactionMachine._resume,
    AbortTimedOut: TransactionMachine._abort_timed_out,
    ForgetIdle: TransactionMachine._forget_idle,
    DescribeTransaction: TransactionMachine._describe,
    ListTransactions: TransactionMachine._list,
}
