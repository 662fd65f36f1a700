"""One test per rule of the Raft paper (Ongaro and Ousterhout 2014) and thesis, named by section.

Paper words: term = epoch, index = offset plus the marks before it, empty entry of a new leader = mark.
Each test has three parts: a log, an event, what is said or done. §7 (snapshots) is RESET here, and §8
(clients) is the broker's; the rules that replace them are in tests/unit/raft/test_spec_rules.py.
"""

from itertools import pairwise

import pytest
from scenarios.raft_cluster import Cluster, voter
from scenarios.raft_solo import P, Solo

from dmq.raft.messages import (
    Ack,
    Append,
    Nack,
    PreVote,
    PreVoteReply,
    Refusal,
    TimeoutNow,
    Vote,
    VoteReply,
)
from dmq.raft.state import Role
from dmq.types import Mark

BASE = P(0, 0, 0)


def append(epoch: int, prev: P, end: P, marks: list[Mark] = (), commit: P = BASE) -> Append:
    return Append(epoch, prev, tuple(marks), end, end, commit, wants_ack=True)


def mark(solo: Solo, epoch: int, offset: int) -> Mark:
    return Mark(epoch, 0, offset, solo.voters, 0)


# --- 5.1 Raft basics ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "message",
    [
        append(7, BASE, BASE),
        Vote(7, BASE, is_transfer=False),
        VoteReply(7, 5, Refusal.EPOCH, False),
        Ack(7, BASE),
        Nack(7, BASE, None, False),
    ],
)
def test_5_1_a_follower_adopts_a_greater_epoch(message: object) -> None:
    solo = Solo(epoch=5)
    solo.hears(2, message)
    assert solo.core.epoch == 7


def test_5_1_a_candidate_that_sees_a_greater_epoch_becomes_a_follower() -> None:
    solo = Solo(epoch=5)
    solo.stands()
    assert (solo.core.role, solo.core.epoch) == (Role.CANDIDATE, 6)
    solo.hears(2, VoteReply(8, 6, Refusal.EPOCH, False))
    assert (solo.core.role, solo.core.epoch) == (Role.FOLLOWER, 8)


def test_5_1_a_leader_that_sees_a_greater_epoch_becomes_a_follower() -> None:
    solo = Solo(epoch=5)
    solo.leads()
    solo.hears(2, Nack(9, BASE, None, False))
    assert (solo.core.role, solo.core.epoch, solo.core.leader) == (Role.FOLLOWER, 9, None)


def test_5_1_requests_of_an_older_epoch_are_refused_with_ours() -> None:
    solo = Solo(epoch=5)
    solo.hears(2, append(4, BASE, BASE))
    solo.hears(3, Vote(4, P(4, 0, 9), is_transfer=False))
    solo.hears(3, PreVote(4, P(4, 0, 9)))
    assert solo.says() == [
        (2, Nack(5, BASE, None, False)),
        (3, VoteReply(5, 4, Refusal.EPOCH, False)),
        (3, PreVoteReply(5, 4, Refusal.EPOCH, False)),
    ]
    assert solo.core.leader is None


def test_5_1_epoch_and_vote_survive_a_restart() -> None:
    cluster = Cluster(3)
    one, two, _ = cluster.hosts.values()
    cluster.connect_all()
    cluster.stand(one)
    cluster.settle()
    cluster.crash(two)
    cluster.restart(two)
    assert (two.core.epoch, two.core.vote) == (1, one.me)


# --- 5.2 Leader election --------------------------------------------------------------------------


def test_5_2_servers_begin_as_followers() -> None:
    assert Solo().core.role is Role.FOLLOWER


def test_5_2_a_follower_without_a_leader_stands_for_itself_and_asks_all_others() -> None:
    solo = Solo(epoch=3)
    solo.stands()
    assert (solo.core.role, solo.core.epoch, solo.core.vote) == (Role.CANDIDATE, 4, solo.me)
    assert solo.says() == [(n, Vote(4, BASE, is_transfer=False, is_settled=True)) for n in (2, 3)]


