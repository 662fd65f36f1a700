"""DescribeQuorum: the view as clients of each version get it."""

from uuid import UUID

import pytest
from fakes.calls import answer

from dmq.broker.answer import Answer
from dmq.broker.quorum import QuorumNode, QuorumReplica, QuorumView
from dmq.doors.kafka_api.k55_describe_quorum import handle
from dmq.errors import ErrorCode, KafkaError
from dmq.types import METADATA_TOPIC, NIL_UUID
from dmq.wire.messages.k55_describe_quorum import DescribeQuorumRequest, PartitionData, TopicData

KEY = 55
QUORUM = QuorumView(
    leader=1,
    leader_epoch=7,
    high_watermark=40,
    voters=[QuorumReplica(1, UUID(int=11), 41, 1000, 1000), QuorumReplica(2, UUID(int=12), 39)],
    observers=[QuorumReplica(4, UUID(int=14), 38, 900, 800)],
    nodes=[QuorumNode(1, [("PEER", "h1", 9093)]), QuorumNode(2, [("PEER", "h2", 9093)])],
)


class Service:
    def __init__(self, answer: Answer[QuorumView]) -> None:
        self.answer = answer

    def quorum(self) -> Answer[QuorumView]:
        return self.answer


def request(*topics: tuple[str, list[int]]) -> DescribeQuorumRequest:
    return DescribeQuorumRequest(
        [TopicData(name, [PartitionData(index) for index in indexes]) for name, indexes in topics]
    )


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_quorum(version: int) -> None:
    service = Service(Answer.of(QUORUM))
    response = answer(handle, service, KEY, version, request((METADATA_TOPIC, [0])))
    assert response.error_code == 0
    [topic] = response.topics
    [told] = topic.partitions
    assert (told.leader_id, told.leader_epoch, told.high_watermark) == (1, 7, 40)
    assert [(each.replica_id, each.log_end_offset) for each in told.current_voters] == [
        (1, 41),
        (2, 39),
    ]
    [observer] = told.observers
    assert observer.last_caught_up_timestamp == (800 if version else -1)
    assert observer.replica_directory_id == (UUID(int=14) if version == 2 else NIL_UUID)
    nodes = [(each.node_id, each.listeners[0].host) for each in response.nodes]
    assert nodes == ([(1, "h1"), (2, "h2")] if version == 2 else [])


@pytest.mark.parametrize(
    "asked",
    [
        [("orders", [0])],
        [(METADATA_TOPIC, [1])],
        [(METADATA_TOPIC, [0, 1])],
        [(METADATA_TOPIC, [0]), ("orders", [0])],
    ],
)
def test_there_is_one_quorum_only(asked: list[tuple[str, list[int]]]) -> None:
    response = answer(handle, Service(Answer.of(QUORUM)), KEY, 2, request(*asked))
    told = [
        (each.topic_name, [p.partition_index for p in each.partitions]) for each in response.topics
    ]
    assert told == asked
    codes = {p.error_code for each in response.topics for p in each.partitions}
    assert codes == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_nobody_leads() -> None:
    service = Service(Answer())
    service.answer.fail(KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "no leader is known"))
    response = answer(handle, service, KEY, 2, request((METADATA_TOPIC, [0])))
    [told] = response.topics[0].partitions
    assert told.error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert told.error_message == "no leader is known"
    assert told.leader_id == -1
