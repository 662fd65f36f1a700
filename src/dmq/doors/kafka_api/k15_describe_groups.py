"""DescribeGroups, versions 0 to 6: members and state of classic groups.

3  what the client may do    4  static members
6  a group that is not there, or is of the consumer protocol, is an error (KIP-1043); before, it
   is described as dead
"""

from functools import partial

from dmq.broker.answer import Answer, when_all
from dmq.broker.coordinators import CoordinatingService
from dmq.broker.coordinators import commands as group
from dmq.doors.call import Call
from dmq.errors import DmqError, ErrorCode
from dmq.wire.messages.k15_describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

NOT_FOUND_SINCE = 6
ON_GROUPS = sum(1 << operation for operation in (3, 6, 8, 10, 11))
"""Read, delete, describe, describe and alter configs: what there is to allow, and everybody may."""


def handle(service: CoordinatingService, call: Call, request: DescribeGroupsRequest) -> None:
    answers = [
        service.groups.submit(group_id, group.DescribeClassicGroup(group_id))
        for group_id in request.groups
    ]

    def reply() -> None:
        described = list(map(partial(_described, call), request.groups, answers))
        if request.include_authorized_operations:
            for each in described:
                if each.error_code == ErrorCode.NONE:
                    each.authorized_operations = ON_GROUPS
        call.reply(DescribeGroupsResponse(groups=described))

    when_all(answers, reply)


def _described(
    call: Call, group_id: str, answer: Answer[group.DescribedClassicGroup]
) -> DescribedGroup:
    try:
        found = answer.get()
    except DmqError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            return DescribedGroup(error.code, group_id=group_id)
        code = error.code if call.version >= NOT_FOUND_SINCE else ErrorCode.NONE
        return DescribedGroup(code, str(error), group_id=group_id, group_state="Dead")
    return DescribedGroup(
        ErrorCode.NONE,
        None,
        group_id,
        found.state,
        found.protocol_type,
        found.protocol,
        [DescribedGroupMember(*member) for member in found.members],
    )
