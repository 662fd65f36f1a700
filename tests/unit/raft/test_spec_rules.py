"""One test (or a few) per rule of the specification: positions, recovering voters, ISR, elections.

The rules' names are those of the specification's first section, in its order; then identity and
unclean starts, in-sync replicas, liveness.
"""

import pytest
from scenarios.raft_cluster import Cluster, voter
from scenarios.raft_solo import PLAIN, P, Solo, led

from dmq.raft.messages import (
    Ack,
    Append,
    Nack,
    PreVote,
    PreVoteReply,
    Refusal,
    Reset,
    Vote,
    VoteReply,
)
from dmq.raft.quorum import NOTHING
from dmq.raft.state import Role
from dmq.types import Mark

BASE = P(0, 0, 0)


def append(epoch: int, prev: P, end: P, *marks: Mark, leader_end: P | None = None) -> Append:
    return Append(epoch, prev, marks, end, leader_end or end, BASE, wants_ack=True)


# --- WRITE ----------------------------------------------------------------------------------------


def test_write_a_leader_begins_with_a_mark_at_its_own_end() -> None:
    solo = Solo(marks=[(0, 0, 0), (2, 0, 1), (2, 1, 3)], end=5, epoch=2)
    solo.leads()
    assert solo.core.marks.last == Mark(3, 0, 5, solo.voters, 0)
    assert solo.core.end == P(3, 0, 5)


def test_write_a_change_is_the_next_mark_of_the_epoch() -> None:
    solo = led(marks=[(0, 0, 0)], end=4)
    solo.core.request_log_start(3, solo.now)
    solo.host.stage()
    assert solo.core.marks.last == Mark(1, 1, 4, solo.voters, 3)


# --- VOTE -----------------------------------------------------------------------------------------


def test_vote_the_reply_leaves_after_the_hard_state_is_durable() -> None:
    solo = Solo()
    solo.hears(2, Vote(1, BASE, is_transfer=False))
    assert solo.says_before_sync() == []
    assert solo.host.log.durable.vote is None
    assert solo.says_after_sync() == [(2, VoteReply(1, 1, None, False))]
    assert solo.host.log.durable.vote == voter(2)


def test_vote_requests_leave_after_the_candidates_own_vote_is_durable() -> None:
    solo = Solo()
    solo.stands()
    assert solo.says_before_sync() == []
    assert [type(m) for _, m in solo.says_after_sync()] == [Vote, Vote]
    assert solo.host.log.durable.vote == solo.me


def test_vote_a_single_voter_leads_only_when_its_vote_is_durable() -> None:
    solo = Solo(1)
    solo.core.start(0)
    solo.passes(0)
    assert solo.core.role is Role.CANDIDATE
    solo.says_before_sync()
    assert solo.core.role is Role.CANDIDATE
    solo.says_after_sync()
    assert solo.core.is_leader


def test_vote_a_voter_answers_whoever_asks() -> None:
    solo = Solo()
    solo.connect(9)
    solo.hears(9, Vote(1, BASE, is_transfer=False))
    assert solo.says() == [(9, VoteReply(1, 1, None, False))]


def test_vote_only_voters_of_the_last_mark_are_counted() -> None:
    solo = Solo(3)
    solo.connect(9)
    solo.stands()
    solo.says()
    solo.hears(9, VoteReply(1, 1, None, False))
    assert solo.core.role is Role.CANDIDATE


@pytest.mark.parametrize("why", ["not a voter", "damaged", "recovering", "leaving"])
def test_vote_who_does_not_stand(why: str) -> None:
    solo = Solo(is_damaged=why == "damaged", is_recovering=why == "recovering", is_connected=False)
    if why == "not a voter":
        others = Mark(1, 1, 0, solo.voters[1:], 0)
        solo.connect(2)
        first = Mark(1, 0, 0, solo.voters, 0)
        solo.hears(2, append(1, BASE, P(1, 1, 0), first, others))
        solo.disconnect(2)
    solo.host.links.is_leaving = why == "leaving"
    solo.connect(3)
    solo.core.start(solo.now)
    solo.passes(100_000)
    assert solo.core.role is Role.FOLLOWER


def test_vote_who_has_a_bad_disk_stands_after_all_others() -> None:
    """It may be the only one that has what was committed."""
    solo = Solo()
    solo.host.links.is_fit = False
    solo.core.start(solo.now)
    last_rank_ms = 2 * PLAIN.rank_ms
    solo.passes(last_rank_ms + PLAIN.election_ms)
    assert solo.core.role is Role.FOLLOWER
    solo.passes(PLAIN.election_ms)
    assert solo.core.role is Role.PRE_CANDIDATE


def test_vote_a_lease_that_lasts_is_not_asked_about_for_ever_at_a_quick_pace() -> None:
    """Only our own link to the leader is down, perhaps for days, and there may be thousands of groups."""
    solo = Solo()
    solo.core.start(solo.now)
    waits = []
    for _ in range(30):
        solo.passes(waits[-1] if waits else 0)
        assert dict(solo.says())[2] == PreVote(1, BASE, is_settled=True)
        solo.hears(2, PreVoteReply(0, 1, Refusal.LEASE, False))
        assert solo.core.deadline is not None
        waits.append(solo.core.deadline - solo.now)
    assert waits[0] == PLAIN.lease_retry_ms
    assert min(waits[10:]) >= PLAIN.election_ms


