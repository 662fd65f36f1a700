"""A leadership is handed over: when the heir is told, what it answers, and how long producers wait."""

import pytest
from scenarios.raft_cluster import voter
from scenarios.raft_solo import P, Solo, led

from dmq.raft.messages import Ack, Append, PreVote, TimeoutNow, Vote, VoteReply
from dmq.raft.state import Role
from dmq.types import Mark


def handing_over() -> Solo:
    """A leader that has told node 2 to stand."""
    solo = led()
    assert solo.core.transfer(voter(2), solo.now)
    assert (2, TimeoutNow(1, 1)) in solo.says()
    assert not solo.core.can_append
    return solo


# --- the leader -----------------------------------------------------------------------------------


def test_a_leader_hands_over_before_it_removes_itself() -> None:
    solo = led()
    solo.core.set_target(solo.voters[1:], solo.now)
    assert solo.core.voters == solo.voters
    assert not solo.core.can_append
    assert TimeoutNow(1, 1) in dict(solo.says()).values()


def test_an_heir_that_never_stands_does_not_stop_producers_for_ever() -> None:
    solo = led()
    solo.core.set_target(solo.voters[1:], solo.now)
    solo.says()
    transfer_ms = solo.cluster.settings.transfer_ms
    solo.passes(transfer_ms)
    assert not solo.core.can_append, "the other one may do better"
    solo.passes(transfer_ms)
    for _ in range(8):
        assert solo.core.can_append
        solo.passes(transfer_ms)
    solo.passes(transfer_ms)
    assert not solo.core.can_append, "another attempt"


def test_a_lease_is_void_once_the_heir_was_told() -> None:
    solo = led()
    assert solo.core.may_lease
    solo.core.transfer(voter(2), solo.now)
    assert not solo.core.may_lease
    solo.says()
    solo.passes(solo.cluster.settings.transfer_ms)
    assert solo.core.can_append
    assert not solo.core.may_lease, "what it was told may yet reach it"


def test_an_heir_that_has_all_that_the_disk_took_is_told_so() -> None:
    """A full disk hands over just when a record is being refused, again and again."""
    solo = led()
    solo.says()
    solo.hears(2, Ack(1, P(1, 0, 0)))
    solo.produces()
    assert solo.core.transfer(voter(2), solo.now)
    del solo.host.log.data[:]
    solo.host.refused()
    assert (2, TimeoutNow(1, 1)) in solo.says()


def test_producers_go_on_until_an_heir_has_what_is_committed() -> None:
    """An heir that was just started, of which nothing is known, must not keep them waiting."""
    solo = led()
    end = solo.produces()
    solo.says()
    solo.hears(3, Ack(1, end))
    solo.disconnect(2)
    solo.connect(2)
    assert solo.core.transfer(voter(2), solo.now)
    assert solo.core.can_append
    later = solo.produces()
    solo.hears(2, Ack(1, end))
    assert not solo.core.can_append
    assert TimeoutNow(1, 1) not in dict(solo.says()).values()
    solo.hears(2, Ack(1, later))
    assert (2, TimeoutNow(1, 1)) in solo.says()


def test_a_leader_whose_heir_can_not_serves_again_at_once() -> None:
    solo = handing_over()
    solo.hears(2, TimeoutNow(1, 1))
    assert solo.core.can_append
    assert solo.core.has_failed(voter(2), solo.now)
    assert solo.core.may_lease, "it will not stand"
    rest_ms = 10 * solo.cluster.settings.transfer_ms
    solo.passes(rest_ms)
    assert not solo.core.has_failed(voter(2), solo.now)


def test_a_leader_that_must_go_asks_the_next_heir_at_once() -> None:
    solo = led()
    solo.core.set_target(solo.voters[1:], solo.now)
    (first,) = [node for node, said in solo.says() if isinstance(said, TimeoutNow)]
    solo.hears(first, TimeoutNow(1, 1))
    assert (5 - first, TimeoutNow(1, 2)) in solo.says()
    solo.hears(5 - first, TimeoutNow(1, 2))
    assert solo.core.can_append, "nobody can: producers go on"


def test_only_the_heirs_word_and_only_of_this_handover_counts() -> None:
    solo = handing_over()
    solo.hears(3, TimeoutNow(1, 1))
    solo.hears(2, TimeoutNow(0, 1))
    assert not solo.core.can_append
    waiting = led()
    waiting.produces()
    assert waiting.core.transfer(voter(2), waiting.now)
    waiting.hears(2, TimeoutNow(1, 1))
    assert not waiting.core.has_failed(voter(2), waiting.now), "it was not asked yet"


@pytest.mark.parametrize("end", ["time", "link", "in the turn"])
def test_an_heir_that_was_not_told_yet_when_its_leader_gave_up_is_not_told_any_more(
    end: str,
) -> None:
    """It would stand while producers go on here."""
    solo = led()
    assert solo.core.transfer(voter(2), solo.now)
    if end == "in the turn":
        solo.host.begin_turn()
    if end == "link":
        solo.suspect(2)
    else:
        solo.passes(solo.cluster.settings.transfer_ms)
    assert solo.core.can_append
    assert not any(isinstance(said, TimeoutNow) for _, said in solo.says())
    assert solo.core.may_lease, "nobody was told anything"


