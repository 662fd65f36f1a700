"""Majorities: how many make one, and what a majority has.

Arithmetic only; compared with brute force in a property test. Called by candidates (votes), leaders
(commit, check-quorum) and membership changes.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dmq.types import Position, Voter

NOTHING = Position(-1, -1, -1)
"""Below every position: what we know of a replica that told us nothing."""


def majority(voters_count: int) -> int:
    """The least number of voters such that two groups of so many always share one."""
    return voters_count // 2 + 1


def majority_has(durable_ends: Sequence[Position]) -> Position:
    """The greatest position that a majority has, given one durable end per voter: the k-th greatest."""
    assert durable_ends, "a group without voters commits nothing"
    return sorted(durable_ends, reverse=True)[majority(len(durable_ends)) - 1]


class Tally(NamedTuple):
    """An election's votes."""

    voters_count: int
    well: int
    """Votes of voters that know all that they acknowledged."""
    recovering: int
    refused: int

    @property
    def is_won(self) -> bool:
        return self.well >= majority(self.voters_count)

    @property
    def is_unanimous(self) -> bool:
        """Nobody has a greater position than the candidate: the best that is left, if not all."""
        return self.well + self.recovering == self.voters_count

    @property
    def has_majority(self) -> bool:
        return self.well + self.recovering >= majority(self.voters_count)

    @property
    def is_lost(self) -> bool:
        """Too many refused for any majority."""
        return self.voters_count - self.refused < majority(self.voters_count)


def tally(voters: Iterable[Voter], grants: dict[Voter, bool], refusals: Iterable[Voter]) -> Tally:
    """Count the votes of `voters` alone; `grants` says of each voter whether it is well."""
    listed = list(voters)
    given = [grants[voter] for voter in listed if voter in grants]
    against = set(refusals)
    return Tally(
        voters_count=len(listed),
        well=sum(given),
        recovering=len(given) - sum(given),
        refused=sum(voter in against for voter in listed),
    )
