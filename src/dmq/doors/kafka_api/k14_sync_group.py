"""SyncGroup, versions 0 to 5: a member of a classic group gets its assignment, its leader brings all.

The answer comes when the leader has brought them.

    3  static members    5  the protocol that the member believes in must be said, and must fit
"""

from dmq.broker.answer import Answer
from dmq.broker.coordinators import CoordinatingService
from dmq.broker.coordinators import commands as group
from dmq.doors.call import Call
from dmq.errors import DmqError, ErrorCode
from dmq.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupResponse

PROTOCOL_SINCE = 5


def handle(service: CoordinatingService, call: Call, request: SyncGroupRequest) -> None:
    has_protocol = request.protocol_type is not None and request.protocol_name is not None
    if call.version >= PROTOCOL_SINCE and not has_protocol:
        call.reply(SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        return
    command = group.SyncGroup(
        request.group_id,
        request.generation_id,
        request.member_id,
        request.group_instance_id,
        request.protocol_type,
        request.protocol_name,
        tuple((each.member_id, bytes(each.assignment)) for each in request.assignments),
    )

    def on_synced(answer: Answer[group.Synced]) -> None:
        try:
            synced = answer.get()
        except DmqError as error:
            synced = group.Synced(error.code)
        call.reply(
            SyncGroupResponse(
                error_code=synced.error,
                protocol_type=synced.protocol_type,
                protocol_name=synced.protocol,
                assignment=synced.assignment,
            )
        )

    service.groups.submit(request.group_id, command).on_done(on_synced)
