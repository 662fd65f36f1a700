"""LeaveGroup, versions 0 to 5: members leave a classic group, or an admin removes them from any.

    3  several members, each by itself; a static one may be named by its instance id alone

Skipped: the reason that version 5 gives.
"""

from dmq.broker.answer import Answer
from dmq.broker.coordinators import CoordinatingService
from dmq.broker.coordinators import commands as group
from dmq.doors.call import Call
from dmq.errors import DmqError
from dmq.wire.messages.k13_leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)

MANY_MEMBERS_SINCE = 3


def handle(service: CoordinatingService, call: Call, request: LeaveGroupRequest) -> None:
    if call.version >= MANY_MEMBERS_SINCE:
        leaving = tuple(
            group.LeavingMember(member.member_id, member.group_instance_id)
            for member in request.members
        )
    else:
        leaving = (group.LeavingMember(request.member_id),)

    def on_left(answer: Answer[list[group.LeftMember]]) -> None:
        try:
            left = answer.get()
        except DmqError as error:
            call.reply(LeaveGroupResponse(error_code=error.code))
            return
        if call.version >= MANY_MEMBERS_SINCE:
            members = [MemberResponse(*member) for member in left]
            call.reply(LeaveGroupResponse(members=members))
        else:
            call.reply(LeaveGroupResponse(error_code=left[0].error))

    command = group.LeaveGroup(request.group_id, leaving)
    service.groups.submit(request.group_id, command).on_done(on_left)
