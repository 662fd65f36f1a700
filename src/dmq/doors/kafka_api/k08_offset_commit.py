"""OffsetCommit, versions 2 to 10: how far a group has read.

Partitions that don't exist are refused here; the others go to the group's coordinator together.

    5  no retention time any more    6  leader epochs    7  static members
    9  members of the consumer protocol, by epoch (KIP-848)    10  topics by id
"""

from typing import NamedTuple

from dmq.broker.answer import Answer
from dmq.broker.coordinators import CoordinatingService
from dmq.broker.coordinators import offset_commands as offsets
from dmq.doors.call import Call
from dmq.errors import DmqError, ErrorCode
from dmq.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

EPOCHS_SINCE = 9
TOPIC_IDS_SINCE = 10


class _Asked(NamedTuple):
    """A partition of the request: what is to be committed, or why not, and where the answer goes."""

    offset: offsets.OffsetToCommit | None
    response: OffsetCommitResponsePartition


def handle(service: CoordinatingService, call: Call, request: OffsetCommitRequest) -> None:
    asked: list[_Asked] = []
    topics: list[OffsetCommitResponseTopic] = []
    for topic in request.topics:
        found = _topic(service, call, topic)
        asked += found
        partitions = [each.response for each in found]
        topics.append(OffsetCommitResponseTopic(topic.name, topic.topic_id, partitions))
    response = OffsetCommitResponse(topics=topics)
    known = [each for each in asked if each.offset is not None]
    if asked and not known:
        call.reply(response)
        return

    def on_committed(answer: Answer[list[offsets.OffsetResult]]) -> None:
        try:
            codes = [result.error for result in answer.get()]
        except DmqError as error:
            codes = [error.code] * len(known)
        for each, code in zip(known, codes, strict=True):
            each.response.error_code = code
        call.reply(response)

    command = offsets.CommitOffsets(
        request.group_id,
        tuple(each.offset for each in known if each.offset is not None),
        request.member_id,
        request.generation_id_or_member_epoch,
        request.group_instance_id,
        request.retention_time_ms,
        knows_epochs=call.version >= EPOCHS_SINCE,
    )
    service.groups.submit(request.group_id, command).on_done(on_committed)


def _topic(
    service: CoordinatingService, call: Call, topic: OffsetCommitRequestTopic
) -> list[_Asked]:
    if call.version >= TOPIC_IDS_SINCE:
        known = service.cluster.topics_by_id.get(topic.topic_id)
        missing = ErrorCode.UNKNOWN_TOPIC_ID
    else:
        known = service.cluster.topics.get(topic.name)
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    found: list[_Asked] = []
    for wanted in topic.partitions:
        index = wanted.partition_index
        offset, code = None, ErrorCode.NONE
        if known is None:
            code = missing
        elif not 0 <= index < len(known.partitions):
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            offset = offsets.OffsetToCommit(
                known.name,
                index,
                wanted.committed_offset,
                wanted.committed_leader_epoch,
                wanted.committed_metadata or "",
                known.topic_id,
            )
        found.append(_Asked(offset, OffsetCommitResponsePartition(index, code)))
    return found
