"""Rules of groups, producers and transactions broken on purpose, one at a time; see sim/mutants.py."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from sim.coordination.world import Coordination, CoordinatorWorld, draw_mix
from sim.mutants import Mutant
from sim.outcome import Outcome, outcome_of
from sim.swarm import FAULTS, Mix

from dmq.broker.answer import Answer
from dmq.broker.group_seats import GroupOccupant
from dmq.broker.producing import ProducerBook
from dmq.broker.reading_along import ReadingAlong
from dmq.broker.seats import Seat
from dmq.broker.transaction_seats import TransactionCoordinators, TransactionOccupant
from dmq.errors import ErrorCode
from dmq.machines.groups import consumer_changes
from dmq.machines.groups.offsets import Offsets
from dmq.machines.machine import Outcome as MachineOutcome
from dmq.machines.producers import refusals
from dmq.machines.producers import state as producer_state
from dmq.machines.producers.decided import DecidedTransactions
from dmq.machines.producers.guards import VerificationGuards
from dmq.machines.producers.refusals import Refusals
from dmq.machines.producers.rules import EPOCH_PER_TXN
from dmq.machines.producers.state import ProducerState
from dmq.machines.transactions import adding, ending, machine
from dmq.machines.transactions.commands import ResumeEndings
from dmq.machines.transactions.facts import Transaction
from dmq.records import BatchHeader

PLAN = Coordination(
    idempotent=2,
    transactional=3,
    members=(2, 2),
    readers=2,
    pause_ms=20,
    repeats=0.3,
    dawdles=0.1,
    deaths=0.01,
    zombies=0.02,
)


@dataclass(frozen=True)
class CoordinatorMutant(Mutant):
    """With what the clients do."""

    plan: Coordination = PLAN

    def run(self, seed: int, mix: Mix) -> Outcome:
        return outcome_of(CoordinatorWorld(seed, mix, coordination=self.plan))


# --- worlds in which they show --------------------------------------------------------------------


def _world(names: str, **changes: Any) -> Callable[[int], Mix]:
    faults = {name: FAULTS[name] for name in names.split()}

    def mix(seed: int) -> Mix:
        settings = {
            "brokers": 3,
            "replication_factor": 3,
            "topics": 2,
            "async_rate": 0.0,
            "faults": faults,
            "fault_every_ms": 250,
            "trouble_max": 1,
            "min_insync": 1,
        }
        return replace(draw_mix(seed), **{**settings, **changes})

    return mix


_MOVES = _world("kill transfer isolate rotate")
"""Coordinators and leaders change often."""
_LOSSES = _world("rotate isolate split", sync_ms=(5, 30))
"""Deposed leaders have written what nobody else has."""
_SLOW = _world("slow_link pause transfer", fault_every_ms=150)
"""Requests come late."""
_DEATHS = _world("kill pause", fault_every_ms=120)
"""Batches are in the log, and nobody was told."""
_CALM = _world("transfer")
_GROUPS = replace(PLAN, idempotent=1, transactional=1, members=(3, 4), readers=1, deaths=0.05)
_LATE = replace(PLAN, idempotent=0, transactional=4, members=(0, 0), repeats=0.7)
_FLIGHTS = replace(PLAN, idempotent=4, transactional=0, members=(0, 0), repeats=0.0, gap_ms=50)
"""Many batches are under way when leaders change."""
_ZOMBIES = replace(PLAN, dawdles=0.3, deaths=0.0, zombies=0.1)


# --- patches --------------------------------------------------------------------------------------


def _at_once(self: Seat, callback: Callable[[ErrorCode], None]) -> None:
    callback(ErrorCode.NONE)


def _stay(self: Seat) -> None:
    """The occupant of a former leadership goes on in the next one."""
    if self.replica.core.can_append and self.occupant is None:
        self._take()


def _without_markers(self: GroupOccupant, header: BatchHeader, records: list[Any]) -> None:
    if not header.is_control:
        _LOAD_GROUPS(self, header, records)


def _counts_at_once(self: Offsets, key: Any, value: Any, producer_id: int = -1) -> None:
    _PUT(self, key, value, -1)


def _any_epoch(transaction: Transaction | None, producer_id: int, epoch: int) -> Transaction:
    return _CHECK(transaction, producer_id, transaction.producer_epoch if transaction else epoch)


def _same_epoch(transaction: Transaction, command: Any, now: int) -> Transaction:
    bumped = _END(transaction, command, now)
    return replace(
        bumped, producer_epoch=transaction.producer_epoch, client_version=EPOCH_PER_TXN - 1
    )


def _let_in(self: TransactionCoordinators, *args: Any) -> Answer[None]:
    return Answer.of(None)


def _is_verified(self: VerificationGuards, producer_id: int, epoch: int) -> int:
    return EPOCH_PER_TXN - 1


def _check_verified(self: ProducerBook, header: BatchHeader) -> Any:
    return self.state.check(header, EPOCH_PER_TXN - 1)


def _all_free(current: Any, target_epoch: int, target: Any, is_free: Any, owned: Any) -> Any:
    return _RECONCILE(current, target_epoch, target, lambda partition: True, owned)


def _forget_decisions(self: Any, command: ResumeEndings, now: int) -> MachineOutcome[list[Any]]:
    return MachineOutcome([], [])


class _Higher:
    """A replica that takes all of its log for committed."""

    def __init__(self, replica: Any) -> None:
        self._replica = replica

    @property
    def high_watermark(self) -> int:
        return int(self._replica.log_end_offset)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._replica, name)


def _believe(self: ReadingAlong, replica: Any, *rest: Any) -> None:
    _READ_ALONG(self, _Higher(replica), *rest)


def _is_the_first(self: Any, epoch: int, sequence: int) -> bool:
    return bool((self.epoch, self.first) == (epoch, sequence))


_LOAD_GROUPS = GroupOccupant.load
_READ_ALONG = ReadingAlong.__init__
_PUT = Offsets.put
_END = ending._end_with_new_epoch
_CHECK = adding._check
_RECONCILE = consumer_changes.reconcile
_HANDLERS = machine._HANDLERS


MUTANTS: dict[str, CoordinatorMutant] = {
    "answers_before_commit": CoordinatorMutant(
        "coordinators answer, and send markers, before what they wrote is committed",
        ((Seat, "when_committed", _at_once),),
        _LOSSES,
        6,
    ),
    "seat_is_kept": CoordinatorMutant(
        "a coordinator goes on with what it knew when it led before",
        ((Seat, "moved", _stay), (Seat, "cut", lambda self, end_offset: None)),
        _MOVES,
        10,
    ),
    "groups_are_not_loaded": CoordinatorMutant(
        "a new group coordinator does not read its log",
        ((GroupOccupant, "load", lambda self, header, records: None),),
        _MOVES,
        6,
    ),
    "names_are_not_loaded": CoordinatorMutant(
        "a new transaction coordinator does not read its log",
        ((TransactionOccupant, "load", lambda self, header, records: None),),
        _MOVES,
        6,
    ),
    "markers_are_not_loaded": CoordinatorMutant(
        "a new group coordinator does not see how transactions ended",
        ((GroupOccupant, "load", _without_markers),),
        _MOVES,
        6,
    ),
    "decisions_are_not_resumed": CoordinatorMutant(
        "a new transaction coordinator leaves what was decided unfinished",
        ((machine, "_HANDLERS", {**_HANDLERS, ResumeEndings: _forget_decisions}),),
        _MOVES,
        10,
    ),
    "offsets_count_at_once": CoordinatorMutant(
        "offsets in a transaction count before it ends",
        ((Offsets, "put", _counts_at_once),),
        _CALM,
        6,
    ),
    "epoch_stays": CoordinatorMutant(
        "version 2 without an epoch for each transaction: a late EndTxn ends the next one",
        ((ending, "_end_with_new_epoch", _same_epoch),),
        _SLOW,
        20,
        plan=_LATE,
    ),
    "no_leave_asked": CoordinatorMutant(
        "batches enter transactions that their coordinator does not know of",
        (
            (TransactionCoordinators, "enter", _let_in),
            (ProducerBook, "check", _check_verified),
            (VerificationGuards, "verified", _is_verified),
        ),
        _SLOW,
        6,
    ),
    "zombies_are_let_in": CoordinatorMutant(
        "who was replaced may still write into the transaction of its name",
        (
            (adding, "_check", _any_epoch),
            (producer_state, "check_epoch", lambda header, entry: None),
        ),
        _SLOW,
        10,
        plan=_ZOMBIES,
    ),
    "sequences_are_not_checked": CoordinatorMutant(
        "whatever comes is appended",
        (
            (producer_state, "check_sequence", lambda *args: None),
            (ProducerState, "_find_duplicate", lambda self, header, entry: None),
        ),
        _CALM,
        6,
    ),
    "duplicates_are_unknown": CoordinatorMutant(
        "a batch that is there is refused when it is sent again",
        ((ProducerState, "_find_duplicate", lambda self, header, entry: None),),
        _MOVES,
        6,
    ),
    "missing_is_told_behind_refused": CoordinatorMutant(
        "only the first of several refused batches excuses those behind",
        ((refusals._Refused, "has", _is_the_first),),
        _DEATHS,
        12,
        plan=_FLIGHTS,
    ),
    "newcomers_begin_behind_refused": CoordinatorMutant(
        "who is not known begins with the second batch when the first was refused",
        ((Refusals, "code_before", lambda self, *args: None),),
        _MOVES,
        20,
        plan=_FLIGHTS,
    ),
    "reads_undecided": CoordinatorMutant(
        "the last stable offset is the high watermark",
        ((ProducerState, "last_stable_offset", lambda self, high_watermark: high_watermark),),
        _CALM,
        6,
    ),
    "reads_aborted": CoordinatorMutant(
        "readers are not told what was aborted",
        ((ProducerState, "aborted", lambda self, start, end: []),),
        _CALM,
        6,
    ),
    "follower_reads_undecided": CoordinatorMutant(
        "followers show all that is committed, decided or not",
        ((DecidedTransactions, "last_stable_offset", lambda self, end: end),),
        _CALM,
        6,
    ),
    "follower_reads_aborted": CoordinatorMutant(
        "followers do not tell what was aborted",
        ((DecidedTransactions, "aborted", lambda self, start, end: []),),
        _CALM,
        6,
    ),
    "follower_believes_its_tail": CoordinatorMutant(
        "followers look at markers that are not committed",
        (
            (ReadingAlong, "__init__", _believe),
            (ReadingAlong, "rests_on", lambda self, offset: False),
        ),
        _LOSSES,
        20,
    ),
    "partitions_are_not_awaited": CoordinatorMutant(
        "members get partitions that others have not given up",
        ((consumer_changes, "reconcile", _all_free),),
        _MOVES,
        10,
        plan=_GROUPS,
    ),
}