def test_5_2_a_follower_that_hears_its_leader_never_stands() -> None:
    solo = Solo(epoch=3)
    solo.hears(2, append(3, BASE, BASE))
    assert solo.core.deadline is None, "it waits for nothing but a change of the link"
    solo.passes(60_000)
    assert solo.core.role is Role.FOLLOWER


@pytest.mark.parametrize(
    ("voters_count", "grants", "role"),
    [
        (1, 0, Role.LEADER),
        (3, 0, Role.CANDIDATE),
        (3, 1, Role.LEADER),
        (5, 1, Role.CANDIDATE),
        (5, 2, Role.LEADER),
    ],
)
def test_5_2_a_candidate_with_a_majority_leads(voters_count: int, grants: int, role: Role) -> None:
    solo = Solo(voters_count)
    solo.stands()
    solo.says()
    for node in range(2, 2 + grants):
        solo.hears(node, VoteReply(1, 1, None, False))
    assert solo.core.role is role


def test_5_2_a_vote_counts_once() -> None:
    solo = Solo(5)
    solo.stands()
    solo.says()
    solo.hears(2, VoteReply(1, 1, None, False))
    solo.hears(2, VoteReply(1, 1, None, False))
    assert solo.core.role is Role.CANDIDATE


def test_5_2_a_candidate_refused_by_a_majority_is_a_follower() -> None:
    solo = Solo()
    solo.stands()
    solo.says()
    solo.hears(2, VoteReply(1, 1, Refusal.VOTED, False))
    solo.hears(3, VoteReply(1, 1, Refusal.VOTED, False))
    assert (solo.core.role, solo.core.epoch) == (Role.FOLLOWER, 1)


@pytest.mark.parametrize(("voted", "granted"), [(None, True), (2, True), (3, False)])
def test_5_2_one_vote_per_epoch_first_come_first_served(voted: int | None, granted: bool) -> None:
    solo = Solo(epoch=4, vote=voted)
    solo.hears(2, Vote(4, BASE, is_transfer=False))
    ((_, reply),) = solo.says()
    assert reply == VoteReply(4, 4, None if granted else Refusal.VOTED, False)


def test_5_2_a_candidate_follows_the_leader_of_its_own_epoch() -> None:
    solo = Solo()
    solo.stands()
    solo.hears(2, append(1, BASE, P(1, 0, 0), [mark(solo, 1, 0)]))
    assert (solo.core.role, solo.core.leader) == (Role.FOLLOWER, voter(2))


def test_5_2_a_new_leader_tells_everyone_at_once() -> None:
    solo = Solo()
    said = solo.leads()
    assert [node for node, message in said if isinstance(message, Append)] == [2, 3]


def test_5_2_a_candidate_without_a_majority_begins_a_new_election() -> None:
    solo = Solo()
    solo.stands()
    solo.says()
    solo.passes(10_000)
    assert solo.core.role is Role.PRE_CANDIDATE
    assert solo.says() == [(n, PreVote(2, BASE, is_settled=True)) for n in (2, 3)]


def test_5_2_waits_differ_so_that_votes_are_not_split() -> None:
    """By rank instead of by chance: each voter waits for those before it in the mark."""
    cluster = Cluster(5)
    for host in cluster.hosts.values():
        host.core.start(0)
    cluster.connect_all()
    waits = [host.core.deadline for host in cluster.hosts.values()]
    settings = cluster.settings
    for rank, wait in enumerate(waits):
        assert wait is not None
        assert rank * settings.rank_ms <= wait <= rank * settings.rank_ms + settings.jitter_ms
    assert waits == sorted(waits)


# --- 5.3 Log replication --------------------------------------------------------------------------


def test_5_3_a_leader_appends_and_sends_to_all() -> None:
    solo = Solo()
    solo.leads()
    for node in (2, 3):
        solo.hears(node, Ack(1, P(1, 0, 0)))
    solo.says()
    end = solo.produces(2)
    assert end == P(1, 0, 2)
    said = solo.says()
    assert [(n, m.prev, m.end) for n, m in said] == [(n, P(1, 0, 0), end) for n in (2, 3)]


