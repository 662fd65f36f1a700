"""Requests for more partitions than one command makes: they are cut into portions, and nobody notices."""

import pytest
from fakes.broker import FakeBroker

from dmq.broker.admin import PORTION, Admin, NewTopic, Submit, TopicCreated
from dmq.broker.answer import Answer
from dmq.broker.peers import PeerError
from dmq.errors import ErrorCode, KafkaError
from dmq.machines.machine import Command


def admin_of(broker: FakeBroker, submit: Submit) -> Admin:
    own = broker.service.admin
    return Admin(
        submit,
        own._settings,
        broker.machine,
        broker.replicas,
        own.new_uuid,
        own._when_served,
    )


def topics(admin: Admin, *names: str, partitions: int = PORTION) -> list[NewTopic]:
    return [NewTopic(name, admin.new_uuid(), partitions, 1) for name in names]


def codes(answer: Answer[list[TopicCreated]]) -> dict[str, ErrorCode]:
    return {
        one.name: ErrorCode.NONE if one.error is None else one.error.code for one in answer.get()
    }


def test_what_exists_is_told_though_the_rest_failed() -> None:
    broker = FakeBroker()
    submitted = 0

    def submit(command: Command[object]) -> Answer[object]:
        nonlocal submitted
        submitted += 1
        if submitted < 3:
            return broker.service.submit(command)
        lost: Answer[object] = Answer()
        lost.fail(PeerError("the connection was lost", was_sent=True))
        return lost

    admin = admin_of(broker, submit)  # type: ignore[arg-type]
    answer = admin.create_topics(topics(admin, "a", "b", "c", "d"))
    broker.turn()
    assert codes(answer) == {
        "a": ErrorCode.NONE,
        "b": ErrorCode.NONE,
        "c": ErrorCode.NETWORK_EXCEPTION,
        "d": ErrorCode.NETWORK_EXCEPTION,
    }
    assert [one.error.message for one in answer.get() if one.error is not None] == [
        "the connection was lost"
    ] * 2
    assert submitted == 3
    assert sorted(broker.machine.state.topics) == ["a", "b"]


def test_a_request_of_which_nothing_was_done_fails_as_a_whole() -> None:
    broker = FakeBroker()

    def submit(command: Command[object]) -> Answer[object]:
        refused: Answer[object] = Answer()
        refused.fail(KafkaError(ErrorCode.NOT_CONTROLLER))
        return refused

    admin = admin_of(broker, submit)  # type: ignore[arg-type]
    answer = admin.create_topics(topics(admin, "a", "b"))
    with pytest.raises(KafkaError, check=lambda error: error.code is ErrorCode.NOT_CONTROLLER):
        answer.get()


@pytest.mark.parametrize("is_dry", [False, True])
def test_a_name_that_is_given_twice_is_refused_however_far_apart(is_dry: bool) -> None:
    broker = FakeBroker()
    admin = broker.service.admin
    answer = admin.create_topics(topics(admin, "a", "b", "a", "c"), validate_only=is_dry)
    broker.turn()
    assert codes(answer) == {
        "a": ErrorCode.INVALID_REQUEST,
        "b": ErrorCode.NONE,
        "c": ErrorCode.NONE,
    }
    assert [one.name for one in answer.get()] == ["a", "b", "c"]
    assert sorted(broker.machine.state.topics) == ([] if is_dry else ["b", "c"])


@pytest.mark.parametrize("is_dry", [False, True])
def test_names_that_collide_do_so_in_a_dry_run_too(is_dry: bool) -> None:
    broker = FakeBroker()
    admin = broker.service.admin
    answer = admin.create_topics(topics(admin, "a.b", "c", "a_b"), validate_only=is_dry)
    broker.turn()
    assert codes(answer) == {
        "a.b": ErrorCode.NONE,
        "c": ErrorCode.NONE,
        "a_b": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    assert [one.name for one in answer.get()] == ["a.b", "c", "a_b"]
