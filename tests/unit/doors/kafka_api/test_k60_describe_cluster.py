"""DescribeCluster with several brokers, one of them down."""

from types import SimpleNamespace
from typing import Any

import pytest
from fakes.calls import answer

from dmq.broker.views import BrokerView
from dmq.doors.kafka_api.k60_describe_cluster import BROKERS, CONTROLLERS, handle
from dmq.errors import ErrorCode
from dmq.wire.messages.k60_describe_cluster import DescribeClusterRequest

UP = [BrokerView(1, "h1", 9092, "r1"), BrokerView(3, "h3", 9092, None)]
DOWN = BrokerView(2, "h2", 9092, "r2", is_fenced=True)


class Service:
    cluster_id = "c"
    identity = SimpleNamespace(node_id=1)

    def __init__(self, controller_id: int = 3) -> None:
        self.controller_id = controller_id

    def brokers(self, listener: str, *, with_fenced: bool = False) -> list[BrokerView]:
        return sorted([*UP, DOWN]) if with_fenced else UP


def described(version: int, kind: int = BROKERS, with_fenced: bool = False) -> Any:
    return answer(handle, Service(), 60, version, DescribeClusterRequest(False, kind, with_fenced))


@pytest.mark.parametrize("version", [0, 1, 2])
def test_brokers_that_are_up(version: int) -> None:
    response = described(version)
    told = [(each.broker_id, each.host, each.rack) for each in response.brokers]
    assert told == [(1, "h1", "r1"), (3, "h3", None)]
    assert (response.cluster_id, response.controller_id) == ("c", 3)


def test_a_broker_that_is_down_is_told_to_whoever_asks_for_it() -> None:
    response = described(2, with_fenced=True)
    assert [(each.broker_id, each.is_fenced) for each in response.brokers] == [
        (1, False),
        (2, True),
        (3, False),
    ]


def test_this_is_the_door_of_a_broker() -> None:
    assert described(2, CONTROLLERS).error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
    assert described(2, 9).error_code == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE


@pytest.mark.parametrize("leader", [2, -1])
def test_without_a_metadata_leader_that_is_up_requests_for_it_come_here(leader: int) -> None:
    request = DescribeClusterRequest(False, BROKERS, True)
    assert answer(handle, Service(leader), 60, 2, request).controller_id == 1