def test_vote_a_damaged_replica_votes_by_its_positions() -> None:
    solo = Solo(marks=[(0, 0, 0), (1, 0, 0)], end=5, epoch=1, is_damaged=True)
    solo.hears(2, Vote(2, P(1, 0, 4), is_transfer=False))
    solo.hears(3, Vote(2, P(1, 0, 5), is_transfer=False))
    assert solo.says() == [
        (2, VoteReply(2, 2, Refusal.LOG, False)),
        (3, VoteReply(2, 2, None, False)),
    ]


# --- APPEND ---------------------------------------------------------------------------------------


def test_append_names_the_epoch_of_every_offset() -> None:
    solo = Solo()
    marks = (Mark(3, 0, 2, solo.voters, 0), Mark(5, 0, 2, solo.voters, 0))
    message = append(5, P(1, 0, 0), P(5, 0, 4), *marks)
    assert [message.epoch_at(offset) for offset in range(4)] == [1, 1, 5, 5]


def test_append_empty_epochs_in_a_row_are_three_entries() -> None:
    solo = Solo(end=100)
    marks = [Mark(e, 0, 100, solo.voters, 0) for e in (4, 5, 6)]
    solo.hears(2, append(6, P(0, 0, 100), P(5, 0, 100), *marks[:2]))
    assert solo.core.end == P(5, 0, 100)
    solo.hears(2, append(6, P(5, 0, 100), P(6, 0, 100), marks[2]))
    assert solo.marks() == [(0, 0, 0), (4, 0, 100), (5, 0, 100), (6, 0, 100)]


def test_append_cuts_at_a_mark_and_not_at_its_offset() -> None:
    solo = Solo(marks=[(0, 0, 0), (3, 0, 100), (4, 0, 100)], end=100, epoch=4)
    solo.hears(2, append(5, P(3, 0, 100), P(5, 0, 100), Mark(5, 0, 100, solo.voters, 0)))
    assert solo.marks() == [(0, 0, 0), (3, 0, 100), (5, 0, 100)]


def test_append_never_cuts_below_the_commit() -> None:
    solo = Solo(marks=[(0, 0, 0), (1, 0, 0)], end=5, epoch=1, commit=P(1, 0, 4))
    with pytest.raises(AssertionError):
        solo.hears(2, append(3, P(1, 0, 2), P(3, 0, 3), Mark(3, 0, 2, solo.voters, 0)))


def test_append_a_damaged_log_takes_and_promises_nothing() -> None:
    solo = Solo(marks=[(0, 0, 0), (1, 0, 0)], end=5, epoch=1, is_damaged=True)
    solo.hears(2, append(1, P(1, 0, 5), P(1, 0, 6)))
    assert solo.says() == [(2, Nack(1, P(1, 0, 5), P(1, 0, 5), True))]
    solo.core.repaired(solo.now)
    solo.hears(2, append(1, P(1, 0, 5), P(1, 0, 6)))
    assert solo.says() == [(2, Ack(1, P(1, 0, 6)))]


def test_append_a_damaged_log_remembers_where_it_parts_from_the_leaders() -> None:
    solo = Solo(marks=[(0, 0, 0), (1, 0, 0)], end=5, epoch=1, is_damaged=True)
    solo.hears(2, append(2, P(1, 0, 5), P(1, 0, 5)))
    assert solo.core.parting is None, "so far it is the leader's"
    solo.hears(2, append(2, P(1, 0, 2), P(2, 0, 4), Mark(2, 0, 3, solo.voters, 0)))
    assert solo.core.parting == P(1, 0, 3)
    assert solo.core.end == P(1, 0, 5), "bytes below may be needed to find the place"
    solo.core.part()
    solo.host.stage()
    assert solo.core.end == P(1, 0, 3)
    assert solo.core.parting is None
    assert solo.core.is_damaged
    assert not [m for _, m in solo.says() if isinstance(m, Ack)]


def test_append_a_damaged_log_forgets_the_parting_with_the_leader() -> None:
    solo = Solo(marks=[(0, 0, 0), (1, 0, 0)], end=5, epoch=1, is_damaged=True)
    solo.hears(2, append(2, P(1, 0, 2), P(2, 0, 3), Mark(2, 0, 3, solo.voters, 0)))
    solo.hears(3, Vote(3, P(1, 0, 5), is_transfer=True))
    assert solo.core.parting is None


def test_append_who_must_be_reset_has_nothing_of_what_it_acknowledged() -> None:
    leader = led()
    leader.produces()
    leader.says()
    leader.hears(2, Ack(1, P(1, 0, 1)))
    assert leader.core.matches()[voter(2)] == P(1, 0, 1)
    leader.hears(2, Nack(1, P(1, 0, 1), None, False))
    assert leader.core.matches()[voter(2)] == NOTHING


