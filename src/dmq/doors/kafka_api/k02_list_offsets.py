"""ListOffsets, versions 1 to 11: offsets by time, and the ends of the log.

    -1 latest   -2 earliest   -3 newest timestamp (7)   -4 earliest local (8)
    -5 latest in tiered storage (9)   -6 earliest not yet in it (11)
There is no tiered storage: -4 answers as -2, -5 and -6 answer "none". A "latest" that this leader
does not know yet is OFFSET_NOT_AVAILABLE (5) or, for older clients, LEADER_NOT_AVAILABLE (KIP-207). So
is one that it can't vouch for: nobody answered it in time whether it leads still.
"""

from collections import Counter
from functools import partial
from typing import NamedTuple

from dmq.broker.answer import when_all
from dmq.broker.fetching import code_of
from dmq.broker.offsets import FoundOffset, Sought, Unsure
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


class _Asked(NamedTuple):
    """One partition of a request, and what it will be told."""

    topic: str
    wanted: ListOffsetsPartition
    answer: ListOffsetsPartitionResponse


def handle(service: Service, call: Call, request: ListOffsetsRequest) -> None:
    counts = Counter(
        (topic.name, wanted.partition_index)
        for topic in request.topics
        for wanted in topic.partitions
    )
    topics: list[ListOffsetsTopicResponse] = []
    asked: list[_Asked] = []
    for topic in request.topics:
        answers: dict[int, ListOffsetsPartitionResponse] = {}
        for wanted in topic.partitions:
            index = wanted.partition_index
            answer = answers[index] = ListOffsetsPartitionResponse(index)
            if counts[topic.name, index] > 1:
                answer.error_code = ErrorCode.INVALID_REQUEST
            else:
                asked.append(_Asked(topic.name, wanted, answer))
        topics.append(ListOffsetsTopicResponse(topic.name, [*answers.values()]))
    is_committed = request.isolation_level == READ_COMMITTED
    _look_up(service, call, asked, is_committed, ListOffsetsResponse(topics=topics))


def _look_up(
    service: Service,
    call: Call,
    asked: list[_Asked],
    is_committed: bool,
    response: ListOffsetsResponse,
    *,
    is_sure: bool = False,
) -> None:
    """Find what is asked for and reply. If one leader is unsure all are asked again when it is sure:
    who was sure before need not be so again, for all was asked at the same time."""
    sought: list[tuple[ListOffsetsPartitionResponse, Sought]] = []
    unsure: list[tuple[_Asked, Unsure]] = []
    for one in asked:
        found = _find(service, call, one, is_committed, is_sure)
        if isinstance(found, Sought):
            sought.append((one.answer, found))
        elif isinstance(found, Unsure):
            unsure.append((one, found))
        else:
            _tell(one.answer, found)
    if unsure:
        again = partial(_again, service, call, asked, is_committed, response, unsure)
        when_all([found.newest for _, found in unsure], again)
    elif sought:
        service.beside(partial(_open_all, sought)).on_done(lambda _: call.reply(response))
    else:
        call.reply(response)


def _again(
    service: Service,
    call: Call,
    asked: list[_Asked],
    is_committed: bool,
    response: ListOffsetsResponse,
    unsure: list[tuple[_Asked, Unsure]],
) -> None:
    """It is known of all whether they are the newest."""
    for one, found in unsure:
        try:
            found.newest.get()
        except DmqError as error:
            one.answer.error_code = _code(call, error)
    left = [one for one in asked if one.answer.error_code == ErrorCode.NONE]
    _look_up(service, call, left, is_committed, response, is_sure=True)


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
    service: Service, call: Call, asked: _Asked, is_committed: bool, is_sure: bool
) -> FoundOffset | Sought | Unsure | ErrorCode:
    index, timestamp = asked.wanted.partition_index, asked.wanted.timestamp
    if timestamp < 0 and call.version < NAMES_SINCE.get(timestamp, call.version + 1):
        return ErrorCode.UNSUPPORTED_VERSION
    try:
        partition = service.find(asked.topic, NIL_UUID, index)
        partition.check_epoch(asked.wanted.current_leader_epoch)
        return service.list_offset(
            partition, timestamp, committed_only=is_committed, is_sure=is_sure
        )
    except (DmqError, OSError) as error:
        return _code(call, error)


def _code(call: Call, error: DmqError | OSError) -> ErrorCode:
    code = code_of(error)
    if code is ErrorCode.OFFSET_NOT_AVAILABLE and call.version < OFFSET_NOT_AVAILABLE_SINCE:
        return ErrorCode.LEADER_NOT_AVAILABLE
    return code
