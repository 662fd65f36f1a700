"""The contract between the core and its caller: what it refuses, what it ignores, what it hands out."""

import pytest
from scenarios.raft_cluster import voter
from scenarios.raft_solo import P, Solo

from dmq.raft.core import HANDLERS
from dmq.raft.links import Links
from dmq.raft.messages import (
    Ack,
    Append,
    Nack,
    PreVote,
    PreVoteReply,
    Reset,
    TimeoutNow,
    Vote,
    VoteReply,
)
from dmq.raft.settings import RaftSettings
from dmq.raft.state import Role
from dmq.raft.writes import AddMark, SetHard
from dmq.types import Mark

BASE = P(0, 0, 0)
ANSWERS = {
    PreVoteReply: {Role.PRE_CANDIDATE},
    VoteReply: {Role.CANDIDATE},
    Ack: {Role.LEADER},
    Nack: {Role.LEADER},
}
"""Who still waits for them; all others ignore them."""


@pytest.mark.parametrize("role", Role)
def test_every_role_answers_every_question(role: Role) -> None:
    for question in (PreVote, Vote, Append, Reset):
        assert (role, question) in HANDLERS
    for answer, waiting in ANSWERS.items():
        assert ((role, answer) in HANDLERS) is (role in waiting)
    assert (role, TimeoutNow) in HANDLERS


def test_writes_are_handed_out_once_and_in_order() -> None:
    solo = Solo()
    mark = Mark(4, 0, 0, solo.voters, 0)
    session = solo.host.links.session(voter(2))
    message = Append(4, BASE, (mark,), P(4, 0, 0), P(4, 0, 0), BASE, wants_ack=True)
    solo.core.step(voter(2), session, message, 0)
    assert solo.core.take_writes() == [SetHard(4, None), AddMark(mark)]
    assert solo.core.take_writes() == []


def test_a_turn_begins_only_when_everything_is_staged() -> None:
    solo = Solo()
    solo.core.claimed(voter(2), 7, 0)
    with pytest.raises(AssertionError):
        solo.core.ready(0)


def test_one_turn_at_a_time() -> None:
    solo = Solo()
    solo.core.ready(0)
    with pytest.raises(AssertionError):
        solo.core.ready(0)
    assert solo.core.durable(BASE, 0) == []
    solo.core.ready(0)


def test_what_an_input_causes_during_a_turn_waits_for_the_next() -> None:
    solo = Solo()
    solo.says_before_sync()
    solo.hears(2, Vote(1, BASE, is_transfer=False))
    assert solo.says_after_sync() == []
    assert solo.says_before_sync() == []
    assert len(solo.says_after_sync()) == 1


def test_only_a_leader_appends() -> None:
    with pytest.raises(AssertionError):
        Solo().core.appended(1)


def test_ready_says_whether_a_promise_waits_for_the_sync() -> None:
    solo = Solo()
    assert not solo.core.ready(0).has_promises
    solo.core.durable(BASE, 0)
    solo.hears(2, Vote(1, BASE, is_transfer=False))
    assert solo.core.ready(0).has_promises


def test_the_leaders_records_are_sent_only_after_the_log_took_them() -> None:
    solo = Solo()
    solo.leads()
    for node in (2, 3):
        solo.hears(node, Ack(1, P(1, 0, 0)))
    solo.says()
    solo.produces()
    assert solo.core.wants(solo.now) == [], "the turn has not begun"
    assert len(solo.says_before_sync()) == 2


def test_two_leaders_of_one_epoch_stop_the_process() -> None:
    solo = Solo()
    solo.leads()
    with pytest.raises(AssertionError, match="two leaders"):
        solo.hears(2, Append(1, BASE, (), BASE, BASE, BASE, wants_ack=True))


def test_facts_of_a_leader_and_of_others() -> None:
    solo = Solo()
    assert (solo.core.leader, solo.core.matches(), solo.core.durable_count(BASE)) == (None, {}, 0)
    solo.leads()
    assert solo.core.leader == solo.me
    assert list(solo.core.matches()) == [voter(2), voter(3)]
    assert solo.core.durable_count(BASE) == 1
    assert repr(solo.core) == "<RaftCore leader epoch=1 end=(1, 0, 0)>"


def test_a_leader_may_resign_without_an_heir() -> None:
    solo = Solo()
    solo.leads()
    solo.core.resign(solo.now)
    assert (solo.core.role, solo.core.epoch) == (Role.FOLLOWER, 1)


def test_observers_get_the_log_and_never_a_vote() -> None:
    solo = Solo()
    solo.leads()
    solo.core.set_target(solo.voters, solo.now, observers=(voter(9),))
    solo.connect(9)
    assert 9 in dict(solo.says())
    for node in (2, 3, 9):
        solo.hears(node, Ack(1, P(1, 0, 0)))
    solo.passes(60_000)
    assert solo.core.voters == solo.voters
    assert solo.core.deadline is None


def test_links_know_sessions_and_names() -> None:
    links = Links(voter(1))
    assert links.is_live(voter(1))
    links.open(voter(2), 5)
    links.suspect(voter(2))
    assert (links.session(voter(2)), links.is_live(voter(2))) == (5, False)
    links.revive(voter(2))
    assert links.is_live(voter(2))
    assert not links.is_live(voter(2, directory=1)), "another disk is another replica"
    with pytest.raises(AssertionError):
        links.open(voter(2), 5)
    links.close(voter(2))
    assert (links.session(voter(2)), links.is_live(voter(2))) == (0, False)


def test_settings_that_make_no_sense_are_refused() -> None:
    for wrong in ({"rank_ms": 0}, {"window": 0}, {"election_ms": 50}, {"promote_ms": 50}):
        with pytest.raises(AssertionError):
            RaftSettings(**wrong)


@pytest.mark.parametrize("what", ["start", "allow_unclean", "pre-vote"])
def test_a_candidate_keeps_its_timer_whatever_it_is_told(what: str) -> None:
    """Without one the group waits for ever: it stands, and so it neither asks again nor lets others."""
    solo = Solo(3, marks=((1, 0, 0),), end=4, epoch=1)
    solo.core.claimed(voter(2), 1, solo.now)
    solo.disconnect(2)
    if what == "pre-vote":
        solo.passes(solo.core.deadline - solo.now)
        assert solo.core.role is Role.PRE_CANDIDATE
        solo.connect(2)
    else:
        solo.stands()
        assert solo.core.role is Role.CANDIDATE
    solo.disconnect(3)
    before = solo.core.deadline
    if what == "start":
        solo.core.start(solo.now)
    elif what == "allow_unclean":
        solo.core.allow_unclean(False, solo.now)
    else:
        solo.suspect(2)
        solo.hears(2, PreVote(2, P(1, 0, 3)))
    solo.host.stage()
    assert solo.core.deadline == before is not None


@pytest.mark.parametrize("what", ["start", "allow_unclean", "repaired"])
def test_an_order_is_obeyed_whatever_else_is_said(what: str) -> None:
    solo = Solo(3, marks=((1, 0, 0),), end=4, epoch=1)
    solo.core.recover(50, solo.now)
    solo.host.stage()
    if what == "start":
        solo.core.start(solo.now)
    elif what == "allow_unclean":
        solo.core.allow_unclean(True, solo.now)
    else:
        solo.core.repaired(solo.now)
    solo.passes(1000)
    assert solo.core.is_obeying
    solo.says()
    assert solo.core.is_leader
    assert solo.core.voters == (solo.me,)
