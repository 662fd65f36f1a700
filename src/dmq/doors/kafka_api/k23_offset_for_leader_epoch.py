"""OffsetForLeaderEpoch, versions 2 to 4: where an epoch ended (KIP-101, KIP-320).

Clients ask after a change of leader whether what they read is still in the log.
"""

from dmq.broker.service import Service
from dmq.doors.call import Call
from dmq.errors import DmqError
from dmq.types import NIL_UUID
from dmq.wire.messages.k23_offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def handle(service: Service, call: Call, request: OffsetForLeaderEpochRequest) -> None:
    results = [
        OffsetForLeaderTopicResult(
            topic.topic, [_end_of(service, topic.topic, wanted) for wanted in topic.partitions]
        )
        for topic in request.topics
    ]
    call.reply(OffsetForLeaderEpochResponse(topics=results))


def _end_of(service: Service, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = service.find(topic, NIL_UUID, wanted.partition)
        partition.check_leads()
        partition.check_epoch(wanted.current_leader_epoch)
        epoch, end = partition.end_of_epoch(wanted.leader_epoch)
        if wanted.leader_epoch >= partition.leader_epoch:
            partition.check_newest()  # It may have ended elsewhere, or be followed by others.
    except DmqError as error:
        return EpochEndOffset(error.code, wanted.partition)
    return EpochEndOffset(0, wanted.partition, epoch, end)