def test_append_a_full_disk_is_told_and_tried_again_later() -> None:
    solo = Solo(marks=[(0, 0, 0), (1, 0, 0)], end=5, epoch=1)
    solo.hears(2, append(1, P(1, 0, 5), P(1, 0, 7)))
    del solo.host.log.data[5:]
    solo.host.refused()
    assert solo.says() == [(2, Nack(1, P(1, 0, 5), P(1, 0, 5), True)), (2, Ack(1, P(1, 0, 5)))]
    leader = led()
    leader.hears(2, Nack(1, P(1, 0, 0), P(1, 0, 0), True))
    leader.produces()
    assert [node for node, _ in leader.says()] == [3], "it said that it can't"
    leader.passes(leader.cluster.settings.retry_ms)
    assert 2 in dict(leader.says())


# --- CUT and ACK ----------------------------------------------------------------------------------


def test_cut_durable_end_never_exceeds_it() -> None:
    solo = Solo(marks=[(0, 0, 0), (1, 0, 0)], end=5, epoch=1)
    assert solo.core.durable_end == P(1, 0, 5)
    solo.hears(2, append(2, P(1, 0, 3), P(2, 0, 3), Mark(2, 0, 3, solo.voters, 0)))
    assert solo.core.durable_end == P(1, 0, 3)


def test_ack_is_made_when_the_sync_returns() -> None:
    solo = Solo()
    solo.hears(2, append(1, BASE, P(1, 0, 2), Mark(1, 0, 0, solo.voters, 0)))
    assert solo.says_before_sync() == []
    solo.hears(2, append(1, P(1, 0, 2), P(1, 0, 4)))
    assert solo.says_after_sync() == [(2, Ack(1, P(1, 0, 2)))], "the second is not in this turn"
    assert solo.says() == [(2, Ack(1, P(1, 0, 4)))]


def test_ack_is_checked_again_when_the_sync_returns() -> None:
    """A cut while the sync is under way: what the sync covered is not there any more."""
    solo = Solo(marks=[(0, 0, 0), (3, 0, 0)], end=90, epoch=3)
    solo.hears(2, append(4, P(3, 0, 90), P(4, 0, 100), Mark(4, 0, 90, solo.voters, 0)))
    assert solo.says_before_sync() == []
    solo.hears(3, append(5, P(3, 0, 90), P(3, 0, 95)))
    assert solo.core.end == P(3, 0, 95)
    assert solo.says_after_sync() == [(3, Ack(5, P(3, 0, 90)))], (
        "neither the old end nor the new one"
    )
    assert solo.says() == [(3, Ack(5, P(3, 0, 95)))]


def test_ack_of_a_former_epoch_is_not_sent() -> None:
    solo = Solo()
    solo.hears(2, append(1, BASE, P(1, 0, 2), Mark(1, 0, 0, solo.voters, 0)))
    solo.says_before_sync()
    solo.hears(3, Vote(2, P(1, 0, 9), is_transfer=True))
    assert solo.says_after_sync() == []


def test_commits_alone_are_not_acknowledged() -> None:
    solo = Solo()
    solo.hears(2, append(1, BASE, P(1, 0, 2), Mark(1, 0, 0, solo.voters, 0)))
    solo.says()
    end = P(1, 0, 2)
    solo.hears(2, Append(1, end, (), end, end, end, wants_ack=False))
    assert solo.core.commit == end
    assert solo.says() == []


# --- PROBE ----------------------------------------------------------------------------------------


def test_probe_goes_on_at_its_own_floor_and_pipelines_after_an_ack() -> None:
    solo = Solo(marks=[(0, 0, 0), (1, 0, 0), (3, 0, 4)], end=8, epoch=3)
    solo.leads()
    solo.hears(2, Nack(4, P(3, 0, 8), P(2, 0, 6), False))
    assert dict(solo.says())[2].prev == P(1, 0, 4)
    solo.produces()
    assert 2 not in dict(solo.says()), "one probe at a time"
    solo.hears(2, Ack(4, P(4, 0, 8)))
    assert (dict(solo.says())[2].prev, dict(solo.says())) == (P(4, 0, 8), {})
    solo.produces()
    solo.produces()
    assert dict(solo.says())[2].prev == P(4, 0, 9), "no waiting for the ack of the former"


def test_probe_an_old_refusal_is_ignored() -> None:
    solo = led()
    end = solo.produces()
    solo.says()
    solo.hears(2, Ack(1, end))
    solo.hears(2, Nack(1, P(0, 0, 0), None, False))
    solo.produces()
    assert dict(solo.says())[2].prev == end


def test_probe_the_window_is_bounded() -> None:
    solo = led()
    for _ in range(solo.cluster.settings.window + 5):
        solo.produces()
        solo.says()
    ends = [p.flying for v, p in solo.core._state.leading.followers.items() if v == voter(2)]
    assert len(ends[0]) == solo.cluster.settings.window


