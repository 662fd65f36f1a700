"""What a producer is told when the coordinator of its transaction did not say yes."""

from typing import Any, cast

import pytest
from fakes.calls import FakeCall

from dmq.broker.answer import Answer
from dmq.doors.kafka_api.entering import refusals
from dmq.errors import ErrorCode, KafkaError
from dmq.wire.messages.k00_produce import PartitionProduceData

PRODUCE = 0
AWAY = ["COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"]


def told(code: ErrorCode, version: int) -> ErrorCode:
    data, entered = PartitionProduceData(0, b""), Answer[None]()
    entered.fail(KafkaError(code))
    call = cast(Any, FakeCall(PRODUCE, version))
    ((refused, error),) = refusals(call, [(data, entered)])
    assert refused is data
    return error.code


@pytest.mark.parametrize("version", [9, 11, 12, 13])
@pytest.mark.parametrize("name", [*AWAY, "NETWORK_EXCEPTION"])
def test_a_coordinator_that_is_away_is_no_reason_to_give_up(name: str, version: int) -> None:
    assert told(ErrorCode[name], version) is ErrorCode.NOT_ENOUGH_REPLICAS


@pytest.mark.parametrize(
    ("version", "code"),
    [(11, ErrorCode.NOT_ENOUGH_REPLICAS), (12, ErrorCode.CONCURRENT_TRANSACTIONS)],
)
def test_only_those_who_join_by_themselves_hear_that_the_last_one_is_not_finished(
    version: int, code: ErrorCode
) -> None:
    assert told(ErrorCode.CONCURRENT_TRANSACTIONS, version) is code


def test_a_leader_that_is_another_is_told_as_such() -> None:
    assert told(ErrorCode.NOT_LEADER_OR_FOLLOWER, 12) is ErrorCode.NOT_LEADER_OR_FOLLOWER
