"""DescribeTopicPartitions, version 0: topics in order of their names, page by page (KIP-966).

No names asks for all topics. A page has at most as many partitions as client and broker allow; the
cursor is the first partition that is not in it; its topic must be one of those named. The lists of
eligible leaders are empty, never null: the Java client fails on null.
"""

from collections.abc import Iterable
from functools import partial

from dmq.broker.internal_topics import INTERNAL_TOPICS
from dmq.broker.service import Service
from dmq.broker.views import PartitionView
from dmq.doors.call import Call
from dmq.doors.kafka_api import operations
from dmq.doors.kafka_api.k03_metadata import is_led
from dmq.errors import ErrorCode
from dmq.types import NO_LEADER
from dmq.wire.messages.k75_describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)


def handle(service: Service, call: Call, request: DescribeTopicPartitionsRequest) -> None:
    service.answer_settled(partial(_answer, service, request), call.reply)


def _answer(
    service: Service, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    asked = [topic.name for topic in request.topics]
    names = sorted(set(asked or service.topic_names()))
    cursor = request.cursor
    if cursor is not None:
        names = [name for name in names if name >= cursor.topic_name]
        if cursor.partition_index < 0 or (asked and cursor.topic_name not in asked):
            return _refusal(asked)
    limit = min(request.response_partition_limit, service.config.max_request_partition_size_limit)
    return _page(service, names, cursor, max(1, limit))


def _refusal(asked: Iterable[str]) -> DescribeTopicPartitionsResponse:
    code = ErrorCode.INVALID_REQUEST
    topics = [DescribeTopicPartitionsResponseTopic(code, name, partitions=[]) for name in asked]
    return DescribeTopicPartitionsResponse(topics=topics)


def _page(
    service: Service, names: list[str], cursor: Cursor | None, limit: int
) -> DescribeTopicPartitionsResponse:
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    left = limit
    for name in names:
        start = cursor.partition_index if cursor and cursor.topic_name == name else 0
        if left == 0:
            return DescribeTopicPartitionsResponse(topics=topics, next_cursor=Cursor(name, start))
        view = service.topic(name)
        if view is None:
            topics.append(
                DescribeTopicPartitionsResponseTopic(
                    service.why_no_topic(name),
                    name,
                    is_internal=name in INTERNAL_TOPICS,
                    partitions=[],
                    topic_authorized_operations=operations.ON_TOPICS,
                )
            )
            continue
        shown = view.partitions[start : start + left]
        topics.append(
            DescribeTopicPartitionsResponseTopic(
                ErrorCode.NONE,
                view.name,
                view.topic_id,
                view.is_internal,
                [_partition(partition) for partition in shown],
                operations.ON_TOPICS,
            )
        )
        left -= len(shown)
        end = start + len(shown)
        if end < len(view.partitions):
            return DescribeTopicPartitionsResponse(topics=topics, next_cursor=Cursor(name, end))
    return DescribeTopicPartitionsResponse(topics=topics)


def _partition(view: PartitionView) -> DescribeTopicPartitionsResponsePartition:
    return DescribeTopicPartitionsResponsePartition(
        ErrorCode.NONE,  # Also without a leader, unlike Metadata.
        view.partition,
        view.leader if is_led(view) else NO_LEADER,
        view.leader_epoch,
        view.replicas,
        view.isr,
        [],
        [],
        view.offline,
    )
