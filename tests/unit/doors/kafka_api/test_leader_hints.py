"""KIP-951: a refusal names the leader, in the versions that have a place for it."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from fakes.calls import answer

from dmq.broker.fetching import FetchResult, FetchSpec
from dmq.broker.views import BrokerView
from dmq.doors.kafka_api import k00_produce, k01_fetch
from dmq.errors import ErrorCode, KafkaError
from dmq.types import NIL_UUID
from dmq.wire.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from dmq.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic

TOPIC_ID = UUID(int=7)
LED = {0: (2, 5), 1: (3, 6), 2: (9, 7), 3: (-1, -1)}
"""Broker 9 is not up; partition 3 has no leader."""


class Service:
    """Refuses everything with one code; knows who leads what."""

    def __init__(self, code: ErrorCode) -> None:
        self.code = code
        self.config = SimpleNamespace(fetch_max_bytes=1000)
        self.fetcher = self
        self.asked = 0

    def now(self) -> int:
        return 0

    steady_now = now

    def intake(self, topic: str, topic_id: UUID) -> None:
        return None

    def find(self, topic: str, topic_id: UUID, index: int) -> Any:
        raise KafkaError(self.code)

    def fetch(
        self, specs: list[FetchSpec], on_done: Callable[[list[FetchResult]], None], **_: object
    ) -> None:
        on_done([FetchResult(spec, self.code) for spec in specs])

    def when_moved(self, topic: str, topic_id: UUID, index: int, callback: Any) -> bool:
        return False

    def leader_of(self, topic: str, topic_id: UUID, index: int) -> tuple[int, int]:
        self.asked += 1
        assert topic == "t" or topic_id == TOPIC_ID
        return LED[index]

    def brokers(self, listener: str) -> list[BrokerView]:
        assert listener == "PLAINTEXT"
        return [BrokerView(node, f"h{node}", 9092, f"r{node}") for node in (1, 2, 3)]


def produced(service: Service, version: int, *partitions: int) -> Any:
    data = [PartitionProduceData(index, b"x") for index in partitions]
    by_id = version >= 13
    topic = TopicProduceData("" if by_id else "t", TOPIC_ID if by_id else NIL_UUID, data)
    request = ProduceRequest(None, -1, 1000, [topic])
    response = answer(k00_produce.handle, service, 0, version, request)
    [told] = response.responses
    return response, told.partition_responses


def fetched(service: Service, version: int, *partitions: int) -> Any:
    by_id = version >= 13
    wanted = [FetchPartition(index, partition_max_bytes=10) for index in partitions]
    topic = FetchTopic("" if by_id else "t", TOPIC_ID if by_id else NIL_UUID, wanted)
    request = FetchRequest(max_wait_ms=0, session_epoch=-1, topics=[topic])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            k01_fetch, "_what_to_read", lambda *_: (k01_fetch._specs(request), None, True)
        )
        response = answer(k01_fetch.handle, service, 1, version, request)
    [told] = response.responses
    return response, told.partitions


def leaders(partitions: Any) -> list[tuple[int, int] | None]:
    return [
        None
        if each.current_leader is None
        else (each.current_leader.leader_id, each.current_leader.leader_epoch)
        for each in partitions
    ]


@pytest.mark.parametrize("ask", [produced, fetched])
@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH])
def test_the_leader_is_named_with_its_address(ask: Callable[..., Any], code: ErrorCode) -> None:
    newest = 13 if ask is produced else 18
    response, [told] = ask(Service(code), newest, 0)
    assert told.error_code == code
    assert leaders([told]) == [(2, 5)]
    [node] = response.node_endpoints
    assert (node.node_id, node.host, node.port, node.rack) == (2, "h2", 9092, "r2")


@pytest.mark.parametrize(("ask", "version"), [(produced, 10), (fetched, 16)])
def test_several_at_once(ask: Callable[..., Any], version: int) -> None:
    service = Service(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    response, told = ask(service, version, 1, 0, 2, 3)
    assert leaders(told) == [(3, 6), (2, 5), None, None]
    assert [node.node_id for node in response.node_endpoints] == [3, 2]


@pytest.mark.parametrize(("ask", "version"), [(produced, 9), (fetched, 15)])
def test_older_versions_have_no_place_for_it(ask: Callable[..., Any], version: int) -> None:
    service = Service(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    response, [told] = ask(service, version, 0)
    assert told.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert leaders([told]) == [None]
    assert response.node_endpoints == []
    assert service.asked == 0


@pytest.mark.parametrize(("ask", "version"), [(produced, 13), (fetched, 18)])
def test_other_refusals_name_nobody(ask: Callable[..., Any], version: int) -> None:
    response, told = ask(Service(ErrorCode.KAFKA_STORAGE_ERROR), version, 0, 1)
    assert leaders(told) == [None, None]
    assert response.node_endpoints == []
