"""OffsetForLeaderEpoch, versions 2 to 4: where an epoch ended (KIP-101, KIP-320).

Clients ask after a change of leader whether what they read is still in the log: one that is told of an
earlier end goes back. So only a leader answers, and only what nobody can have overruled.
"""

from functools import partial

from dmq.broker.answer import Answer, when_all
from dmq.broker.partition import Partition
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
    waiting: list[Answer[None]] = []
    results = [
        OffsetForLeaderTopicResult(
            topic.topic,
            [_ask(service, topic.topic, wanted, waiting) for wanted in topic.partitions],
        )
        for topic in request.topics
    ]
    when_all(waiting, lambda: call.reply(OffsetForLeaderEpochResponse(topics=results)))


def _ask(
    service: Service, topic: str, wanted: OffsetForLeaderPartition, waiting: list[Answer[None]]
) -> EpochEndOffset:
    """The answer, to be filled in when it is known that nobody else leads."""
    told = EpochEndOffset(0, wanted.partition)
    try:
        partition = service.find(topic, NIL_UUID, wanted.partition)
        partition.check_leads()
        partition.check_epoch(wanted.current_leader_epoch)
    except DmqError as error:
        told.error_code = error.code
        return told
    if partition.is_newest():
        told.leader_epoch, told.end_offset = partition.end_of_epoch(wanted.leader_epoch)
        return told
    newest = partition.newest()
    newest.on_done(partial(_tell, told, partition, wanted.leader_epoch))
    waiting.append(newest)
    return told


def _tell(told: EpochEndOffset, partition: Partition, epoch: int, newest: Answer[None]) -> None:
    try:
        newest.get()
    except DmqError as error:
        told.error_code = error.code
    else:
        told.leader_epoch, told.end_offset = partition.end_of_epoch(epoch)
