"""OffsetDelete, version 0: forgets committed offsets of topics that the group does not read."""

from dmq.broker.answer import Answer
from dmq.broker.coordinators import CoordinatingService
from dmq.broker.coordinators import offset_commands as offsets
from dmq.doors.call import Call
from dmq.errors import DmqError, ErrorCode
from dmq.wire.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def handle(service: CoordinatingService, call: Call, request: OffsetDeleteRequest) -> None:
    asked = [
        (topic.name, wanted.partition_index)
        for topic in request.topics
        for wanted in topic.partitions
    ]
    known = tuple(one for one in asked if _is_known(service, *one))

    def on_deleted(answer: Answer[list[offsets.OffsetResult]]) -> None:
        try:
            results = {(topic, index): error for topic, index, error in answer.get()}
        except DmqError as error:
            call.reply(OffsetDeleteResponse(error_code=error.code))
            return
        topics: dict[str, list[OffsetDeleteResponsePartition]] = {}
        for name, index in asked:
            code = results.get((name, index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            topics.setdefault(name, []).append(OffsetDeleteResponsePartition(index, code))
        found = [OffsetDeleteResponseTopic(*topic) for topic in topics.items()]
        call.reply(OffsetDeleteResponse(topics=found))

    command = offsets.DeleteOffsets(request.group_id, known)
    service.groups.submit(request.group_id, command).on_done(on_deleted)


def _is_known(service: CoordinatingService, name: str, index: int) -> bool:
    topic = service.cluster.topics.get(name)
    return topic is not None and 0 <= index < len(topic.partitions)
