"""What `ClusterWire` makes of answers, and what it asks for; real brokers get its requests elsewhere."""

from typing import Any

import pytest

from dmq.cli.cluster_wire import ClusterWire, UnsureError
from dmq.cli.exits import CommandError
from dmq.cli.session import Session
from dmq.errors import ErrorCode
from dmq.wire.messages.k45_alter_partition_reassignments import AlterPartitionReassignmentsResponse
from dmq.wire.messages.k55_describe_quorum import (
    DescribeQuorumResponse,
    ResponsePartitionData,
    ResponseTopicData,
)
from dmq.wire.messages.k64_unregister_broker import UnregisterBrokerResponse


def wire(monkeypatch: pytest.MonkeyPatch, answer: Any, asked: list[Any]) -> ClusterWire:
    """One that gets this answer to everything."""

    def ask(self: ClusterWire, key: int, request: Any, timeout_s: float = 0.0) -> Any:
        asked.append(request)
        return answer

    monkeypatch.setattr(ClusterWire, "ask", ask)
    monkeypatch.setattr(ClusterWire, "serves", lambda self, key: True)
    return ClusterWire(Session("h:1", {}))


@pytest.mark.parametrize(
    ("code", "is_told"),
    [(ErrorCode.LEADER_NOT_AVAILABLE, True), (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False)],
)
def test_metadata_without_a_leader_are_not_metadata_of_which_nothing_is_told(
    code: ErrorCode, is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = ResponsePartitionData(0, code, "no", -1, -1, -1, [], observers=[])
    answer = DescribeQuorumResponse(topics=[ResponseTopicData("m", [partition])])
    assert (wire(monkeypatch, answer, []).quorum() is not None) == is_told


@pytest.mark.parametrize("may_resize", [False, True])
def test_replicas_become_more_or_fewer_only_where_that_is_meant(
    may_resize: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    answer = AlterPartitionReassignmentsResponse(responses=[])
    wire(monkeypatch, answer, asked).reassign({("t", 0): [1, 2]}, may_resize=may_resize)
    assert [each.allow_replication_factor_change for each in asked] == [may_resize]


def test_an_order_that_nobody_takes_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = AlterPartitionReassignmentsResponse(error_code=ErrorCode.NOT_CONTROLLER, responses=[])
    with pytest.raises(CommandError, match="metadata have no leader"):
        wire(monkeypatch, answer, []).reassign({("t", 0): [1, 2]})


@pytest.mark.parametrize(
    ("code", "is_unsure"),
    [
        (ErrorCode.NETWORK_EXCEPTION, True),
        (ErrorCode.REQUEST_TIMED_OUT, True),
        (ErrorCode.INVALID_REQUEST, False),
    ],
)
def test_what_may_have_been_done_is_told_apart_from_a_refusal(
    code: ErrorCode, is_unsure: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = UnregisterBrokerResponse(error_code=code, error_message="no")
    with pytest.raises(CommandError) as raised:
        wire(monkeypatch, answer, []).unregister(2)
    assert isinstance(raised.value, UnsureError) is is_unsure
