"""A replica that left a group and is back: its records are gone, how far they went is known.

So its vote is what it would be if it had kept its log; only one that lost its tail does not know.
"""

import pytest
from scenarios.raft_cluster import Image, ListLog
from scenarios.raft_solo import P, Solo, led

from dmq.raft.core import Role
from dmq.raft.marks import Marks
from dmq.raft.messages import (
    Append,
    PreVote,
    PreVoteReply,
    Refusal,
    TimeoutNow,
    Vote,
    VoteReply,
)
from dmq.types import Mark, Position

HAD = P(2, 1, 3)
BASE = P(0, 0, 0)


def append(epoch: int, prev: Position, end: Position, *marks: Mark, leader_end: Position) -> Append:
    return Append(epoch, prev, marks, end, leader_end, prev, wants_ack=True)


@pytest.mark.parametrize("end", [HAD, P(2, 1, 4), P(2, 2, 3), P(3, 0, 1)])
def test_votes_like_a_well_one_for_who_has_as_much_as_it_had(end: Position) -> None:
    """Node 3 is not there: nothing depends on all being connected."""
    solo = Solo(remembered=HAD, epoch=2, is_connected=False)
    solo.connect(2)
    solo.hears(2, PreVote(4, end))
    solo.hears(2, Vote(4, end, is_transfer=False))
    assert solo.says() == [
        (2, PreVoteReply(2, 4, None, False)),
        (2, VoteReply(4, 4, None, False)),
    ]
    assert solo.core.vote == solo.voters[1]
    assert solo.core.is_recovering, "it has not got back what it had"


@pytest.mark.parametrize("end", [P(2, 1, 2), P(2, 0, 9), P(1, 7, 9)])
@pytest.mark.parametrize("is_unclean_allowed", [False, True])
def test_votes_for_nobody_who_has_less_than_it_had(end: Position, is_unclean_allowed: bool) -> None:
    """All voters are there, and the long wait is over: it knows better."""
    solo = Solo(remembered=HAD, epoch=2, is_unclean_allowed=is_unclean_allowed)
    solo.core.start(0)
    solo.passes(solo.cluster.settings.unclean_wait_ms)
    solo.hears(2, PreVote(4, end))
    solo.hears(2, Vote(4, end, is_transfer=False))
    assert solo.says() == [
        (2, PreVoteReply(2, 4, Refusal.RECOVERING, False)),
        (2, VoteReply(4, 4, Refusal.RECOVERING, False)),
    ]
    assert solo.core.vote is None


def test_votes_for_nobody_who_has_less_than_it_has_now() -> None:
    solo = Solo(marks=[(0, 0, 0), (3, 0, 1)], end=5, epoch=3, remembered=HAD)
    solo.hears(2, Vote(4, P(3, 0, 4), is_transfer=False))
    assert solo.says()[0] == (2, VoteReply(4, 4, Refusal.LOG, False))
    assert solo.core.vote is None


def test_keeps_to_the_vote_that_it_gave() -> None:
    solo = Solo(remembered=HAD, epoch=4, vote=3)
    solo.hears(2, Vote(4, P(3, 0, 9), is_transfer=False))
    assert solo.says() == [(2, VoteReply(4, 4, Refusal.VOTED, False))]


def test_its_own_vote_counts_when_it_has_as_much_as_it_had() -> None:
    solo = Solo(1, marks=[(0, 0, 0), (3, 0, 1)], end=2, epoch=3, remembered=HAD)
    solo.core.start(0)
    solo.passes(0)
    solo.says()
    assert solo.core.is_leader
    assert solo.core.unclean_elections == 0
    assert not solo.core.is_recovering


def test_a_majority_with_its_own_vote_is_a_clean_one() -> None:
    solo = Solo(marks=[(0, 0, 0), (3, 0, 1)], end=2, epoch=3, remembered=HAD, is_connected=False)
    solo.connect(2)
    solo.leads()
    assert solo.core.unclean_elections == 0
    assert solo.marks()[-1] == (4, 0, 2)


@pytest.mark.parametrize("voters_count", [1, 3])
def test_stands_for_nothing_before_it_has_as_much_as_it_had(voters_count: int) -> None:
    """What it has so far names the voters of old."""
    solo = Solo(voters_count, marks=[(0, 0, 0), (2, 1, 1)], end=2, epoch=2, remembered=HAD)
    solo.core.start(0)
    solo.passes(solo.cluster.settings.unclean_wait_ms)
    assert solo.says() == []
    assert solo.core.role is Role.FOLLOWER
    assert solo.core.epoch == 2
    assert solo.core.deadline is None


@pytest.mark.parametrize(("end", "may_lead"), [(2, False), (3, True)])
def test_is_handed_the_leadership_when_it_has_as_much_as_it_had(end: int, may_lead: bool) -> None:
    solo = Solo(marks=[(0, 0, 0), (2, 1, 1)], end=end, epoch=2, remembered=HAD)
    solo.core.claimed(solo.voters[1], 2, solo.now)
    solo.hears(2, TimeoutNow(2, 1))
    assert (solo.core.role is Role.CANDIDATE) == may_lead


