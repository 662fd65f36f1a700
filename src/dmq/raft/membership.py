"""Who votes: the next single step from the present voters to those that are wanted.

    CHANGE    one voter more or less, as a mark; the next one only when that mark is committed
    TRANSFER  the leader is not wanted any more, and hands over before it is removed; or it is no voter,
              for it was elected when nobody else could be

A newcomer is a learner first. A successor that is caught up comes in before a live predecessor goes, but
after a dead or renamed one has gone: four voters of whom one is dead tolerate nothing, and three of
whom one is dead tolerate as little as two. Takes no decision about when; leader.py asks while the
rule CHANGE allows a step. Knows no log and no clock.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from dmq.raft.quorum import majority
from dmq.types import Voter

Test = Callable[[Voter], bool]


class ChangeVoters(NamedTuple):
    """Write a mark with these voters."""

    voters: tuple[Voter, ...]


class HandOver(NamedTuple):
    """Transfer the leadership to one of these, the best first."""

    to: tuple[Voter, ...]


Step = ChangeVoters | HandOver


def is_single_step(old: Sequence[Voter], new: Sequence[Voter]) -> bool:
    """Whether every majority of the one shares a voter with every majority of the other."""
    return len(set(new)) == len(new) > 0 and len(set(old) ^ set(new)) <= 1


def next_step(
    me: Voter, voters: Sequence[Voter], target: Sequence[Voter], is_ready: Test, is_live: Test
) -> Step | None:
    """What the leader `me` does next; None: nothing to do, or nothing that can be done now."""
    if me not in voters:
        return _hand_over(me, voters, is_live)
    missing = [voter for voter in target if voter not in voters]
    extra = [voter for voter in voters if voter not in target and voter != me]
    dead = [voter for voter in extra if not is_live(voter)]
    ready = [voter for voter in missing if is_ready(voter)]
    if ready:
        if dead and _stays_live(voters, dead[0], is_live):
            return ChangeVoters(_without(voters, dead[0]))
        return ChangeVoters(in_order((*voters, ready[0]), target))
    if missing:
        return None
    for voter in (*dead, *extra):
        if _stays_live(voters, voter, is_live):
            return ChangeVoters(_without(voters, voter))
    if extra:
        return None
    if me not in target:
        return _hand_over(me, voters, is_live)
    ordered = in_order(voters, target)
    return ChangeVoters(ordered) if ordered != tuple(voters) else None


def _hand_over(me: Voter, voters: Sequence[Voter], is_live: Test) -> HandOver | None:
    heirs = tuple(voter for voter in voters if voter != me and is_live(voter))
    return HandOver(heirs) if heirs else None


def in_order(voters: Sequence[Voter], target: Sequence[Voter]) -> tuple[Voter, ...]:
    """In the order of the target, which is the order of succession; the unwanted come last."""
    wanted = [voter for voter in target if voter in voters]
    return (*wanted, *(voter for voter in voters if voter not in target))


def _stays_live(voters: Sequence[Voter], gone: Voter, is_live: Test) -> bool:
    """Whether a majority of the rest is there to commit the change."""
    rest = _without(voters, gone)
    return bool(rest) and sum(map(is_live, rest)) >= majority(len(rest))


def _without(voters: Sequence[Voter], gone: Voter) -> tuple[Voter, ...]:
    return tuple(voter for voter in voters if voter != gone)
