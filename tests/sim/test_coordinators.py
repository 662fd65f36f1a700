"""Groups and transactions under faults: the short form, and proof that the checkers bite.

The long form is `python -m tests.sim --kind coordinators --many 20000 --jobs 2`. A seed that fails is
replayed, one line per event, with `python -m tests.sim --kind coordinators --seed SEED`.
"""

import pytest
from sim.coordination.mutants import MUTANTS
from sim.mutants import caught_after
from sim.outcome import MANY, run_seed
from sim.short_form import check_same_story, check_seeds, known_seeds

KIND = "coordinators"


@pytest.mark.timeout(900)
def test_no_promise_to_groups_and_producers_is_broken() -> None:
    check_seeds(KIND, MANY[KIND], chunk=5)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", known_seeds("coordination"))
def test_a_seed_that_once_failed(seed: int) -> None:
    assert run_seed(seed, kind=KIND).failure is None


@pytest.mark.timeout(600)
def test_the_same_seed_gives_the_same_story() -> None:
    check_same_story(KIND, 3)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_the_simulator_catches_a_broken_rule(name: str) -> None:
    mutant = MUTANTS[name]
    assert caught_after(mutant, mutant.run) is not None, f"not caught in {mutant.within} seeds"
