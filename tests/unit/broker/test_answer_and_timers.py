"""Answers come once and in order; timers run when they are due."""

import pytest

from dmq.broker.answer import Answer, in_turns, when_all
from dmq.broker.timers import Timers
from dmq.errors import ErrorCode, KafkaError


def test_callbacks_run_in_order_and_late_ones_at_once() -> None:
    answer: Answer[int] = Answer()
    seen: list[str] = []
    answer.on_done(lambda a: seen.append(f"first {a.get()}"))
    answer.on_done(lambda a: seen.append(f"second {a.get()}"))
    answer.resolve(7)
    answer.on_done(lambda a: seen.append(f"late {a.get()}"))
    assert seen == ["first 7", "second 7", "late 7"]


def test_an_answer_is_given_once() -> None:
    answer = Answer.of(1)
    with pytest.raises(AssertionError):
        answer.resolve(2)


def test_errors_go_through_map() -> None:
    answer: Answer[int] = Answer()
    doubled = answer.map(lambda value: value * 2)
    answer.fail(KafkaError(ErrorCode.INVALID_REQUEST))
    with pytest.raises(KafkaError):
        doubled.get()
    assert Answer.of(4).map(lambda value: value * 2).get() == 8


def test_in_turns_so_many_are_under_way_and_all_are_told_in_order() -> None:
    begun: list[Answer[int]] = []

    def begin() -> Answer[int]:
        begun.append(Answer())
        return begun[-1]

    result = in_turns([begin] * 4, 2)
    assert len(begun) == 2
    begun[1].resolve(1)
    assert len(begun) == 3
    begun[2].resolve(2)
    begun[3].resolve(3)
    assert not result.is_done
    begun[0].resolve(0)
    assert [answer.get() for answer in result.get()] == [0, 1, 2, 3]


def test_in_turns_with_answers_that_are_there_at_once() -> None:
    result = in_turns([lambda: Answer.of(7)] * 5000, 2)
    assert len(result.get()) == 5000
    nothing: list[Answer[int]] = in_turns([], 2).get()
    assert nothing == []


def test_when_all_waits_for_the_last() -> None:
    answers: list[Answer[int]] = [Answer(), Answer.of(1), Answer()]
    seen: list[bool] = []
    when_all(answers, lambda: seen.append(True))
    answers[2].resolve(1)
    assert seen == []
    answers[0].fail(KafkaError(ErrorCode.INVALID_REQUEST))
    assert seen == [True]
    when_all([], lambda: seen.append(True))
    assert seen == [True, True]


def test_timers_run_in_order_of_time_then_of_setting() -> None:
    timers, seen = Timers(), []
    for deadline, name in ((30, "c"), (10, "a"), (30, "d"), (20, "b")):
        timers.at(deadline, lambda name=name: seen.append(name))
    cancelled = timers.at(5, lambda: seen.append("never"))
    cancelled.cancel()
    assert timers.next_deadline() == 10
    timers.run(25)
    assert seen == ["a", "b"]
    timers.run(30)
    assert seen == ["a", "b", "c", "d"]
    assert timers.next_deadline() is None


def test_an_earlier_timer_is_announced() -> None:
    timers, announced = Timers(), []
    timers.on_earlier = announced.append
    for deadline in (50, 60, 40):
        timers.at(deadline, lambda: None)
    assert announced == [50, 40]


def test_cancelled_timers_do_not_pile_up() -> None:
    timers = Timers()
    for n in range(100_000):
        timers.at(10_000 + n, lambda: None).cancel()
    assert len(timers) < 5000