# --- COMMIT ---------------------------------------------------------------------------------------


def test_commit_of_a_single_voter_waits_for_its_own_sync() -> None:
    """etcd's issue 14370."""
    solo = Solo(1)
    solo.leads()
    end = solo.produces()
    solo.says_before_sync()
    assert solo.core.commit < end
    solo.says_after_sync()
    assert solo.core.commit == end


def test_commit_may_run_ahead_of_the_leaders_own_disk() -> None:
    solo = led()
    end = solo.produces()
    solo.says_before_sync()
    solo.hears(2, Ack(1, end))
    assert solo.core.commit < end
    solo.hears(3, Ack(1, end))
    assert solo.core.commit == end
    assert solo.core.durable_end < end


# --- CHANGE ---------------------------------------------------------------------------------------


def test_change_a_renamed_voter_is_replaced_one_step_at_a_time() -> None:
    """(3, old) is gone; (3, new) is a learner, then the old name goes, then the new one votes."""
    cluster = Cluster(3)
    one, two, three = cluster.hosts.values()
    cluster.connect_all()
    cluster.stand(one)
    cluster.settle()
    renamed = cluster.wipe(three)
    for host in (one, two, renamed):
        host.set_target((one.me, two.me, renamed.me))
    cluster.connect_all()
    for _ in range(30):
        cluster.now += 100
        for host in cluster.hosts.values():
            host.tick()
        cluster.settle()
    assert [mark.voters for mark in one.core.marks][-3:] == [
        (one.me, two.me, three.me),
        (one.me, two.me),
        (one.me, two.me, renamed.me),
    ]
    assert one.core.commit == one.core.end == renamed.core.end


# --- TRIM and RESET -------------------------------------------------------------------------------


def test_trim_moves_when_its_mark_commits_everywhere() -> None:
    cluster = Cluster(3)
    one = cluster.hosts[1]
    cluster.connect_all()
    cluster.stand(one)
    cluster.settle()
    one.produce(5)
    cluster.settle()
    one.core.request_log_start(99, cluster.now)
    one.stage()
    assert one.core.log_start == 0
    cluster.settle()
    assert {host.core.log_start for host in cluster.hosts.values()} == {5}, "no further than commit"
    assert [m[:3] for m in one.core.marks] == [(1, 1, 5)]


def test_reset_for_a_follower_below_the_base() -> None:
    solo = led(marks=[(2, 0, 3)], end=9, epoch=2, log_start=4)
    solo.connect(2)
    solo.says()
    solo.hears(2, Nack(3, P(3, 0, 9), P(0, 0, 1), False))
    assert dict(solo.says())[2] == Reset(3, solo.core.marks.base, 4, P(3, 0, 9))
    solo.hears(2, Ack(3, P(2, 0, 4)))
    assert dict(solo.says())[2].prev == P(2, 0, 4)


def test_reset_a_learner_without_a_log_gets_one() -> None:
    cluster = Cluster(1, 1)
    one, two = cluster.hosts.values()
    one.set_target((one.me, two.me))
    cluster.connect_all()
    cluster.stand(one)
    cluster.settle()
    assert two.core.end == one.core.end
    assert [m[:3] for m in two.core.marks] == [(0, 0, 0), (1, 0, 0)]


@pytest.mark.parametrize(
    ("start", "says"),
    [
        (P(1, 0, 3), Nack(4, P(1, 0, 3), P(1, 0, 4), False)),  # Its commit is not below that.
        (P(2, 0, 6), Ack(4, P(2, 0, 6))),  # It has that very mark.
        (P(3, 0, 9), Ack(4, P(3, 0, 9))),
    ],
)
def test_reset_is_taken_only_above_the_commit(start: P, says: object) -> None:
    solo = Solo(marks=[(0, 0, 0), (1, 0, 0), (2, 0, 5)], end=8, epoch=2, commit=P(1, 0, 4))
    base = Mark(start.epoch, 0, 5, solo.voters, 0)
    solo.hears(2, Reset(4, base, start.offset, P(4, 0, 20)))
    is_replaced = start.epoch == 3
    assert (solo.marks() == [(3, 0, 5)]) is is_replaced
    if is_replaced:
        assert (solo.core.log_start, solo.core.commit, solo.core.end) == (9, start, start)
    assert solo.says() == [(2, says)]


# --- SERVE ----------------------------------------------------------------------------------------


def test_serve_appends_at_once_but_latest_only_after_its_own_mark() -> None:
    solo = Solo(marks=[(0, 0, 0), (2, 0, 0)], end=7, epoch=2)
    solo.leads()
    assert solo.core.can_append
    assert not solo.core.knows_latest
    solo.hears(2, Ack(3, P(3, 0, 7)))
    assert solo.core.knows_latest


# --- sessions -------------------------------------------------------------------------------------


def test_a_message_of_an_old_session_never_counts() -> None:
    solo = Solo(5)
    solo.leads()
    end = solo.produces()
    solo.says()
    old = solo.host.links.session(voter(2))
    solo.connect(2)
    solo.hears(3, Ack(1, end))
    solo.host.receive(voter(2), old, Ack(1, end), [])
    assert solo.core.commit == BASE