def test_5_3_an_entry_is_committed_when_a_majority_has_it_durably() -> None:
    solo = Solo(5)
    solo.leads()
    end = solo.produces()
    solo.says()
    solo.hears(2, Ack(1, end))
    assert solo.core.commit == BASE
    solo.hears(3, Ack(1, end))
    assert solo.core.commit == end


def test_5_3_committing_an_entry_commits_all_before_it() -> None:
    solo = Solo(marks=[(0, 0, 0), (2, 0, 0)], end=3, epoch=2)
    solo.leads()
    assert solo.core.commit == BASE
    solo.hears(2, Ack(3, P(3, 0, 3)))
    assert solo.core.high_watermark == 3


def test_5_3_followers_learn_of_the_commit() -> None:
    solo = Solo()
    solo.leads()
    solo.hears(2, Ack(1, P(1, 0, 0)))
    said = dict(solo.says())
    assert said[2].commit == P(1, 0, 0)
    follower = Solo()
    follower.hears(2, append(1, BASE, P(1, 0, 2), [mark(follower, 1, 0)], commit=P(1, 0, 1)))
    assert follower.core.commit == BASE  # Its disk may yet refuse what was committed elsewhere.
    follower.says()
    assert follower.core.commit == P(1, 0, 1)


@pytest.mark.parametrize(
    ("prev", "floor"),
    [
        (P(1, 0, 3), P(1, 0, 2)),  # Ours ends earlier.
        (P(2, 0, 2), P(1, 0, 2)),  # We don't know that epoch.
        (P(4, 0, 5), P(3, 0, 4)),
    ],
)
def test_5_3_an_append_that_does_not_fit_is_refused(prev: P, floor: P) -> None:
    marks = [(0, 0, 0), (1, 0, 0), (3, 0, 2)] if prev.epoch == 4 else [(0, 0, 0), (1, 0, 0)]
    solo = Solo(marks=marks, end=4 if prev.epoch == 4 else 2, epoch=4)
    solo.hears(2, append(5, prev, prev))
    assert solo.says() == [(2, Nack(5, prev, floor, False))]


def test_5_3_what_conflicts_is_deleted_with_all_that_follows() -> None:
    solo = Solo(marks=[(0, 0, 0), (1, 0, 0), (2, 0, 3)], end=6, epoch=2)
    solo.hears(2, append(4, P(1, 0, 2), P(4, 0, 4), [mark(solo, 4, 2)]))
    assert solo.marks() == [(0, 0, 0), (1, 0, 0), (4, 0, 2)]
    assert solo.core.end == P(4, 0, 4)
    assert solo.says() == [(2, Ack(4, P(4, 0, 4)))]


def test_5_3_an_old_append_deletes_nothing() -> None:
    solo = Solo()
    solo.hears(2, append(1, BASE, P(1, 0, 1), [mark(solo, 1, 0)]))
    solo.hears(2, append(1, P(1, 0, 1), P(1, 0, 3)))
    solo.hears(2, append(1, BASE, P(1, 0, 1), [mark(solo, 1, 0)]))
    assert solo.core.end == P(1, 0, 3)


def test_5_3_a_leader_goes_back_until_the_logs_agree() -> None:
    solo = Solo(marks=[(0, 0, 0), (1, 0, 0), (3, 0, 2), (5, 0, 4)], end=6, epoch=5)
    said = dict(solo.leads())
    assert said[2].prev == P(5, 0, 6)
    solo.hears(2, Nack(6, P(5, 0, 6), P(4, 0, 3), False))
    assert dict(solo.says())[2].prev == P(3, 0, 4), "the greatest of its own below the follower's"
    solo.hears(2, Nack(6, P(3, 0, 4), P(1, 0, 2), False))
    last = dict(solo.says())[2]
    assert (last.prev, last.end) == (P(1, 0, 2), P(6, 0, 6))
    assert [m[:3] for m in last.marks] == [(3, 0, 2), (5, 0, 4), (6, 0, 6)]


