"""Fetch sessions: KIP-227's table of ids and epochs, and who is told what."""

import random
from uuid import UUID

import pytest

from dmq.broker.fetching import FetchResult, FetchSpec, Slices
from dmq.doors.fetch_sessions import EPOCH_MAX, EVICTION_MS, FetchSessions, Session
from dmq.errors import ErrorCode, KafkaError
from dmq.types import NIL_UUID

NOW = 1_000_000


def spec(topic: str, index: int = 0, offset: int = 0) -> FetchSpec:
    return FetchSpec(topic, NIL_UUID, index, offset, 1000)


def result(
    what: FetchSpec, high_watermark: int = 5, size: int = 0, code: ErrorCode = ErrorCode.NONE
):
    records = None
    if size:
        records = Slices([])
        records._size = size
    return FetchResult(what, code, high_watermark, 0, records)


@pytest.fixture
def sessions() -> FetchSessions:
    return FetchSessions(3, random.Random(1))


def begin(sessions: FetchSessions, *specs: FetchSpec, now: int = NOW) -> Session:
    session = sessions.begin(list(specs), False, now)
    assert session is not None
    return session


def told(session: Session, results: list[FetchResult]) -> list[str]:
    return [f"{r.spec.topic}{r.spec.partition}" for r in session.news(results)]


def test_a_session_is_told_only_what_changed(sessions: FetchSessions) -> None:
    a, b = spec("a"), spec("b")
    session = begin(sessions, a, b)
    assert told(session, [result(a), result(b)]) == ["a0", "b0"], "the first answer tells all"
    assert told(session, [result(a), result(b)]) == []
    assert told(session, [result(a, 6), result(b)]) == ["a0"], "a high watermark moved"
    assert told(session, [result(a, 6), result(b, size=10)]) == ["b0"], "records"
    failed = result(a, 6, code=ErrorCode.OFFSET_OUT_OF_RANGE)
    assert told(session, [failed, result(b)]) == ["a0"], "an error"
    assert told(session, [result(a, 6), result(b)]) == ["a0"], "and its end"
    assert told(session, [result(a, 6), result(b)]) == []


def test_partitions_take_turns(sessions: FetchSessions) -> None:
    specs = [spec("a"), spec("b"), spec("c")]
    session = begin(sessions, *specs)
    session.news([result(specs[0], size=10), result(specs[1]), result(specs[2])])
    assert [s.topic for s in session.specs()] == ["b", "c", "a"]


def test_updates_and_forgotten_partitions(sessions: FetchSessions) -> None:
    session = begin(sessions, spec("a"), spec("b"))
    session.update([spec("a", offset=7), spec("c")], [("b", NIL_UUID, 0)])
    assert [(s.topic, s.offset) for s in session.specs()] == [("a", 7), ("c", 0)]


def test_epochs_count_up_and_wrap_to_one(sessions: FetchSessions) -> None:
    session = begin(sessions, spec("a"))
    assert sessions.resume(session.id, 1, False, NOW) is session
    assert sessions.resume(session.id, 2, False, NOW).epoch == 3
    with pytest.raises(KafkaError) as caught:
        sessions.resume(session.id, 2, False, NOW)
    assert caught.value.code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    session.epoch = EPOCH_MAX
    assert sessions.resume(session.id, EPOCH_MAX, False, NOW).epoch == 1


def test_unknown_sessions_and_a_change_of_topic_ids(sessions: FetchSessions) -> None:
    session = begin(sessions, spec("a"))
    with pytest.raises(KafkaError) as caught:
        sessions.resume(session.id + 1, 1, False, NOW)
    assert caught.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    with pytest.raises(KafkaError) as caught:
        sessions.resume(session.id, 1, True, NOW)
    assert caught.value.code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    sessions.end(session.id)
    assert len(sessions) == 0


def test_at_the_bound_only_an_idle_session_makes_room(sessions: FetchSessions) -> None:
    old = begin(sessions, spec("a"))
    for _ in range(2):
        begin(sessions, spec("a"), now=NOW + EVICTION_MS - 1)
    assert sessions.begin([spec("x")], False, NOW + EVICTION_MS - 1) is None
    begin(sessions, spec("x"), now=NOW + EVICTION_MS)
    assert len(sessions) == 3
    with pytest.raises(KafkaError):
        sessions.resume(old.id, 1, False, NOW + EVICTION_MS)


def test_nothing_to_remember_makes_no_session(sessions: FetchSessions) -> None:
    assert sessions.begin([], False, NOW) is None
    assert FetchSessions(0, random.Random(1)).begin([spec("a")], False, NOW) is None


def test_the_same_name_under_another_id_is_another_partition(sessions: FetchSessions) -> None:
    one = FetchSpec("", UUID(int=1), 0, 0, 10)
    two = FetchSpec("", UUID(int=2), 0, 0, 10)
    session = begin(sessions, one, two)
    assert len(session) == 2
