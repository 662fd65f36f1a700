"""Whole brokers under faults, with the metadata as a group of theirs: the short form, and its mutants.

The long form is `python -m tests.sim --kind clusters --many 1000 --jobs 2`. A seed that fails is
replayed, one line per event, with `python -m tests.sim --kind clusters --seed SEED`.
"""

import pytest
from sim.cluster.demands import KIND, check_clusters
from sim.cluster.mutants import MUTANTS
from sim.mutants import caught_after
from sim.outcome import MANY, run_seed
from sim.short_form import check_same_story, known_seeds


@pytest.mark.timeout(900)
def test_no_promise_of_a_cluster_is_broken() -> None:
    check_clusters(MANY[KIND], chunk=2)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", known_seeds("cluster"))
def test_a_seed_that_once_failed(seed: int) -> None:
    assert run_seed(seed, kind=KIND).failure is None


@pytest.mark.timeout(300)
def test_the_same_seed_gives_the_same_story() -> None:
    check_same_story(KIND, 5)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_the_simulator_catches_a_broken_rule(name: str) -> None:
    mutant = MUTANTS[name]
    assert caught_after(mutant, mutant.run) is not None, f"not caught in {mutant.within} seeds"
