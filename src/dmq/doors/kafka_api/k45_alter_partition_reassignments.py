"""AlterPartitionReassignments, versions 0 and 1: partitions get other replicas, or keep their old ones.

The list of replicas is in order of preference; null calls a move off. Each partition succeeds or fails
by itself. The answer leaves when the wish is committed, not when the last byte was copied:
ListPartitionReassignments tells how that goes on. The order alone may be changed too; that is done at
once.

    1  whether the number of replicas may change
"""

from collections.abc import Iterable

from dmq.broker.answer import Answer
from dmq.broker.elections import AlterReassignments, Reassigned, Reassignment
from dmq.broker.service import Service
from dmq.doors.call import Call
from dmq.errors import DmqError, ErrorCode
from dmq.wire.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


def handle(service: Service, call: Call, request: AlterPartitionReassignmentsRequest) -> None:
    may_resize = request.allow_replication_factor_change

    def on_done(answer: Answer[list[Reassigned]]) -> None:
        response = AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=may_resize, error_message=None, responses=[]
        )
        try:
            response.responses = _by_topic(request, answer.get())
        except DmqError as error:
            response.error_code, response.error_message = error.code, str(error)
        call.reply(response)

    service.submit(AlterReassignments(_changes(request), may_resize)).on_done(on_done)


def _changes(request: AlterPartitionReassignmentsRequest) -> tuple[Reassignment, ...]:
    return tuple(
        [
            Reassignment(
                topic.name,
                each.partition_index,
                None if each.replicas is None else tuple(each.replicas),
            )
            for topic in request.topics
            for each in topic.partitions
        ]
    )


def _by_topic(
    request: AlterPartitionReassignmentsRequest, results: Iterable[Reassigned]
) -> list[ReassignableTopicResponse]:
    """Every topic that was named, also one without partitions."""
    topics = {topic.name: ReassignableTopicResponse(topic.name, []) for topic in request.topics}
    for each in results:
        error = each.error
        topics[each.topic].partitions.append(
            ReassignablePartitionResponse(each.partition, ErrorCode.NONE, None)
            if error is None
            else ReassignablePartitionResponse(each.partition, error.code, error.message)
        )
    return list(topics.values())