def test_5_3_a_leader_never_overwrites_its_own_log() -> None:
    """All logs of figure 7 become the leader's, and the leader's only grows."""
    figure_7 = {
        1: [(1, 0), (4, 3), (5, 5), (6, 7), (None, 10)],
        2: [(1, 0), (4, 3), (5, 5), (6, 7), (None, 9)],
        3: [(1, 0), (4, 3), (None, 4)],
        4: [(1, 0), (4, 3), (5, 5), (6, 7), (None, 11)],
        5: [(1, 0), (4, 3), (5, 5), (6, 7), (7, 10), (None, 12)],
        6: [(1, 0), (4, 3), (None, 7)],
        7: [(1, 0), (2, 3), (3, 6), (None, 11)],
    }
    cluster = Cluster(7)
    for node, shape in figure_7.items():
        fill(cluster, node, shape)
    one = cluster.hosts[1]
    before = list(one.log.data)
    cluster.connect_all()
    cluster.stand(one)
    cluster.settle()
    assert one.core.is_leader
    assert one.log.data == before
    assert {host.core.end for host in cluster.hosts.values()} == {P(8, 0, 10)}
    cluster.check_logs()


def fill(cluster: Cluster, node: int, shape: list[tuple[int | None, int]]) -> None:
    """A log of marks (epoch, offset); the last pair is (None, end)."""
    host = cluster.hosts[node]
    log = host.log
    for (epoch, offset), (_, stop) in pairwise(shape):
        assert epoch is not None
        log.marks = log.marks.add(Mark(epoch, 0, offset, cluster.first_mark.voters, 0))
        log.data += [(epoch, o) for o in range(offset, stop)]
    log.epoch = 7
    log.durable = log.begun = log.image()
    host.is_up = False
    cluster.restart(host)


# --- 5.4 Safety -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "granted"),
    [
        (P(3, 0, 5), True),
        (P(3, 0, 6), True),
        (P(4, 0, 1), True),  # A later epoch is more up to date, however short.
        (P(3, 0, 4), False),
        (P(2, 0, 9), False),
        (P(3, 1, 5), True),
    ],
)
def test_5_4_1_only_a_log_as_good_as_ours_gets_our_vote(end: P, granted: bool) -> None:
    solo = Solo(marks=[(0, 0, 0), (3, 0, 2)], end=5, epoch=3)
    solo.hears(2, Vote(4, end, is_transfer=False))
    ((_, reply),) = solo.says()
    assert reply == VoteReply(4, 4, None if granted else Refusal.LOG, False)


def test_5_4_1_a_mark_alone_makes_a_log_newer() -> None:
    """A committed empty epoch must be seen in elections."""
    solo = Solo(marks=[(0, 0, 0), (3, 0, 2), (4, 0, 5)], end=5, epoch=4)
    solo.hears(2, Vote(5, P(3, 0, 5), is_transfer=False))
    assert solo.says()[0] == (2, VoteReply(5, 5, Refusal.LOG, False))


def test_5_4_2_a_leader_commits_nothing_of_an_older_epoch_by_counting() -> None:
    solo = Solo(marks=[(0, 0, 0), (2, 0, 0)], end=3, epoch=2)
    solo.leads()
    for node in (2, 3):
        solo.hears(node, Ack(3, P(2, 0, 3)))
    assert solo.core.commit == BASE
    solo.hears(2, Ack(3, P(3, 0, 3)))
    assert solo.core.commit == P(3, 0, 3)


def test_5_5_repeated_messages_do_no_harm() -> None:
    solo = Solo()
    message = append(1, BASE, P(1, 0, 2), [mark(solo, 1, 0)])
    solo.hears(2, message)
    first = solo.says()
    solo.hears(2, message)
    assert solo.says() == first == [(2, Ack(1, P(1, 0, 2)))]


def test_5_6_no_rule_but_progress_depends_on_time() -> None:
    """A timer that fires late, early or twice changes nothing but when an election begins."""
    solo = Solo()
    solo.core.start(0)
    solo.core.tick(-5)
    assert solo.core.role is Role.FOLLOWER
    solo.passes(100_000)
    solo.passes(0)
    assert solo.core.role is Role.PRE_CANDIDATE


# --- 6 Cluster membership (by single steps: thesis 4.1) -------------------------------------------