def test_a_message_leaves_in_its_session_or_never() -> None:
    solo = Solo()
    solo.hears(2, Vote(1, BASE, is_transfer=False))
    old = solo.host.links.session(voter(2))
    solo.connect(2)
    solo.host.turn()
    (flight,) = solo.cluster.net
    assert flight.envelope.session == old


def test_a_new_session_forgets_the_match() -> None:
    solo = led(5)
    assert solo.core.matches()[voter(2)] == P(1, 0, 0)
    solo.disconnect(2)
    assert solo.core.matches()[voter(2)] == P(1, 0, 0), "what it acknowledged stands"
    solo.connect(2)
    assert solo.core.matches()[voter(2)] == P(-1, -1, -1), "its present life may know less"
    (probe,) = [m for n, m in solo.says() if n == 2]
    assert probe.prev == probe.end == P(1, 0, 0)


def test_votes_of_a_renamed_broker_do_not_count() -> None:
    solo = Solo(3, is_connected=False)
    solo.connect(2)
    renamed = voter(3, directory=7)
    solo.cluster.sessions += 1
    session = solo.cluster.sessions
    solo.host.links.open(renamed, session)
    solo.stands()
    assert [node for node, _ in solo.says()] == [2], "nobody under the old name to ask"
    solo.host.receive(renamed, session, VoteReply(1, 1, None, False), [])
    assert solo.core.role is Role.CANDIDATE


# --- recovering voters ----------------------------------------------------------------------------


def test_recovering_gives_no_vote_and_its_acks_count() -> None:
    solo = Solo(is_recovering=True, is_connected=False)
    solo.connect(2)
    solo.hears(2, PreVote(1, P(0, 0, 9)))
    solo.hears(2, Vote(1, P(0, 0, 9), is_transfer=False))
    assert solo.says() == [
        (2, PreVoteReply(0, 1, Refusal.RECOVERING, True)),
        (2, VoteReply(1, 1, Refusal.RECOVERING, True)),
    ]
    solo.hears(2, append(1, BASE, P(1, 0, 1), Mark(1, 0, 0, solo.voters, 0), leader_end=P(1, 0, 5)))
    assert solo.says() == [(2, Ack(1, P(1, 0, 1)))]


def test_recovering_is_well_when_it_has_the_leaders_end() -> None:
    solo = Solo(is_recovering=True, is_connected=False)
    solo.connect(2)
    goal = P(1, 0, 3)
    solo.hears(2, append(1, BASE, P(1, 0, 2), Mark(1, 0, 0, solo.voters, 0), leader_end=goal))
    solo.says()
    assert solo.core.is_recovering
    solo.hears(2, append(1, P(1, 0, 2), P(1, 0, 4), leader_end=P(1, 0, 4)))
    assert solo.core.is_recovering, "not yet durable"
    solo.says()
    assert not solo.core.is_recovering


def test_recovering_begins_again_with_another_leader() -> None:
    solo = Solo(is_recovering=True, is_connected=False)
    solo.connect(2)
    solo.connect(3)
    solo.suspect(2)
    first = Mark(1, 0, 0, solo.voters, 0)
    solo.hears(2, append(1, BASE, P(1, 0, 1), first, leader_end=P(1, 0, 2)))
    second = Mark(2, 0, 1, solo.voters, 0)
    solo.hears(3, append(2, P(1, 0, 1), P(2, 0, 2), second, leader_end=P(2, 0, 5)))
    solo.says()
    assert solo.core.is_recovering
    solo.hears(3, append(2, P(2, 0, 2), P(2, 0, 5)))
    solo.says()
    assert not solo.core.is_recovering


def test_recovering_votes_when_all_voters_are_there_and_only_all_together_count() -> None:
    solo = Solo(is_recovering=True)
    solo.hears(2, Vote(1, P(0, 0, 9), is_transfer=False))
    assert solo.says() == [(2, VoteReply(1, 1, None, True))]
    asking = Solo()
    asking.stands()
    asking.says()
    asking.hears(2, VoteReply(1, 1, None, True))
    assert asking.core.role is Role.CANDIDATE, "one well voter of three, and one recovering"
    asking.hears(3, VoteReply(1, 1, None, True))
    assert asking.core.is_leader
    assert asking.core.unclean_elections == 1


def test_recovering_all_the_greatest_position_wins() -> None:
    cluster = Cluster(3, is_async=True)
    cluster.connect_all()
    one, two, three = cluster.hosts.values()
    cluster.stand(one)
    cluster.settle()
    one.produce(4)
    cluster.settle()
    for host, kept in ((one, 1), (two, 3), (three, 0)):
        cluster.crash(host, keeps_data=kept)
    for host in cluster.hosts.values():
        cluster.restart(host)
    cluster.connect_all()
    for _ in range(300):
        cluster.now += 10
        for host in cluster.hosts.values():
            host.tick()
        cluster.settle()
    assert two.core.is_leader
    assert two.core.unclean_elections == 1
    assert [host.core.is_recovering for host in cluster.hosts.values()] == [False] * 3
    assert {host.core.high_watermark for host in cluster.hosts.values()} == {3}


