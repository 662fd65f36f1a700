"""ListOffsets, versions 1 to 11: offsets by time, and the ends of the log.

    -1 latest   -2 earliest   -3 newest timestamp (7)   -4 earliest local (8)
    -5 latest in tiered storage (9)   -6 earliest not yet in it (11)
There is no tiered storage: -4 answers as -2, -5 and -6 answer "none". A "latest" that this leader
does not know yet is OFFSET_NOT_AVAILABLE (5) or, for older clients, LEADER_NOT_AVAILABLE (KIP-207).
"""

from dmq.broker.service import Service
from dmq.doors.call import Call
from dmq.errors import DmqError, ErrorCode
from dmq.types import NIL_UUID
from dmq.wire.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

OFFSET_NOT_AVAILABLE_SINCE = 5


def handle(service: Service, call: Call, request: ListOffsetsRequest) -> None:
    seen: set[tuple[str, int]] = set()
    topics: list[ListOffsetsTopicResponse] = []
    for topic in request.topics:
        answers: list[ListOffsetsPartitionResponse] = []
        for wanted in topic.partitions:
            key = (topic.name, wanted.partition_index)
            if key in seen:
                code = ErrorCode.INVALID_REQUEST
                answers.append(ListOffsetsPartitionResponse(wanted.partition_index, code))
            else:
                answers.append(_answer(service, call, topic.name, wanted))
            seen.add(key)
        topics.append(ListOffsetsTopicResponse(topic.name, answers))
    call.reply(ListOffsetsResponse(topics=topics))


def _answer(
    service: Service, call: Call, topic: str, wanted: ListOffsetsPartition
) -> ListOffsetsPartitionResponse:
    index = wanted.partition_index
    try:
        partition = service.find(topic, NIL_UUID, index)
        partition.check_epoch(wanted.current_leader_epoch)
        found = service.list_offset(partition, wanted.timestamp)
    except DmqError as error:
        code = error.code
        if code is ErrorCode.OFFSET_NOT_AVAILABLE and call.version < OFFSET_NOT_AVAILABLE_SINCE:
            code = ErrorCode.LEADER_NOT_AVAILABLE
        return ListOffsetsPartitionResponse(index, code)
    return ListOffsetsPartitionResponse(
        index, ErrorCode.NONE, found.timestamp, found.offset, found.leader_epoch
    )
