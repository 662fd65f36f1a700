"""Clusters of real cores walk at random through faults; then the same with one rule broken.

A walk that fails prints its seed: `walk(SEED, PROFILE)` of tests/scenarios/raft_walk.py repeats it. More
walks: DMQ_RAFT_WALKS=5000 pytest tests/properties/test_raft_walks.py
"""

import os
from dataclasses import replace

import pytest
from scenarios import raft_attacks
from scenarios.raft_mutants import MUTANTS, Mutant
from scenarios.raft_walk import (
    ASYNC,
    CHANCES,
    ORDERED,
    SAFE,
    BrokenPromiseError,
    Profile,
    Walk,
    walk,
)

WALKS = int(os.environ.get("DMQ_RAFT_WALKS", "300"))
FIRST_SEED = int(os.environ.get("DMQ_RAFT_SEED", "0"))
MUTANT_WALKS_MAX = 120
"""A mutant must be noticed within so many walks."""
REACHED = {
    "election", "commit", "cut", "mark cut", "voters rolled back", "empty epochs in a row", "ResetTo",
    "Trim", "change", "crash", "refused",
}  # fmt: skip
"""States that the walks must have visited, or they prove little."""


def walk_many(profile: Profile, count: int) -> dict[str, int]:
    reached: dict[str, int] = {}
    for seed in range(FIRST_SEED, FIRST_SEED + count):
        try:
            found = walk(seed, profile)
        except (BrokenPromiseError, AssertionError) as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        for what, times in found.items():
            reached[what] = reached.get(what, 0) + times
    return reached


def test_no_walk_breaks_a_promise() -> None:
    reached = walk_many(SAFE, WALKS)
    assert reached.keys() >= REACHED, REACHED - reached.keys()


def test_no_walk_of_async_logs_breaks_a_promise() -> None:
    reached = walk_many(ASYNC, WALKS)
    assert reached.keys() >= REACHED | {"healed"}


def test_ordered_recoveries_confuse_nobody() -> None:
    assert walk_many(ORDERED, WALKS // 4)["commit"] > 0


@pytest.mark.parametrize("profile", [SAFE, ASYNC, ORDERED], ids=["sync", "async", "ordered"])
def test_once_faults_stop_every_group_settles(profile: Profile) -> None:
    """A leader within 5 s, all replicas equal and voting, nobody recovering, no timer left."""
    without_wipes = replace(profile, chances={**CHANCES, **profile.chances, "wipe": 0.0})
    for seed in range(FIRST_SEED, FIRST_SEED + WALKS // 16):
        world = Walk(seed, without_wipes)
        world.run()
        world.heal()
        everyone = tuple(host.me for host in world.hosts.values())
        for host in world.hosts.values():
            host.set_target(everyone)
        world.live(5000)
        (leader,) = [host for host in world.hosts.values() if host.core.is_leader]
        assert leader.produce() is not None, seed
        world.live(500)
        assert {host.core.commit for host in world.hosts.values()} == {leader.core.end}, seed
        assert {host.core.end for host in world.hosts.values()} == {leader.core.end}, seed
        assert set(leader.core.voters) == set(everyone), seed
        assert not any(host.core.is_recovering for host in world.hosts.values()), seed
        assert [host.core.deadline for host in world.hosts.values()] == [None] * len(everyone), seed


@pytest.mark.parametrize("name", MUTANTS)
def test_every_mutant_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant = MUTANTS[name]
    for owner, attribute, broken in mutant.patches:
        monkeypatch.setattr(owner, attribute, broken)
    assert is_noticed(mutant), f"nobody noticed: {mutant.breaks}"


def is_noticed(mutant: Mutant) -> bool:
    try:
        if mutant.attack is not None:
            mutant.attack()
        else:
            for seed in range(MUTANT_WALKS_MAX):
                walk(seed, mutant.profile)
    except (BrokenPromiseError, AssertionError):
        return True
    return False


@pytest.mark.parametrize("name", [n for n in MUTANTS if MUTANTS[n].attack is None])
def test_the_worlds_of_mutants_are_fair(name: str) -> None:
    """With the rules as they are, the same walks find nothing: it is the mutant that they notice."""
    profile = MUTANTS[name].profile
    honest = replace(profile, loses_marks=False, keeps_name=False, forgets_loss=False)
    walk_many(honest, 10)


@pytest.mark.parametrize(
    "attack",
    [
        raft_attacks.figure_8,
        raft_attacks.trim_at_an_uncommitted_mark,
        raft_attacks.a_former_life_heals,
        raft_attacks.healed_too_soon,
        raft_attacks.a_voter_was_to_go,
        raft_attacks.the_only_voter_forgets,
        raft_attacks.an_heirs_disk_refuses,
    ],
)
def test_attacks_fail(attack: object) -> None:
    assert callable(attack)
    attack()