def test_recovering_single_voter_leads_at_once_and_counts_it() -> None:
    solo = Solo(1, is_recovering=True)
    solo.core.start(0)
    solo.passes(0)
    solo.says()
    assert solo.core.is_leader
    assert solo.core.unclean_elections == 1


def test_recovering_single_voter_does_not_lead_below_what_a_former_stay_had() -> None:
    solo = Solo(1, marks=[(1, 0, 0)], end=4, is_recovering=True, remembered=P(2, 0, 3))
    solo.core.start(0)
    solo.passes(solo.cluster.settings.unclean_wait_ms)
    assert solo.core.role is Role.FOLLOWER
    assert solo.core.epoch == 1


@pytest.mark.parametrize("is_unclean_allowed", [False, True])
def test_recovering_votes_for_nobody_below_what_a_former_stay_had(is_unclean_allowed: bool) -> None:
    had = P(2, 0, 3)
    solo = Solo(is_recovering=True, remembered=had, is_unclean_allowed=is_unclean_allowed)
    solo.core.start(0)
    solo.passes(solo.cluster.settings.unclean_wait_ms)
    solo.hears(2, PreVote(3, P(2, 0, 2)))
    solo.hears(2, Vote(3, P(2, 0, 2), is_transfer=False))
    assert solo.says() == [
        (2, PreVoteReply(0, 3, Refusal.RECOVERING, True)),
        (2, VoteReply(3, 3, Refusal.RECOVERING, True)),
    ]
    solo.hears(3, Vote(3, had, is_transfer=False))
    assert solo.says() == [(3, VoteReply(3, 3, None, True))]


def test_recovering_majority_elects_after_a_long_wait_where_allowed() -> None:
    solo = Solo(is_recovering=True, is_connected=False, is_unclean_allowed=True)
    solo.connect(2)
    solo.core.start(0)
    wait_ms = solo.cluster.settings.unclean_wait_ms
    assert solo.core.deadline == wait_ms
    solo.hears(2, PreVote(1, P(0, 0, 9)))
    assert solo.says() == [(2, PreVoteReply(0, 1, Refusal.RECOVERING, True))]
    solo.passes(wait_ms)
    assert [type(m) for _, m in solo.says()] == [PreVote]
    solo.hears(2, PreVoteReply(0, 1, None, True))
    solo.says()
    solo.hears(2, VoteReply(1, 1, None, True))
    assert solo.core.is_leader
    assert solo.core.unclean_elections == 1


def test_recover_by_order_makes_the_survivor_the_only_voter() -> None:
    solo = Solo(marks=[(0, 0, 0), (3, 0, 1)], end=5, epoch=3, is_connected=False)
    solo.core.recover(1000, solo.now)
    solo.host.stage()
    assert not solo.core.is_leader, "not before that can't be forgotten"
    solo.says()
    assert solo.core.is_leader
    assert solo.core.voters == (solo.me,)
    assert solo.core.commit == P(1000, 1, 5), "the mark says that something may be lost"
    assert solo.core.unclean_elections == 1


def test_unclean_only_what_was_committed_before_it_may_be_given_up() -> None:
    """A replica that knows of more than the survivor: it follows, and counts the loss."""
    marks = [(0, 0, 0), (3, 0, 1)]
    message = append(9, P(3, 0, 4), P(9, 1, 4), Mark(9, 1, 4, (voter(2),), 0))
    honest = Solo(marks=marks, end=6, epoch=3, commit=P(3, 0, 5))
    with pytest.raises(AssertionError):
        honest.hears(2, message)
    solo = Solo(marks=marks, end=6, epoch=3, commit=P(3, 0, 5))
    solo.cluster.unclean = 1
    solo.hears(2, message._replace(unclean_epoch=9))
    assert (solo.core.end, solo.core.commit, solo.core.losses) == (P(9, 1, 4), P(3, 0, 4), 1)
    assert solo.says() == [(2, Ack(9, P(9, 1, 4)))]


def test_unclean_a_log_that_starts_above_the_survivors_end_begins_again() -> None:
    solo = Solo(marks=[(3, 0, 1)], end=9, epoch=3, log_start=7, commit=P(3, 0, 8))
    solo.cluster.unclean = 1
    mark = Mark(9, 1, 4, (voter(2),), 0)
    end = P(9, 1, 5)
    solo.hears(2, append(9, P(3, 0, 4), end, mark)._replace(unclean_epoch=9))
    assert solo.says() == [(2, Nack(9, P(3, 0, 4), None, False))], "below our start nothing is sure"
    first = Mark(0, 0, 0, solo.voters, 0)
    solo.hears(2, Reset(9, first, 0, end, unclean_epoch=9))
    assert (solo.core.end, solo.core.losses) == (BASE, 1)
    assert solo.says() == [(2, Ack(9, BASE))]


