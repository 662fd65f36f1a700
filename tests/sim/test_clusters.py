"""Whole brokers under faults, with the metadata as a group of theirs: the short form, and its mutants.

The long form is `python -m tests.sim --kind clusters --many 1000 --jobs 2`. A seed that fails is
replayed, one line per event, with `python -m tests.sim --kind clusters --seed SEED`.
"""

import multiprocessing
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from sim.cluster.mutants import MUTANTS
from sim.cluster.world import ClusterWorld
from sim.mutants import caught_after
from sim.outcome import MANY, run_seed, unreached

KIND = "clusters"
JOBS = 2
SEEDS = MANY[KIND]


def known_seeds() -> list[int]:
    lines = (Path(__file__).parent / "cluster" / "seeds.txt").read_text().splitlines()
    return [int(line.split()[0]) for line in lines if line and not line.startswith("#")]


@pytest.mark.timeout(900)
def test_no_promise_of_a_cluster_is_broken() -> None:
    reached: Counter[str] = Counter()
    with multiprocessing.get_context("spawn").Pool(JOBS) as pool:
        outcomes = pool.map(partial(run_seed, kind=KIND), range(SEEDS), chunksize=2)
    failures = [f"seed {o.seed}: {o.failure}" for o in outcomes if o.failure is not None]
    assert failures == []
    assert [o.seed for o in outcomes if o.is_weak] == [], "too few operations or faults"
    for outcome in outcomes:
        reached.update(outcome.reached)
    assert unreached(reached, SEEDS, KIND) == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", known_seeds())
def test_a_seed_that_once_failed(seed: int) -> None:
    assert run_seed(seed, kind=KIND).failure is None


@pytest.mark.timeout(300)
def test_the_same_seed_gives_the_same_story() -> None:
    first, second = ClusterWorld(5, is_replay=True), ClusterWorld(5, is_replay=True)
    first.run()
    second.run()
    assert first.lines == second.lines
    quiet = ClusterWorld(5)
    quiet.run()
    assert quiet.clock.events == first.clock.events, "a replay must not change the run"
    assert quiet.reached == first.reached


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_the_simulator_catches_a_broken_rule(name: str) -> None:
    mutant = MUTANTS[name]
    assert caught_after(mutant, mutant.run) is not None, f"not caught in {mutant.within} seeds"
