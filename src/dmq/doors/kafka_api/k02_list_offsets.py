"""ListOffsets, versions 1 to 11: offsets by time, and the ends of the log.

    -1 latest   -2 earliest   -3 newest timestamp (7)   -4 earliest local (8)
    -5 latest in tiered storage (9)   -6 earliest not yet in it (11)
There is no tiered storage: -4 answers as -2, -5 and -6 answer "none". A "latest" that this leader
does not know yet is OFFSET_NOT_AVAILABLE (5) or, for older clients, LEADER_NOT_AVAILABLE (KIP-207).
"""

from collections import Counter

from dmq.broker.fetching import code_of
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
NAMES_SINCE = {-1: 1, -2: 1, -3: 7, -4: 8, -5: 9, -6: 11}
"""Timestamps that are names, and the versions that know them."""


def handle(service: Service, call: Call, request: ListOffsetsRequest) -> None:
    counts = Counter(
        (topic.name, wanted.partition_index)
        for topic in request.topics
        for wanted in topic.partitions
    )
    topics: list[ListOffsetsTopicResponse] = []
    for topic in request.topics:
        answers: dict[int, ListOffsetsPartitionResponse] = {}
        for wanted in topic.partitions:
            index = wanted.partition_index
            if counts[topic.name, index] > 1:
                answers[index] = ListOffsetsPartitionResponse(index, ErrorCode.INVALID_REQUEST)
            else:
                answers[index] = _answer(service, call, topic.name, wanted)
        topics.append(ListOffsetsTopicResponse(topic.name, [*answers.values()]))
    call.reply(ListOffsetsResponse(topics=topics))


def _answer(
    service: Service, call: Call, topic: str, wanted: ListOffsetsPartition
) -> ListOffsetsPartitionResponse:
    index, timestamp = wanted.partition_index, wanted.timestamp
    if timestamp < 0 and call.version < NAMES_SINCE.get(timestamp, call.version + 1):
        return ListOffsetsPartitionResponse(index, ErrorCode.UNSUPPORTED_VERSION)
    try:
        partition = service.find(topic, NIL_UUID, index)
        partition.check_epoch(wanted.current_leader_epoch)
        found = service.list_offset(partition, timestamp)
    except (DmqError, OSError) as error:
        code = code_of(error)
        if code is ErrorCode.OFFSET_NOT_AVAILABLE and call.version < OFFSET_NOT_AVAILABLE_SINCE:
            code = ErrorCode.LEADER_NOT_AVAILABLE
        return ListOffsetsPartitionResponse(index, code)
    return ListOffsetsPartitionResponse(
        index, ErrorCode.NONE, found.timestamp, found.offset, found.leader_epoch
    )
