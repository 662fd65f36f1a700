"""DescribeTopicPartitions: what clients are told of topics that are not as they should be."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from fakes.calls import answer

from dmq.broker.views import PartitionView, TopicView
from dmq.doors.kafka_api.k75_describe_topic_partitions import handle
from dmq.errors import ErrorCode
from dmq.wire.messages.k75_describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)


class Service:
    """Has one topic, without a leader."""

    config = SimpleNamespace(max_request_partition_size_limit=2000)

    def answer_settled(self, make: Callable[[], Any], reply: Callable[[Any], None]) -> None:
        reply(make())

    def topic(self, name: str) -> TopicView | None:
        part = PartitionView(
            partition=0, leader=-1, leader_epoch=3, replicas=[1], isr=[], offline=[1]
        )
        return TopicView("t", UUID(int=7), False, [part]) if name == "t" else None

    def why_no_topic(self, name: str) -> ErrorCode:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def told(name: str) -> Any:
    request = DescribeTopicPartitionsRequest([TopicRequest(name)], 2000, None)
    (topic,) = answer(handle, Service(), 75, 0, request).topics
    return topic


def test_a_partition_without_a_leader_is_no_error() -> None:
    """Unlike in Metadata: here clients look at the leader."""
    (part,) = told("t").partitions
    assert (part.error_code, part.leader_id, part.leader_epoch) == (ErrorCode.NONE, -1, 3)
    assert part.offline_replicas == [1]


def test_an_internal_topic_is_one_before_it_is_there() -> None:
    missing = told("__consumer_offsets"), told("u")
    assert {topic.error_code for topic in missing} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert [topic.is_internal for topic in missing] == [True, False]
