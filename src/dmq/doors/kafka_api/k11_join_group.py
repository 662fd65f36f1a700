"""JoinGroup, versions 0 to 9: becoming a member of a classic group, and staying one.

The answer comes when the group's next generation begins, which may take as long as the rebalance
timeout of its slowest member.

    1  a rebalance timeout besides the session's    4  new members are given an id first (KIP-394)
    5  static members (KIP-345)    9  a static leader may skip assigning (KIP-814)

Skipped: the reason that version 8 gives.
"""

from dmq.broker.answer import Answer
from dmq.broker.coordinators import CoordinatingService
from dmq.broker.coordinators import commands as group
from dmq.doors.call import Call
from dmq.errors import DmqError
from dmq.wire.messages.k11_join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)

MEMBER_ID_FIRST_SINCE = 4
PROTOCOL_MAY_BE_NULL_SINCE = 7
SKIP_ASSIGNMENT_SINCE = 9


def client_of(call: Call) -> group.Client:
    """Who sent a request, as groups show their members; the address is written as Java does."""
    return group.Client(call.client_id or "", "/" + call.connection.peer.rpartition(":")[0])


def handle(service: CoordinatingService, call: Call, request: JoinGroupRequest) -> None:
    rebalance_timeout_ms = request.rebalance_timeout_ms
    if call.version == 0:
        rebalance_timeout_ms = request.session_timeout_ms
    command = group.JoinGroup(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        client_of(call),
        request.session_timeout_ms,
        rebalance_timeout_ms,
        request.protocol_type,
        tuple(group.Protocol(each.name, bytes(each.metadata)) for each in request.protocols),
        needs_member_id=call.version >= MEMBER_ID_FIRST_SINCE,
        may_skip_assignment=call.version >= SKIP_ASSIGNMENT_SINCE,
    )

    def on_joined(answer: Answer[group.Joined]) -> None:
        try:
            joined = answer.get()
        except DmqError as error:
            joined = group.Joined(error.code, request.member_id)
        call.reply(_response(call, joined))

    service.groups.submit(request.group_id, command).on_done(on_joined)


def _response(call: Call, joined: group.Joined) -> JoinGroupResponse:
    protocol = joined.protocol
    if protocol is None and call.version < PROTOCOL_MAY_BE_NULL_SINCE:
        protocol = ""
    return JoinGroupResponse(
        error_code=joined.error,
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name=protocol,
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=[JoinGroupResponseMember(*member) for member in joined.members],
    )
