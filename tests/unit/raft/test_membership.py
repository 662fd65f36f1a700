"""The next single step from the present voters to the wanted ones; see also the property test."""

from collections.abc import Sequence

import pytest
from scenarios.raft_cluster import voter

from dmq.raft.membership import ChangeVoters, HandOver, Step, is_single_step, next_step
from dmq.types import Voter

A, B, C, D = (voter(n) for n in range(1, 5))
RENAMED_C = voter(3, directory=1)


def step(
    voters: Sequence[Voter],
    target: Sequence[Voter],
    *,
    me: Voter = A,
    ready: Sequence[Voter] = (A, B, C, D, RENAMED_C),
    dead: Sequence[Voter] = (),
) -> Step | None:
    return next_step(me, voters, target, lambda v: v in ready, lambda v: v not in dead)


def test_nothing_to_do() -> None:
    assert step((A, B, C), (A, B, C)) is None


def test_a_newcomer_waits_until_it_is_ready() -> None:
    assert step((A, B), (A, B, C), ready=()) is None
    assert step((A, B), (A, B, C)) == ChangeVoters((A, B, C))


def test_a_live_predecessor_goes_after_its_successor_came() -> None:
    assert step((A, B, C), (A, B, D), ready=()) is None, "not before there is somebody instead"
    assert step((A, B, C), (A, B, D)) == ChangeVoters((A, B, D, C))
    assert step((A, B, D, C), (A, B, D)) == ChangeVoters((A, B, D))


def test_a_dead_or_renamed_one_goes_first() -> None:
    wanted = (A, B, RENAMED_C)
    assert step((A, B, C), wanted, dead=(C,)) == ChangeVoters((A, B))
    assert step((A, B), wanted) == ChangeVoters(wanted)


def test_a_dead_one_stays_if_its_removal_could_not_be_committed() -> None:
    assert step((A, B, C), (A, B, D), dead=(B, C)) == ChangeVoters((A, B, D, C))
    assert step((A, B, C), (A, B), dead=(B,)) is None


def test_shrinking_one_after_the_other() -> None:
    assert step((A, B, C), (A,)) == ChangeVoters((A, C))
    assert step((A, C), (A,)) == ChangeVoters((A,))


def test_moving_a_single_replica() -> None:
    """While the set is two, both are needed."""
    assert step((A,), (B,)) == ChangeVoters((B, A))
    assert step((B, A), (B,)) == HandOver((B,))
    assert step((B, A), (B,), me=B) == ChangeVoters((B,))


def test_an_unwanted_leader_removes_the_others_first_and_hands_over_to_the_living() -> None:
    assert step((A, B, C), (B,)) == ChangeVoters((A, B))
    assert step((A, B, C), (B, C), dead=(B,)) == HandOver((C,))


def test_the_order_follows_the_target() -> None:
    assert step((A, B, C), (B, C, A)) == ChangeVoters((B, C, A))


@pytest.mark.parametrize(
    ("old", "new", "is_one"),
    [
        ((A, B), (A, B, C), True),
        ((A, B), (B, A), True),
        ((A, B), (A, C), False),
        ((A,), (), False),
        ((A, B), (A, B, B), False),
    ],
)
def test_single_steps(old: tuple[Voter, ...], new: tuple[Voter, ...], is_one: bool) -> None:
    assert is_single_step(old, new) is is_one


def test_a_leader_that_is_no_voter_hands_over_before_anything_else() -> None:
    assert step((B, C, D), (A, B, C, D)) == HandOver((B, C, D))
    assert step((B, C, D), (B, C), dead=(B,)) == HandOver((C, D))
    assert step((B,), (A, B), dead=(B,)) is None