def test_6_the_last_mark_counts_committed_or_not() -> None:
    solo = Solo()
    solo.leads()
    solo.hears(2, Ack(1, P(1, 0, 0)))
    solo.core.set_target(solo.voters[:2], solo.now)
    solo.host.stage()
    assert solo.core.voters == solo.voters[:2]
    assert solo.core.commit < solo.core.end


def test_6_a_second_change_waits_for_the_first() -> None:
    solo = Solo(5)
    solo.leads()
    for node in (2, 3, 4, 5):
        solo.hears(node, Ack(1, P(1, 0, 0)))
    solo.core.set_target(solo.voters[:3], solo.now)
    solo.host.stage()
    assert len(solo.core.voters) == 4
    solo.says()
    for node in (2, 3):
        solo.hears(node, Ack(1, P(1, 1, 0)))
    assert len(solo.core.voters) == 3


def test_6_no_change_before_the_leader_committed_something_of_its_own() -> None:
    """The erratum of 2015: else two leaders may each build on the other's uncommitted change."""
    solo = Solo()
    solo.leads()
    solo.core.set_target(solo.voters[:2], solo.now)
    solo.host.stage()
    assert solo.core.voters == solo.voters
    solo.says()
    solo.hears(2, Ack(1, P(1, 0, 0)))
    assert solo.core.voters == solo.voters[:2]


def test_6_an_uncommitted_change_is_undone_with_its_mark() -> None:
    solo = Solo()
    fewer = Mark(1, 1, 0, solo.voters[:2], 0)
    solo.hears(2, append(1, BASE, P(1, 1, 0), [mark(solo, 1, 0), fewer]))
    assert solo.core.voters == solo.voters[:2]
    solo.hears(3, append(2, P(1, 0, 0), P(2, 0, 0), [mark(solo, 2, 0)]))
    assert solo.core.voters == solo.voters


def test_6_newcomers_get_the_log_before_they_get_a_vote() -> None:
    solo = Solo()
    solo.leads()
    newcomer = voter(4)
    solo.core.set_target((*solo.voters, newcomer), solo.now)
    solo.connect(4)
    assert 4 in dict(solo.says())
    for node in (2, 3):
        solo.hears(node, Ack(1, P(1, 0, 0)))
    assert newcomer not in solo.core.voters
    solo.hears(4, Ack(1, P(1, 0, 0)))
    solo.passes(solo.cluster.settings.promote_ms - 1)
    assert newcomer not in solo.core.voters
    solo.passes(1)
    assert newcomer not in solo.core.voters, "it was silent for a second"
    assert 4 in dict(solo.says())
    solo.hears(4, Ack(1, P(1, 0, 0)))
    assert newcomer in solo.core.voters


def test_6_a_removed_server_disturbs_nobody() -> None:
    """It does not stand, and while a leader is heard nobody listens to it."""
    removed = Solo()
    others = tuple(voter(n) for n in (2, 3))
    fewer = Mark(1, 1, 0, others, 0)
    removed.hears(2, append(1, BASE, P(1, 1, 0), [mark(removed, 1, 0), fewer]))
    removed.disconnect(2)
    removed.passes(100_000)
    assert removed.core.role is Role.FOLLOWER
    solo = Solo()
    solo.hears(2, append(1, BASE, P(1, 0, 0), [mark(solo, 1, 0)]))
    solo.says()
    solo.hears(3, Vote(9, P(8, 0, 9), is_transfer=False))
    assert solo.says() == [(3, VoteReply(1, 9, Refusal.LEASE, False))]
    assert solo.core.epoch == 1


# --- thesis ---------------------------------------------------------------------------------------


def test_thesis_3_10_the_heir_is_told_when_it_has_everything() -> None:
    solo = Solo()
    solo.leads()
    solo.hears(2, Ack(1, solo.core.end))
    end = solo.produces()
    assert solo.core.transfer(voter(2), solo.now)
    assert not solo.core.can_append
    assert TimeoutNow(1, 1) not in dict(solo.says()).values()
    solo.hears(2, Ack(1, end))
    assert (2, TimeoutNow(1, 1)) in solo.says()


