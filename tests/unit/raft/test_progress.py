"""One follower as its leader sees it: paces, windows, answers that come late, rounds of learners."""

from dmq.raft.progress import Pace, Progress
from dmq.raft.quorum import NOTHING
from dmq.types import Position

P = Position
START = P(1, 0, 10)


def replicating(at: Position = START) -> Progress:
    progress = Progress(at, session=1, now=0)
    assert progress.sent(at, NOTHING, 0)
    progress.acked(at, 0)
    return progress


def test_begins_with_a_probe_and_sends_one_at_a_time() -> None:
    progress = Progress(START, session=1, now=0)
    assert progress.pace is Pace.PROBE
    assert progress.may_send(window=8, now=0)
    progress.sent(P(1, 0, 12), NOTHING, 0)
    assert not progress.may_send(window=8, now=0)
    assert progress.next == START, "nothing is taken for granted"


def test_an_ack_opens_the_pipeline() -> None:
    progress = replicating()
    assert progress.pace is Pace.REPLICATE
    for offset in (11, 12):
        assert progress.sent(P(1, 0, offset), NOTHING, 0)
    assert progress.next == P(1, 0, 12)
    assert not progress.may_send(window=2, now=0)
    progress.acked(P(1, 0, 11), 0)
    assert progress.may_send(window=2, now=0)
    assert progress.match == P(1, 0, 11)


def test_an_ack_counts_for_all_before_it_and_never_back() -> None:
    progress = replicating()
    for offset in (11, 12, 13):
        progress.sent(P(1, 0, offset), NOTHING, 0)
    assert progress.acked(P(1, 0, 13), 0)
    assert not progress.is_owed
    assert not progress.acked(P(1, 0, 11), 0)
    assert (progress.match, progress.next) == (P(1, 0, 13), P(1, 0, 13))


def test_telling_the_commit_alone_takes_no_room() -> None:
    progress = replicating()
    assert not progress.sent(START, START, 0), "no answer is due"
    assert not progress.is_owed
    assert not progress.wants(START, START)
    assert progress.wants(START, P(1, 0, 11))


def test_a_refusal_of_something_settled_is_not_expected() -> None:
    progress = replicating()
    progress.sent(P(1, 0, 12), NOTHING, 0)
    assert not progress.expects_nack(P(1, 0, 9))
    assert progress.expects_nack(START)
    progress.probe(P(1, 0, 4), 0)
    assert not progress.expects_nack(P(1, 0, 4)), "nothing was asked yet"
    progress.sent(P(1, 0, 4), NOTHING, 0)
    assert progress.expects_nack(P(1, 0, 4))


def test_a_reset_waits_for_its_answer() -> None:
    progress = Progress(START, session=1, now=0)
    progress.begin_reset(0)
    assert progress.may_send(8, 0)
    progress.sent_reset(P(1, 0, 7), 0)
    assert not progress.may_send(8, 0)
    assert progress.expects_nack(P(1, 0, 7))
    progress.acked(P(1, 0, 7), 0)
    assert (progress.pace, progress.next) == (Pace.REPLICATE, P(1, 0, 7))


def test_without_an_answer_it_probes_from_what_is_certain() -> None:
    progress = replicating()
    progress.sent(P(1, 0, 15), NOTHING, 0)
    progress.retry(1000)
    assert (progress.pace, progress.next, progress.is_owed) == (Pace.PROBE, START, False)


def test_who_can_not_is_left_alone_for_a_while() -> None:
    progress = replicating()
    progress.pause(until=500, now=0)
    assert not progress.may_send(8, 499)
    assert progress.may_send(8, 500)


def test_a_session_ends_and_another_begins() -> None:
    progress = replicating()
    progress.end_session(5)
    assert not progress.may_send(8, 5)
    assert progress.match == START
    progress.begin_session(2, P(1, 0, 20), 6)
    assert (progress.match, progress.next, progress.pace) == (NOTHING, P(1, 0, 20), Pace.PROBE)


def test_a_learner_that_keeps_up_becomes_ready() -> None:
    progress = replicating()
    now = 0
    for offset in range(11, 31):
        progress.measure_round(P(1, 0, offset), now, turn_ms=100)
        now += 60
        progress.acked(P(1, 0, offset), now)
    assert progress.is_ready_to_vote(now, promote_ms=1000)


def test_a_learner_that_lags_does_not() -> None:
    progress = replicating()
    now = 0
    for offset in range(11, 31):
        progress.measure_round(P(1, 0, 10 * offset), now, turn_ms=100)
        now += 160
        progress.acked(P(1, 0, 10 * offset), now)
    assert not progress.is_ready_to_vote(now, promote_ms=1000)


def test_one_slow_round_begins_the_count_anew() -> None:
    progress = replicating()
    progress.measure_round(START, 0, turn_ms=100)
    assert progress.is_ready_to_vote(1000, promote_ms=1000)
    progress.measure_round(P(1, 0, 20), 1000, turn_ms=100)
    progress.measure_round(P(1, 0, 20), 1101, turn_ms=100)
    assert not progress.is_ready_to_vote(1101, promote_ms=1000)


def test_a_round_ends_where_the_log_ends_if_the_disk_refused_the_rest() -> None:
    """Nothing more may be written: nobody would ever get to what never was."""
    progress = replicating()
    progress.measure_round(P(1, 0, 20), 0, turn_ms=100)
    progress.measure_round(P(1, 0, 20), 200, turn_ms=100)
    assert not progress.is_ready_to_vote(5000, promote_ms=1000)
    progress.measure_round(START, 300, turn_ms=100)
    assert progress.is_ready_to_vote(1300, promote_ms=1000)


def test_a_learner_without_our_beginning_is_not_at_the_end() -> None:
    progress = replicating()
    progress.measure_round(START, 0, turn_ms=100)
    progress.begin_reset(1000)
    assert not progress.is_ready_to_vote(1000, promote_ms=1000)


def test_what_was_said_long_ago_is_not_news() -> None:
    progress = replicating()
    progress.acked(P(1, 0, 11), 100)
    assert progress.has_spoken(200, turn_ms=100)
    assert not progress.has_spoken(201, turn_ms=100)