def test_is_well_when_it_durably_has_as_much_as_it_had() -> None:
    """The leader has far more: that it need not have."""
    solo = Solo(remembered=HAD, epoch=2, is_connected=False)
    solo.connect(2)
    goal = P(3, 0, 9)
    mark = Mark(2, 1, 1, solo.voters, 0)
    solo.hears(2, append(3, BASE, P(2, 1, 2), mark, leader_end=goal))
    solo.says()
    assert solo.core.is_recovering
    solo.hears(2, append(3, P(2, 1, 2), HAD, leader_end=goal))
    assert solo.core.is_recovering, "not yet durable"
    solo.says()
    assert not solo.core.is_recovering


def test_a_leader_remembers_until_what_it_has_is_durable() -> None:
    """Elected with a tail that a crash may still take: then it must know how far it once was."""
    solo = Solo(remembered=HAD, epoch=2, is_connected=False)
    solo.connect(2)
    mark = Mark(2, 1, 1, solo.voters, 0)
    solo.hears(2, append(3, BASE, P(2, 1, 2), mark, leader_end=P(2, 1, 3)))
    solo.says()
    solo.hears(2, append(3, P(2, 1, 2), HAD, leader_end=P(2, 1, 3)))
    solo.hears(2, TimeoutNow(3, 1))
    assert solo.core.role is Role.CANDIDATE
    assert solo.core.is_recovering
    solo.says()
    solo.hears(2, VoteReply(4, 4, None, False))
    assert solo.core.is_leader
    assert solo.core.unclean_elections == 0
    assert not solo.core.is_recovering


def test_one_that_lost_its_tail_too_gives_no_good_vote() -> None:
    solo = Solo(remembered=HAD, epoch=2, is_recovering=True, is_connected=False)
    solo.connect(2)
    solo.hears(2, PreVote(4, P(3, 0, 1)))
    assert solo.says() == [(2, PreVoteReply(2, 4, Refusal.RECOVERING, True))]
    solo.connect(3)
    solo.hears(2, Vote(4, P(3, 0, 1), is_transfer=False))
    assert solo.says() == [(2, VoteReply(4, 4, None, True))], "all are there"


def test_one_that_lost_its_tail_too_is_not_well_by_what_it_had() -> None:
    solo = Solo(remembered=HAD, epoch=2, is_recovering=True, is_connected=False)
    solo.connect(2)
    mark = Mark(2, 1, 1, solo.voters, 0)
    solo.hears(2, append(3, BASE, HAD, mark, leader_end=P(2, 1, 4)))
    solo.says()
    assert solo.core.is_recovering
    solo.hears(2, append(3, HAD, P(2, 1, 4), leader_end=P(2, 1, 4)))
    solo.says()
    assert not solo.core.is_recovering


def begin_again(solo: Solo) -> None:
    """With an empty log: nobody can repair the one that it has."""
    core = solo.core.begin_again(HAD)
    solo.host.core = core
    solo.host.log = ListLog(Image(core.epoch, core.vote, Marks(), 0, ()))
    solo.host.commit = core.commit
    core.start(solo.now)
    assert core.is_recovering


@pytest.mark.parametrize("has_lost_tail", [False, True])
def test_who_begins_again_knows_how_far_it_was_if_it_knew_before(has_lost_tail: bool) -> None:
    solo = Solo(epoch=2, is_recovering=has_lost_tail, is_connected=False)
    solo.connect(2)
    begin_again(solo)
    solo.hears(2, PreVote(4, P(2, 1, 2)))
    solo.hears(2, PreVote(4, HAD))
    expected = Refusal.RECOVERING if has_lost_tail else None
    assert solo.says() == [
        (2, PreVoteReply(2, 4, Refusal.RECOVERING, has_lost_tail)),
        (2, PreVoteReply(2, 4, expected, has_lost_tail)),
    ]


def test_who_begins_again_votes_for_nobody_while_its_leader_may_have_a_lease() -> None:
    solo = Solo(epoch=2)
    solo.core.claimed(solo.voters[1], 3, solo.now)
    solo.host.stage()
    begin_again(solo)
    assert solo.core.leader == solo.voters[1]
    assert solo.core.leaderless_ms(solo.now + 1) == 0
    solo.hears(3, PreVote(4, P(3, 0, 9)))
    solo.hears(3, Vote(4, P(3, 0, 9), is_transfer=False))
    assert solo.says() == [
        (3, PreVoteReply(3, 4, Refusal.LEASE, False)),
        (3, VoteReply(3, 4, Refusal.LEASE, False)),
    ]
    solo.disconnect(2)
    solo.hears(3, Vote(4, P(3, 0, 9), is_transfer=False))
    assert solo.says() == [(3, VoteReply(4, 4, None, False))]


def test_who_begins_again_waits_on_for_an_operators_order() -> None:
    solo = Solo(epoch=2)
    solo.core.hold(solo.now + 100, solo.now)
    solo.host.stage()
    begin_again(solo)
    solo.hears(3, PreVote(4, HAD))
    assert solo.says() == [(3, PreVoteReply(3, 4, Refusal.LEASE, False))]


def test_a_leader_that_begins_again_leads_no_more() -> None:
    """As one that resigned: nobody else can lead its epoch, and it has no lease to keep."""
    solo = led(marks=[(0, 0, 0), (2, 1, 1)], end=3, epoch=2)
    begin_again(solo)
    assert solo.core.role is Role.FOLLOWER
    assert solo.core.leader is None