def test_thesis_3_10_the_heir_stands_at_once_and_its_votes_ignore_the_lease() -> None:
    heir = Solo(epoch=1)
    heir.hears(2, append(1, BASE, P(1, 0, 0), [mark(heir, 1, 0)]))
    heir.says()
    heir.hears(2, TimeoutNow(1, 1))
    assert heir.says() == [
        (n, Vote(2, P(1, 0, 0), is_transfer=True, is_settled=True)) for n in (2, 3)
    ]
    solo = Solo(epoch=1)
    solo.hears(2, append(1, BASE, P(1, 0, 0), [mark(solo, 1, 0)]))
    solo.says()
    solo.hears(3, Vote(2, P(1, 0, 0), is_transfer=True))
    assert solo.says() == [(3, VoteReply(2, 2, None, False))]


def test_thesis_3_10_a_handover_that_does_not_end_is_given_up() -> None:
    solo = Solo()
    solo.leads()
    solo.core.transfer(voter(2), solo.now)
    solo.passes(solo.cluster.settings.transfer_ms)
    assert solo.core.is_leader
    assert solo.core.can_append


def test_thesis_6_2_a_leader_without_a_majority_resigns() -> None:
    solo = Solo()
    solo.leads()
    solo.suspect(2)
    assert solo.core.deadline is None or solo.core.is_leader
    solo.suspect(3)
    solo.passes(solo.cluster.settings.check_quorum_ms - 1)
    assert solo.core.is_leader
    solo.passes(1)
    assert (solo.core.role, solo.core.epoch) == (Role.FOLLOWER, 1)


def test_thesis_6_2_a_majority_that_comes_back_in_time_keeps_its_leader() -> None:
    solo = Solo()
    solo.leads()
    solo.suspect(2)
    solo.suspect(3)
    solo.passes(900)
    solo.host.links.revive(voter(3))
    solo.core.peer_changed(voter(3), solo.now)
    solo.passes(60_000)
    assert solo.core.is_leader


def test_thesis_9_6_a_pre_vote_changes_nothing_at_the_voter() -> None:
    solo = Solo(epoch=4)
    solo.hears(2, PreVote(7, P(6, 0, 9)))
    assert solo.says() == [(2, PreVoteReply(4, 7, None, False))]
    assert (solo.core.epoch, solo.core.vote) == (4, None)


def test_thesis_9_6_a_candidate_that_can_not_win_takes_no_epoch() -> None:
    solo = Solo(epoch=4)
    solo.core.start(0)
    solo.passes(0)
    assert solo.says() == [(n, PreVote(5, BASE, is_settled=True)) for n in (2, 3)]
    for node in (2, 3):
        solo.hears(node, PreVoteReply(4, 5, Refusal.LOG, False))
    assert (solo.core.role, solo.core.epoch) == (Role.FOLLOWER, 4)


def test_thesis_9_6_nobody_who_hears_its_leader_gives_a_pre_vote() -> None:
    solo = Solo(epoch=4)
    solo.hears(2, append(4, BASE, BASE))
    solo.says()
    solo.hears(3, PreVote(5, P(4, 0, 9)))
    assert solo.says() == [(3, PreVoteReply(4, 5, Refusal.LEASE, False))]
    solo.suspect(2)
    solo.hears(3, PreVote(5, P(4, 0, 9)))
    assert solo.says() == [(3, PreVoteReply(4, 5, None, False))]


def test_thesis_10_2_1_appends_may_leave_before_our_sync_and_nothing_else() -> None:
    solo = Solo()
    solo.leads()
    for node in (2, 3):
        solo.hears(node, Ack(1, P(1, 0, 0)))
    solo.says()
    end = solo.produces()
    assert [type(m) for _, m in solo.says_before_sync()] == [Append, Append]
    solo.hears(2, Ack(1, end))
    solo.hears(3, Ack(1, end))
    assert solo.core.commit == end, "two others have it; our own sync is not needed"
    voting = Solo()
    voting.hears(2, Vote(1, BASE, is_transfer=False))
    assert voting.says_before_sync() == []
    assert voting.says_after_sync() == [(2, VoteReply(1, 1, None, False))]