def test_unclean_and_trimmed_since_a_later_position_below_our_start_is_not_common() -> None:
    """The mark that told of the loss is gone; the follower gets a reset all the same."""
    solo = Solo(marks=[(3, 0, 1)], end=9, epoch=3, log_start=7, commit=P(3, 0, 8))
    solo.hears(2, append(11, P(10, 0, 6), P(10, 0, 8)))
    assert solo.says() == [(2, Nack(11, P(10, 0, 6), P(3, 0, 9), False))]
    leader = led(marks=[(10, 0, 6)], end=8, epoch=10, log_start=6)
    leader.connect(2)
    leader.says()
    leader.hears(2, Nack(11, P(11, 0, 8), P(3, 0, 9), False))
    assert dict(leader.says())[2] == Reset(11, leader.core.marks.base, 6, P(11, 0, 8))


def test_unclean_is_known_by_the_log_to_every_later_leader() -> None:
    marks = [(0, 0, 0), (3, 0, 1), (3, 1, 2), (9, 1, 4), (9, 2, 4), (10, 0, 5)]
    solo = Solo(marks=marks, end=6, epoch=10)
    said = dict(solo.leads())
    assert said[2].unclean_epoch == 9
    clean = Solo(marks=marks[:3], end=6, epoch=3)
    assert dict(clean.leads())[2].unclean_epoch == -1


def test_recover_by_order_those_who_were_lost_elect_nobody_of_their_own() -> None:
    solo = Solo(marks=[(0, 0, 0), (3, 0, 1)], end=5, epoch=3)
    solo.leads()
    solo.core.bar(100, solo.now)
    solo.host.stage()
    assert (solo.core.role, solo.core.epoch) == (Role.FOLLOWER, 100)
    solo.passes(100_000)
    assert solo.core.role is Role.FOLLOWER
    solo.hears(2, Vote(101, P(99, 0, 9), is_transfer=False))
    solo.hears(3, Vote(101, P(100, 1, 0), is_transfer=False))
    assert solo.says() == [
        (2, VoteReply(101, 101, Refusal.BARRED, False)),
        (3, VoteReply(101, 101, None, False)),
    ]
    mark = Mark(100, 1, 2, (voter(3),), 0)
    joined = append(102, P(3, 0, 2), P(102, 0, 2), mark, Mark(102, 0, 2, solo.voters, 0))
    solo.cluster.unclean = 1
    solo.hears(3, joined._replace(unclean_epoch=100))
    solo.says()
    solo.suspect(3)
    solo.hears(2, Vote(103, P(102, 0, 2), is_transfer=False))
    assert solo.says() == [(2, VoteReply(103, 103, None, False))]


def test_recover_by_order_and_the_lost_come_back() -> None:
    cluster = Cluster(3)
    one, two, three = cluster.hosts.values()
    cluster.connect_all()
    cluster.stand(one)
    cluster.settle()
    cluster.drops = lambda flight: three.me in (flight.sender, flight.envelope.to)
    one.produce(3)
    cluster.settle()
    assert two.core.high_watermark == 3
    cluster.crash(one)
    cluster.crash(two)
    cluster.drops = lambda flight: False
    cluster.recover(three, 100)
    cluster.settle()
    three.produce(1)
    cluster.settle()
    assert three.core.high_watermark == 1
    for host in (one, two, three):
        host.keeps_hint = True
        host.set_target((one.me, two.me, three.me))
    cluster.restart(one)
    cluster.restart(two)
    cluster.connect_all()
    for _ in range(40):
        cluster.now += 100
        for host in cluster.hosts.values():
            host.tick()
        cluster.settle()
    assert set(three.core.voters) == {one.me, two.me, three.me}
    assert {host.core.end for host in cluster.hosts.values()} == {three.core.commit}
    assert (one.core.losses, two.core.losses) == (1, 1)
    cluster.check_logs()


# --- ISR and min.insync.replicas ------------------------------------------------------------------


def test_isr_is_the_leader_and_live_voters_that_kept_up() -> None:
    solo = led()
    lag_ms = 500
    assert solo.core.in_sync(solo.now, lag_ms) == solo.voters
    solo.suspect(3)
    assert solo.core.in_sync(solo.now, lag_ms) == solo.voters[:2], "a dead link leaves at once"
    solo.passes(100)
    solo.produces()
    solo.says()
    solo.passes(lag_ms)
    assert solo.core.in_sync(solo.now, lag_ms) == solo.voters[:2], "caught up until just then"
    solo.passes(1)
    assert solo.core.in_sync(solo.now, lag_ms) == solo.voters[:1]
    solo.hears(2, Ack(1, P(1, 0, 1)))
    assert solo.core.in_sync(solo.now, lag_ms) == solo.voters[:2]


def test_isr_an_idle_group_stays_in_sync() -> None:
    solo = led()
    solo.passes(3_600_000)
    assert solo.core.in_sync(solo.now, 500) == solo.voters