def told_twice() -> Solo:
    """A leader that gave up one handover to node 2, and has begun another one."""
    solo = handing_over()
    solo.passes(solo.cluster.settings.transfer_ms)
    assert solo.core.transfer(voter(2), solo.now)
    assert (2, TimeoutNow(1, 2)) in solo.says()
    return solo


def test_an_answer_to_what_was_told_before_does_not_end_a_handover() -> None:
    solo = told_twice()
    solo.hears(2, TimeoutNow(1, 1))
    assert not solo.core.can_append
    assert not solo.core.may_lease
    solo.hears(2, TimeoutNow(1, 2))
    assert solo.core.can_append
    assert solo.core.may_lease


def test_a_lease_is_void_while_one_word_to_stand_was_not_answered() -> None:
    solo = told_twice()
    for _ in range(2):
        solo.hears(2, TimeoutNow(1, 2))
    assert solo.core.can_append
    assert not solo.core.may_lease, "the first may be under way still"


@pytest.mark.parametrize("what", ["another session", "another heir", "another number"])
def test_a_lease_is_void_until_the_heir_itself_says_that_it_will_not_stand(what: str) -> None:
    solo = handing_over()
    if what == "another session":
        solo.disconnect(2)
        solo.connect(2)
    solo.hears(3 if what == "another heir" else 2, TimeoutNow(1, 1 + (what == "another number")))
    solo.passes(solo.cluster.settings.transfer_ms)
    assert solo.core.can_append
    assert not solo.core.may_lease


# --- the heir -------------------------------------------------------------------------------------


def test_an_heir_that_can_stands_and_says_nothing_else() -> None:
    solo = Solo()
    solo.core.claimed(voter(3), 1, solo.now)
    solo.host.stage()
    solo.hears(3, TimeoutNow(1, 1))
    assert solo.core.role is Role.CANDIDATE
    assert TimeoutNow(1, 1) not in dict(solo.says()).values()


@pytest.mark.parametrize("why", ["not a voter", "damaged", "recovering", "unfit"])
def test_an_heir_that_can_not_says_so(why: str) -> None:
    solo = Solo(is_damaged=why == "damaged", is_recovering=why == "recovering")
    if why == "not a voter":
        marks = (Mark(1, 0, 0, solo.voters, 0), Mark(1, 1, 0, solo.voters[1:], 0))
        base, end = P(0, 0, 0), P(1, 1, 0)
        solo.hears(3, Append(1, base, marks, end, end, base, wants_ack=True))
    solo.host.links.is_fit = why != "unfit"
    solo.core.claimed(voter(3), 2, solo.now)
    solo.host.stage()
    solo.says()
    solo.hears(3, TimeoutNow(2, 1))
    assert solo.core.role is Role.FOLLOWER
    assert solo.says() == [(3, TimeoutNow(2, 1))]


def test_an_heir_that_said_no_does_not_stand_though_it_is_told_twice() -> None:
    """Its leader has its lease again."""
    solo = Solo()
    solo.host.links.is_fit = False
    solo.core.claimed(voter(3), 1, solo.now)
    solo.host.stage()
    solo.hears(3, TimeoutNow(1, 2))
    assert solo.says() == [(3, TimeoutNow(1, 2))]
    solo.host.links.is_fit = True
    for number in (1, 2):
        solo.hears(3, TimeoutNow(1, number))
        assert solo.core.role is Role.FOLLOWER
        assert solo.says() == []
    solo.hears(3, TimeoutNow(1, 3))
    assert solo.core.role is Role.CANDIDATE


def test_an_heir_whose_disk_refuses_what_it_asks_votes_for_does_not_stand_any_more() -> None:
    """Whoever has the record gives its vote for it: the heir would lead without what is committed."""
    solo = Solo()
    solo.core.claimed(voter(3), 1, solo.now)
    solo.host.stage()
    solo.says()
    marks, base, end = (Mark(1, 0, 0, solo.voters, 0),), P(0, 0, 0), P(1, 0, 1)
    solo.hears(3, Append(1, base, marks, end, end, base, wants_ack=True))
    solo.hears(3, TimeoutNow(1, 1))
    assert solo.core.role is Role.CANDIDATE
    del solo.host.log.data[:]
    solo.host.refused()
    solo.host.stage()
    assert not any(isinstance(said, PreVote | Vote) for _, said in solo.says())
    for node in (2, 3):
        solo.hears(node, VoteReply(2, 2, None, False))
    assert solo.core.role is Role.FOLLOWER
    assert solo.core.deadline is not None, "it may stand again, for what it has"


def test_who_does_not_lead_any_more_neither_stands_for_an_answer_nor_sends_it_back() -> None:
    solo = handing_over()
    solo.core.resign(solo.now)
    solo.host.links.is_fit = False
    solo.hears(2, TimeoutNow(1, 1))
    assert solo.core.role is Role.FOLLOWER
    assert TimeoutNow(1, 1) not in dict(solo.says()).values()
