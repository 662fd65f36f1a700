"""ConsumerGroupHeartbeat, versions 0 and 1: a member of the consumer protocol joins, is alive, leaves
(KIP-848).

    1  the client makes its own member id; topics by pattern
"""

from uuid import UUID

from dmq.broker.answer import Answer
from dmq.broker.coordinators import CoordinatingService
from dmq.broker.coordinators import consumer_commands as group
from dmq.doors.call import Call
from dmq.doors.kafka_api.k11_join_group import client_of
from dmq.errors import DmqError, ErrorCode
from dmq.wire.messages.k68_consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

OWN_MEMBER_ID_SINCE = 1


def handle(
    service: CoordinatingService, call: Call, request: ConsumerGroupHeartbeatRequest
) -> None:
    names = request.subscribed_topic_names
    command = group.ConsumerHeartbeat(
        request.group_id,
        request.member_id,
        request.member_epoch,
        client_of(call),
        request.instance_id,
        request.rack_id,
        request.rebalance_timeout_ms,
        None if names is None else tuple(names),
        request.subscribed_topic_regex,
        request.server_assignor,
        _partitions(request.topic_partitions),
        needs_member_id=call.version >= OWN_MEMBER_ID_SINCE,
    )

    def on_answer(answer: Answer[group.ConsumerBeat]) -> None:
        try:
            beat = answer.get()
        except DmqError as error:
            refusal = ConsumerGroupHeartbeatResponse(
                error_code=error.code, error_message=str(error)
            )
            call.reply(refusal)
        else:
            call.reply(_response(beat))

    service.groups.submit(request.group_id, command).on_done(on_answer)


def _partitions(
    owned: list[TopicPartitions] | None,
) -> tuple[tuple[UUID, tuple[int, ...]], ...] | None:
    if owned is None:
        return None
    return tuple((each.topic_id, tuple(each.partitions)) for each in owned)


def _response(beat: group.ConsumerBeat) -> ConsumerGroupHeartbeatResponse:
    assignment = None
    if beat.assignment is not None:
        assignment = Assignment(
            [TopicPartitions(topic, list(some)) for topic, some in beat.assignment]
        )
    return ConsumerGroupHeartbeatResponse(
        error_code=ErrorCode.NONE,
        member_id=beat.member_id,
        member_epoch=beat.member_epoch,
        heartbeat_interval_ms=beat.heartbeat_interval_ms,
        assignment=assignment,
    )
