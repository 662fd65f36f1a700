"""ListOffsets, versions 1 to 11: offsets by time, and the ends of the log.

    -1 latest   -2 earliest   -3 newest timestamp (7)   -4 earliest local (8)
    -5 latest in tiered storage (9)   -6 earliest not yet in it (11)
There is no tiered storage: -4 answers as -2, -5 and -6 answer "none". A "latest" that this leader
does not know yet is OFFSET_NOT_AVAILABLE (5) or, for older clients, LEADER_NOT_AVAILABLE (KIP-207).
"""

from collections import Counter
from functools import partial

from dmq.broker.fetching import code_of
from dmq.broker.offsets import FoundOffset, Sought
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

READ_COMMITTED = 1


def handle(service: Service, call: Call, request: ListOffsetsRequest) -> None:
    counts = Counter(
        (topic.name, wanted.partition_index)
        for topic in request.topics
        for wanted in topic.partitions
    )
    topics: list[ListOffsetsTopicResponse] = []
    sought: list[tuple[ListOffsetsPartitionResponse, Sought]] = []
    for topic in request.topics:
        answers: dict[int, ListOffsetsPartitionResponse] = {}
        for wanted in topic.partitions:
            index = wanted.partition_index
            answer = answers[index] = ListOffsetsPartitionResponse(index)
            if counts[topic.name, index] > 1:
                answer.error_code = ErrorCode.INVALID_REQUEST
                continue
            is_committed = request.isolation_level == READ_COMMITTED
            found = _find(service, call, topic.name, wanted, is_committed)
            if isinstance(found, Sought):
                sought.append((answer, found))
            else:
                _tell(answer, found)
        topics.append(ListOffsetsTopicResponse(topic.name, [*answers.values()]))
    response = ListOffsetsResponse(topics=topics)
    if sought:
        service.beside(partial(_open_all, sought)).on_done(lambda _: call.reply(response))
    else:
        call.reply(response)


def _open_all(sought: list[tuple[ListOffsetsPartitionResponse, Sought]]) -> None:
    """In a thread: nobody else has these answers now."""
    for answer, one in sought:
        try:
            _tell(answer, one.open())
        except (DmqError, OSError) as error:
            _tell(answer, code_of(error))


def _tell(answer: ListOffsetsPartitionResponse, found: FoundOffset | ErrorCode) -> None:
    if isinstance(found, FoundOffset):
        answer.offset, answer.timestamp, answer.leader_epoch = found
    else:
        answer.error_code = found


def _find(
    service: Service, call: Call, topic: str, wanted: ListOffsetsPartition, is_committed: bool
) -> FoundOffset | Sought | ErrorCode:
    index, timestamp = wanted.partition_index, wanted.timestamp
    if timestamp < 0 and call.version < NAMES_SINCE.get(timestamp, call.version + 1):
        return ErrorCode.UNSUPPORTED_VERSION
    try:
        partition = service.find(topic, NIL_UUID, index)
        partition.check_epoch(wanted.current_leader_epoch)
        return service.list_offset(partition, timestamp, committed_only=is_committed)
    except (DmqError, OSError) as error:
        code = code_of(error)
        if code is ErrorCode.OFFSET_NOT_AVAILABLE and call.version < OFFSET_NOT_AVAILABLE_SINCE:
            return ErrorCode.LEADER_NOT_AVAILABLE
        return code
