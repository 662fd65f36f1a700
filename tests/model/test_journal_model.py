"""The short form of the storage model, and proof that it bites.

The long form is `make model N=10000`. A seed that fails prints its story with
`python -m tests.model --runs 1 --first SEED`.
"""

from collections import Counter

import pytest
from model import mutants
from model.world import run

SEEDS = 150
MUST_REACH = (
    "crash",
    "crash in recovery",
    "torn",
    "journal went round",
    "cut of a mark",
    "trimmed",
    "swapped",
    "refused",
    "full",
    "closed",
    "async tail lost",
    "sync failed",
    "sync failed in recovery",
    "written beside the loop",
    "FlushJob",
    "RemoveJob",
    "SwapJob",
)
"""Rare states: a model that no longer gets there has become tame."""


@pytest.mark.timeout(300)
def test_every_crash_recovers_to_a_turn_that_was_begun() -> None:
    reached: Counter[str] = Counter()
    for seed in range(SEEDS):
        reached.update(run(seed).reached)
    assert [name for name in MUST_REACH if not reached[name]] == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", sorted(mutants.MUTANTS))
def test_the_model_catches_a_broken_rule(name: str) -> None:
    within = mutants.MUTANTS[name][1]
    assert mutants.caught_after(name, within) is not None, f"{name}: not caught in {within} seeds"
