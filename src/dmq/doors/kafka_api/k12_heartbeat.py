"""Heartbeat, versions 0 to 4: a member of a classic group is alive.

A coordinator that is still loading says "all is well": the member has its whole session before it
once that is done, and must not be sent away meanwhile.
"""

from dmq.broker.answer import Answer
from dmq.broker.coordinators import CoordinatingService
from dmq.broker.coordinators import commands as group
from dmq.doors.call import Call
from dmq.errors import DmqError, ErrorCode
from dmq.wire.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(service: CoordinatingService, call: Call, request: HeartbeatRequest) -> None:
    command = group.Heartbeat(
        request.group_id, request.generation_id, request.member_id, request.group_instance_id
    )

    def on_answer(answer: Answer[ErrorCode]) -> None:
        try:
            code = answer.get()
        except DmqError as error:
            code = error.code
        if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            code = ErrorCode.NONE
        call.reply(HeartbeatResponse(error_code=code))

    service.groups.submit(request.group_id, command).on_done(on_answer)
