"""ListPartitionReassignments, version 0: moves of replicas that are under way.

Of the partitions that are asked for, or of all for null, those that are being moved. Replicas are all
that may have the partition now, old and new ones; a partition that does not move, or does not exist,
is not told.
"""

from functools import partial

from dmq.broker.elections import Moving, moving
from dmq.broker.service import Service
from dmq.doors.call import Call
from dmq.errors import ErrorCode
from dmq.wire.messages.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


def handle(service: Service, call: Call, request: ListPartitionReassignmentsRequest) -> None:
    service.answer_settled(partial(_answer, service, request), call.reply)


def _answer(
    service: Service, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    wanted = None
    if request.topics is not None:
        wanted = {
            (topic.name, index) for topic in request.topics for index in topic.partition_indexes
        }
    topics: dict[str, OngoingTopicReassignment] = {}
    for each in moving(service.cluster):
        if wanted is not None and (each.topic, each.partition) not in wanted:
            continue
        topic = topics.setdefault(each.topic, OngoingTopicReassignment(each.topic, []))
        topic.partitions.append(_told(each))
    return ListPartitionReassignmentsResponse(
        error_code=ErrorCode.NONE, error_message=None, topics=list(topics.values())
    )


def _told(move: Moving) -> OngoingPartitionReassignment:
    return OngoingPartitionReassignment(
        move.partition, list(move.replicas), list(move.adding), list(move.removing)
    )
