"""Transactions in a bad network: all or nothing, nothing twice, nothing hangs. Broken rules show."""

import dataclasses
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.machines.transactions.hosts import CoordinatorHost, OnAnswer
from unit.machines.transactions.world import World

from dmq.machines.producers import rules, state
from dmq.machines.producers.aborted import AbortIndex
from dmq.machines.producers.admission import Admission
from dmq.machines.producers.guards import VerificationGuards
from dmq.machines.producers.state import Duplicate, ProducerState
from dmq.machines.transactions import adding, ending, initialising, machine
from dmq.machines.transactions.commands import AddPartitions
from dmq.machines.transactions.facts import Transaction
from dmq.machines.transactions.state import TransactionState

STEPS = 800


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_version_2_bears_anything(seed: int) -> None:
    World(seed, 2, is_orderly=False).run(STEPS)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32))
def test_version_1_bears_crashes_and_losses(seed: int) -> None:
    World(seed, 1, is_orderly=True).run(STEPS)


@pytest.mark.parametrize("version", [1, 2])
def test_the_worlds_are_not_tame(version: int) -> None:
    reached: Counter[str] = Counter()
    for seed in range(40):
        world = World(seed, version, is_orderly=version == 1)
        world.run(STEPS)
        reached += world.reached
    expected = {"committed", "aborted", "left", "unknown", "fenced", "gave up", "revoked"}
    assert set(reached) >= expected | {"coordinator crashed", "crashed while ending"}


# --- mutants ------------------------------------------------------------------------------------

WORLDS = 150


def _fence_without_a_new_epoch(found: Transaction, now: int, *, may_ask_again: bool) -> Transaction:
    fenced = ending.fence(found, now, may_ask_again=may_ask_again)
    return dataclasses.replace(
        fenced, producer_epoch=found.producer_epoch, client_version=1, previous_producer_id=-1
    )


def _forget_the_others(found: Transaction, command: AddPartitions, now: int) -> Transaction | None:
    after = adding.add_partitions(found, command, now)
    if after is not None:
        after = dataclasses.replace(after, partitions=command.partitions)
    return after


def _no_new_epoch(found: Transaction, command: Any, now: int, *, is_newcomer: bool) -> Transaction:
    return initialising._at_rest(found, command, now)


def _submit_and_tell(self: CoordinatorHost, command: Any, on_answer: OnAnswer) -> None:
    _submit(self, command, on_answer)
    _, tell = self.waiting.pop()
    tell()


def _duplicates_do_not_wait(self: ProducerState, *of: Any) -> Duplicate | None:
    found = _find_duplicate(self, *of)
    return None if found is None else found._replace(position=None)


def _stable_at_the_newest(self: ProducerState, high_watermark: int) -> int:
    starts = [entry.txn_start for entry in (dict(self._committed) | self._newest).values()]
    return min([high_watermark, *(start for start in starts if start >= 0)])


def _nothing(*args: Any, **more: Any) -> Any:
    return None


_submit = CoordinatorHost.submit
_find_duplicate = ProducerState._find_duplicate

MUTANTS: list[tuple[str, int, list[tuple[Any, str, Any]]]] = [
    ("one epoch for many transactions", 2, [(ending, "EPOCH_PER_TXN", 3)]),
    ("partitions join what is decided", 2, [(adding, "PREPARED", frozenset())]),
    ("a new coordinator finishes nothing", 2, [(TransactionState, "prepared", lambda self: iter(()))]),
    ("fenced without a new epoch", 2, [
        (initialising, "fence", _fence_without_a_new_epoch),
        (machine, "fence", _fence_without_a_new_epoch),
    ]),
    ("EndTxn is not answered twice", 2, [(Transaction, "was_known_as", lambda *of: False)]),
    ("earlier partitions are forgotten", 2, [(machine, "add_partitions", _forget_the_others)]),
    ("a newcomer gets the old epoch", 2, [(initialising, "_next", _no_new_epoch)]),
    ("answers do not wait for the commit", 2, [(CoordinatorHost, "submit", _submit_and_tell)]),
    ("a marker revokes no token", 1, [
        (VerificationGuards, "revoke", _nothing), (VerificationGuards, "appended", _nothing),
    ]),
    ("nobody asks the coordinator", 2, [
        (state, "check_transaction", _nothing),
        (Admission, "check", lambda self, header, now: self.state.check(header)),
    ]),
    ("duplicates do not wait", 2, [(ProducerState, "_find_duplicate", _duplicates_do_not_wait)]),
    ("no duplicate is known", 2, [(state, "recall", _nothing), (state, "check_sequence", _nothing)]),
    ("a marker counts before its commit", 2, [
        (ProducerState, "last_stable_offset", _stable_at_the_newest),
    ]),
    ("aborts are not indexed", 2, [(AbortIndex, "add", _nothing)]),
    ("a late marker is taken", 2, [(rules, "EPOCH_PER_TXN", 3)]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("version", "patches"), [m[1:] for m in MUTANTS], ids=[m[0] for m in MUTANTS]
)
def test_broken_rules_are_caught(
    version: int, patches: list[tuple[Any, str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for owner, name, broken in patches:
        monkeypatch.setattr(owner, name, broken)
    for seed in range(WORLDS):
        try:
            World(seed, version, is_orderly=version == 1).run(STEPS)
        except Exception:  # noqa: BLE001 (any failure is what we want to see)
            return
    pytest.fail(f"{WORLDS} worlds saw nothing")
