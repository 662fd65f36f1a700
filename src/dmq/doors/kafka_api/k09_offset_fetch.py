"""OffsetFetch, versions 1 to 10: how far groups have read.

A group or a partition that nobody committed for answers -1 and no error: consumers begin there by
their own rule.

    2  null asks for all; an error of the whole    5  leader epochs    7  only stable ones (KIP-447)
    8  several groups    9  members of the consumer protocol, by epoch (KIP-848)    10  topics by id
"""

from functools import partial
from uuid import UUID

from dmq.broker.answer import Answer, when_all
from dmq.broker.coordinators import CoordinatingService
from dmq.broker.coordinators import offset_commands as offsets
from dmq.doors.call import Call
from dmq.errors import DmqError, ErrorCode
from dmq.types import NIL_UUID
from dmq.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

ERROR_OF_THE_WHOLE_SINCE = 2
MANY_GROUPS_SINCE = 8
TOPIC_IDS_SINCE = 10


def handle(service: CoordinatingService, call: Call, request: OffsetFetchRequest) -> None:
    groups = request.groups
    if call.version < MANY_GROUPS_SINCE:
        topics = None
        if request.topics is not None:
            topics = [
                OffsetFetchRequestTopics(topic.name, NIL_UUID, topic.partition_indexes)
                for topic in request.topics
            ]
        groups = [OffsetFetchRequestGroup(request.group_id, None, -1, topics)]
    answers = [_ask(service, call, group, request.require_stable) for group in groups]

    def reply() -> None:
        found = list(map(partial(_group, service, call), groups, answers))
        if call.version >= MANY_GROUPS_SINCE:
            call.reply(OffsetFetchResponse(groups=found))
        else:
            call.reply(_single(call, found[0]))

    when_all(answers, reply)


def _name(service: CoordinatingService, call: Call, topic: OffsetFetchRequestTopics) -> str | None:
    if call.version < TOPIC_IDS_SINCE:
        return topic.name
    found = service.cluster.topics_by_id.get(topic.topic_id)
    return None if found is None else found.name


def _ask(
    service: CoordinatingService,
    call: Call,
    group: OffsetFetchRequestGroup,
    require_stable: bool,
) -> Answer[list[offsets.FetchedOffset]]:
    wanted = None
    if group.topics is not None:
        wanted = tuple(
            (name, index)
            for topic in group.topics
            if (name := _name(service, call, topic)) is not None
            for index in topic.partition_indexes
        )
    command = offsets.FetchOffsets(
        group.group_id, wanted, require_stable, group.member_id, group.member_epoch
    )
    return service.groups.submit(group.group_id, command)


def _group(
    service: CoordinatingService,
    call: Call,
    group: OffsetFetchRequestGroup,
    answer: Answer[list[offsets.FetchedOffset]],
) -> OffsetFetchResponseGroup:
    try:
        fetched = answer.get()
    except DmqError as error:
        return _failed(call, group, error.code)
    topics: dict[tuple[str, UUID], list[OffsetFetchResponsePartitions]] = {}
    for found in fetched:
        known = service.cluster.topics.get(found.topic)
        if call.version >= TOPIC_IDS_SINCE and known is None:
            continue  # It was deleted a moment ago: there is no id to name it by.
        topic_id = NIL_UUID if known is None else known.topic_id
        partition = OffsetFetchResponsePartitions(
            found.partition, found.offset, found.leader_epoch, found.metadata, found.error
        )
        topics.setdefault((found.topic, topic_id), []).append(partition)
    response = [OffsetFetchResponseTopics(*key, found) for key, found in topics.items()]
    for topic in group.topics or ():
        if _name(service, call, topic) is None:
            response.append(_without(topic, ErrorCode.UNKNOWN_TOPIC_ID))
    return OffsetFetchResponseGroup(group.group_id, response, ErrorCode.NONE)


def _without(topic: OffsetFetchRequestTopics, code: ErrorCode) -> OffsetFetchResponseTopics:
    partitions = [
        OffsetFetchResponsePartitions(index, -1, -1, "", code) for index in topic.partition_indexes
    ]
    return OffsetFetchResponseTopics(topic.name, topic.topic_id, partitions)


def _failed(
    call: Call, group: OffsetFetchRequestGroup, code: ErrorCode
) -> OffsetFetchResponseGroup:
    """All is refused; the oldest version can only say so partition by partition."""
    topics: list[OffsetFetchResponseTopics] = []
    if call.version < ERROR_OF_THE_WHOLE_SINCE:
        topics = [_without(topic, code) for topic in group.topics or ()]
    return OffsetFetchResponseGroup(group.group_id, topics, code)


def _single(call: Call, group: OffsetFetchResponseGroup) -> OffsetFetchResponse:
    topics = [
        OffsetFetchResponseTopic(
            topic.name,
            [
                OffsetFetchResponsePartition(
                    found.partition_index,
                    found.committed_offset,
                    found.committed_leader_epoch,
                    found.metadata,
                    found.error_code,
                )
                for found in topic.partitions
            ],
        )
        for topic in group.topics
    ]
    return OffsetFetchResponse(topics=topics, error_code=group.error_code)
