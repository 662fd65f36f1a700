"""A log as the core knows it: what a start finds, what a turn covers, what shrinks it."""

import pytest
from scenarios.raft_cluster import voter

from dmq.raft.marks import Marks
from dmq.raft.quorum import NOTHING
from dmq.raft.view import LogView
from dmq.raft.writes import AddMark, CutTo, ResetTo, Take, Trim
from dmq.types import Mark, Position

P = Position
VOTERS = tuple(voter(n) for n in (1, 2, 3))


def view(*marks: tuple[int, int, int], end: int, start: int = 0, commit: P = NOTHING) -> LogView:
    return LogView(Marks(tuple(Mark(*m, VOTERS, start) for m in marks)), end, start, commit)


@pytest.mark.parametrize(
    ("hint", "commit"),
    [
        (NOTHING, P(0, 0, 0)),
        (P(1, 0, 2), P(1, 0, 2)),
        (P(2, 0, 6), P(2, 0, 6)),
        (P(2, 0, 9), P(2, 0, 6)),  # The tail was lost; all that is left of it is committed.
        (P(3, 0, 4), P(0, 0, 0)),  # Of another log: what was to replace our tail.
    ],
)
def test_a_stored_commit_counts_as_far_as_it_speaks_of_this_log(hint: P, commit: P) -> None:
    log = view((0, 0, 0), (1, 0, 1), (2, 0, 4), end=6, commit=hint)
    assert log.commit == commit


def test_a_log_that_begins_later_is_committed_up_to_its_start() -> None:
    assert view((2, 1, 3), end=9, start=5).commit == P(2, 1, 5)


def test_own_records_come_after_what_is_still_to_be_written() -> None:
    log = view((0, 0, 0), end=0)
    log.add_mark(Mark(1, 0, 0, VOTERS, 0))
    with pytest.raises(AssertionError):
        log.appended(3)
    log.writes.clear()
    assert log.appended(3) == P(1, 0, 3)


def test_a_turn_covers_what_was_said_before_it_began() -> None:
    log = view((0, 0, 0), end=0)
    log.appended(3)
    log.turn_begins()
    log.appended(5)
    assert log.turn_ends(P(0, 0, 5))
    assert (log.durable, log.begun, log.end) == (P(0, 0, 3), P(0, 0, 3), P(0, 0, 5))


def test_a_turn_covers_no_more_than_the_log_says() -> None:
    log = view((0, 0, 0), end=0)
    log.appended(3)
    log.turn_begins()
    assert log.turn_ends(P(0, 0, 1))
    assert log.durable == P(0, 0, 1)
    assert not log.turn_ends(P(0, 0, 1))


def test_what_is_cut_during_a_turn_is_not_durable_after_it() -> None:
    log = view((0, 0, 0), (4, 0, 2), end=6)
    log.turn_begins()
    log.cut(P(0, 0, 1))
    log.join(P(0, 0, 1), (), P(0, 0, 2))
    assert not log.turn_ends(P(4, 0, 6))
    assert log.durable == P(0, 0, 1)


def test_a_reset_during_a_turn_is_not_durable_after_it() -> None:
    log = view((0, 0, 0), end=6)
    log.turn_begins()
    log.reset(Mark(3, 0, 20, VOTERS, 20), 20)
    assert not log.turn_ends(P(0, 0, 6))
    assert log.durable == NOTHING
    log.turn_begins()
    assert log.turn_ends(P(3, 0, 20))
    assert log.writes == [ResetTo(Mark(3, 0, 20, VOTERS, 20), 20)]


def test_join_says_what_is_to_be_written_in_order() -> None:
    log = view((0, 0, 0), (1, 0, 2), end=5)
    two, three = Mark(2, 0, 4, VOTERS, 0), Mark(3, 0, 6, VOTERS, 0)
    log.join(P(1, 0, 3), (two, three), P(3, 0, 7))
    assert log.writes == [
        CutTo(P(1, 0, 4)),
        AddMark(two),
        Take(4, 6),
        AddMark(three),
        Take(6, 7),
    ]


def test_join_from_below_our_start_takes_only_what_is_missing() -> None:
    log = view((3, 0, 6), end=8, start=7)
    log.join(P(1, 0, 2), (Mark(3, 0, 6, VOTERS, 0),), P(3, 0, 9))
    assert log.writes == [Take(8, 9)]


def test_a_mark_that_commits_moves_the_start_and_keeps_the_committed_base() -> None:
    log = view((0, 0, 0), (1, 0, 2), end=5)
    log.add_mark(Mark(1, 1, 5, VOTERS, 5))
    log.add_mark(Mark(2, 0, 5, VOTERS, 5))
    log.writes.clear()
    assert log.commit_to(P(1, 1, 5))
    assert log.writes == [Trim(5, P(1, 1, 5))]
    assert [m[:3] for m in log.marks] == [(1, 1, 5), (2, 0, 5)], "the last one may yet be cut"


def test_commit_never_goes_back_and_never_beyond_the_log() -> None:
    log = view((0, 0, 0), end=5)
    assert log.commit_to(P(0, 0, 4))
    assert not log.commit_to(P(0, 0, 3))
    with pytest.raises(AssertionError):
        log.commit_to(P(0, 0, 6))


def test_refused_records_never_were() -> None:
    log = view((0, 0, 0), end=5)
    marks = log.marks
    log.appended(8)
    log.commit_to(P(0, 0, 7))
    log.refused(marks, 5, 0)
    assert (log.end, log.commit, log.writes) == (P(0, 0, 5), P(0, 0, 5), [])
    with pytest.raises(AssertionError):
        log.refused(marks, 4, 0)


def test_what_was_to_follow_refused_records_never_was_either() -> None:
    log = view((0, 0, 0), end=5)
    marks = log.marks
    log.join(P(0, 0, 5), (Mark(1, 0, 5, VOTERS, 0), Mark(1, 1, 7, VOTERS, 6)), P(1, 1, 7))
    log.commit_to(P(1, 1, 7))
    assert (log.log_start, log.commit) == (6, P(1, 1, 7))
    log.refused(marks.add(Mark(1, 0, 5, VOTERS, 0)), 5, 0)
    assert (log.log_start, log.commit, log.end) == (0, P(1, 0, 5), P(1, 0, 5))


def test_a_new_learner_has_nothing() -> None:
    log = LogView(Marks(), 0, 0)
    assert not log.has(P(0, 0, 0))
    assert log.floor(P(9, 0, 9)) is None
    assert (log.voters, log.commit) == ((), NOTHING)
