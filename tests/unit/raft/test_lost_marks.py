"""A voter that lost its tail, and marks with it: whose word it takes on who the voters are.

By its own list it may wait for voters that were replaced long ago. A candidate's list is as good if its
marks go further and nobody is left out of it.
"""

import pytest
from scenarios.raft_cluster import voter
from scenarios.raft_solo import P, Solo

from dmq.raft.marks import Marks
from dmq.raft.messages import PreVote, PreVoteReply, Refusal, Vote, VoteReply
from dmq.raft.quorum import NOTHING
from dmq.raft.view import LogView
from dmq.types import Mark, Position, Voter

A, B, C, D = (voter(n) for n in (1, 2, 3, 4))


def alone_with_one(**log: object) -> Solo:
    """Node 1 lost its tail; of the three voters that its log names node 3 is not there."""
    solo = Solo(marks=[(0, 0, 0), (2, 0, 3)], end=5, is_recovering=True, is_connected=False, **log)
    solo.connect(2)
    return solo


@pytest.mark.parametrize("end", [P(2, 1, 5), P(3, 0, 5)])
def test_votes_for_later_marks_that_leave_nobody_out(end: Position) -> None:
    solo = alone_with_one()
    solo.hears(2, PreVote(4, end, is_settled=True))
    solo.hears(2, Vote(4, end, is_transfer=False, is_settled=True))
    assert solo.says() == [
        (2, PreVoteReply(2, 4, None, True)),
        (2, VoteReply(4, 4, None, True)),
    ]
    assert solo.core.vote == B


@pytest.mark.parametrize(
    ("end", "is_settled"), [(P(2, 1, 5), False), (P(2, 0, 9), True), (P(3, 0, 9), False)]
)
def test_else_waits_for_all_whom_it_knows(end: Position, is_settled: bool) -> None:
    solo = alone_with_one()
    solo.hears(2, PreVote(4, end, is_settled))
    solo.hears(2, Vote(4, end, is_transfer=False, is_settled=is_settled))
    assert solo.says() == [
        (2, PreVoteReply(2, 4, Refusal.RECOVERING, True)),
        (2, VoteReply(4, 4, Refusal.RECOVERING, True)),
    ]
    assert solo.core.vote is None


def test_never_votes_for_less_than_a_former_stay_had() -> None:
    solo = alone_with_one(remembered=P(3, 0, 2))
    solo.hears(2, Vote(4, P(2, 3, 9), is_transfer=False, is_settled=True))
    assert solo.says() == [(2, VoteReply(4, 4, Refusal.RECOVERING, True))]


@pytest.mark.parametrize(
    ("lists", "commit", "is_settled"),
    [
        ([(A, B, C)], NOTHING, True),
        ([(A, B, C), (A, B, C)], NOTHING, True),
        ([(A, B, C), (A, B)], P(0, 0, 3), False),
        ([(A, B, C), (A, B)], P(1, 1, 3), True),
        ([(A, B, C), (A, B), (A, B)], P(0, 0, 3), False),
        ([(A, B, C), (A, B, C, D)], P(0, 0, 3), True),
        ([(A, B, C), (A, B), (A, B, D)], P(0, 0, 3), True),
        ([(A, B, C), (A, B, C, D), (A, B, C)], P(1, 1, 3), False),
        ([(A, B, C), (B,)], P(0, 0, 3), False),
    ],
)
def test_only_a_voter_taken_away_in_vain_may_be_left_out(
    lists: list[tuple[Voter, ...]], commit: Position, is_settled: bool
) -> None:
    """Each list in a mark of its own, of which the first is where the log begins."""
    marks = [
        Mark(min(change, 1), change, 3 * change, voters, 0) for change, voters in enumerate(lists)
    ]
    view = LogView(Marks(tuple(marks)), 3 * len(marks), 0, commit)
    assert view.are_voters_settled is is_settled