def test_isr_has_no_learner_and_nobody_unknown() -> None:
    solo = led()
    solo.core.set_target((*solo.voters, voter(4)), solo.now)
    solo.connect(4)
    assert solo.core.in_sync(solo.now, 500) == solo.voters
    assert Solo().core.in_sync(0, 500) == ()


def test_durable_count_says_when_min_insync_is_reached() -> None:
    solo = led()
    end = solo.produces()
    assert solo.core.durable_count(end) == 0
    solo.says()
    assert solo.core.durable_count(end) == 1
    solo.hears(2, Ack(1, end))
    assert (solo.core.durable_count(end), solo.core.commit) == (2, end)
    solo.hears(3, Ack(1, end))
    assert solo.core.durable_count(end) == 3


# --- liveness by links ----------------------------------------------------------------------------


def test_elections_by_rank_leave_suspects_out() -> None:
    solo = Solo(5, settings=Solo().cluster.settings)
    assert solo.core.deadline == 0, "first in the order"
    cluster = Cluster(5)
    three = cluster.hosts[3]
    three.core.start(0)
    for node in (1, 2, 4, 5):
        cluster.connect(three, cluster.hosts[node])
    assert three.core.deadline >= 2 * cluster.settings.rank_ms
    cluster.suspect(three, cluster.hosts[1])
    assert three.core.deadline < 2 * cluster.settings.rank_ms
    cluster.suspect(three, cluster.hosts[2])
    assert three.core.deadline == 0


def test_elections_wait_for_a_majority_of_links() -> None:
    solo = Solo(5, is_connected=False)
    solo.core.start(0)
    solo.connect(2)
    assert solo.core.deadline is None
    solo.connect(3)
    assert solo.core.deadline is not None


def test_elections_a_voter_with_a_newer_log_refuses_and_stands_itself() -> None:
    cluster = Cluster(3)
    one, two, three = cluster.hosts.values()
    cluster.connect_all()
    cluster.drops = lambda f: f.envelope.to == one.me and isinstance(f.envelope.message, Append)
    cluster.stand(two)
    cluster.settle()
    cluster.crash(two)
    assert (one.core.end, three.core.end) == (BASE, P(1, 0, 0))
    assert three.core.deadline >= cluster.settings.rank_ms, "it lets the first one try"
    one.tick()
    cluster.settle()
    assert one.core.role is Role.PRE_CANDIDATE
    assert three.core.deadline == cluster.now, "who can't win"
    three.tick()
    cluster.settle()
    assert three.core.is_leader


def test_elections_a_refusal_for_a_lease_is_asked_again_soon() -> None:
    solo = Solo()
    solo.core.start(0)
    solo.passes(0)
    solo.says()
    solo.hears(2, PreVoteReply(0, 1, Refusal.LEASE, False))
    assert solo.core.deadline == solo.cluster.settings.lease_retry_ms
    solo.passes(solo.cluster.settings.lease_retry_ms)
    assert [type(m) for _, m in solo.says()] == [PreVote, PreVote]


def test_a_leader_that_does_not_claim_the_group_is_none() -> None:
    solo = Solo(epoch=1)
    solo.hears(2, append(1, BASE, BASE))
    assert solo.core.leader == voter(2)
    solo.core.disclaimed(voter(2), solo.now)
    assert solo.core.leader is None
    assert solo.core.deadline is not None


def test_a_claim_is_as_good_as_an_append() -> None:
    solo = Solo(epoch=1)
    solo.core.claimed(voter(2), 4, solo.now)
    solo.host.stage()
    assert (solo.core.leader, solo.core.epoch, solo.core.deadline) == (voter(2), 4, None)
    solo.core.claimed(voter(3), 3, solo.now)
    assert solo.core.leader == voter(2)


def test_check_quorum_does_not_count_who_follows_somebody_else() -> None:
    solo = led()
    for node in (2, 3):
        solo.core.disclaimed(voter(node), solo.now)
    assert {n for n, _ in solo.says()} == {2, 3}, "they are reminded"
    solo.passes(solo.cluster.settings.check_quorum_ms)
    assert not solo.core.is_leader


def test_check_quorum_counts_who_answered_the_reminder() -> None:
    solo = led()
    for node in (2, 3):
        solo.core.disclaimed(voter(node), solo.now)
    solo.says()
    solo.hears(2, Ack(1, P(1, 0, 0)))
    solo.passes(solo.cluster.settings.check_quorum_ms)
    assert solo.core.is_leader


def test_an_idle_group_has_no_timer() -> None:
    solo = led()
    solo.says()
    solo.passes(solo.cluster.settings.retry_ms)
    assert solo.core.deadline is None


def test_a_leader_whose_disk_refused_what_it_sent_does_not_use_the_positions_again() -> None:
    solo = led()
    solo.produces()
    solo.says_before_sync()
    log = solo.host.log
    del log.data[:]
    solo.host.refused()
    assert not solo.core.is_leader
    unsent = led()
    unsent.produces()
    del unsent.host.log.data[:]
    unsent.host.refused()
    assert unsent.core.is_leader
    assert unsent.produces() == P(1, 0, 1)
