"""DeleteGroups, versions 0 to 2: forgets groups without members, and their offsets. Each by itself."""

from dmq.broker.answer import Answer, when_all
from dmq.broker.coordinators import CoordinatingService
from dmq.broker.coordinators import commands as group
from dmq.doors.call import Call
from dmq.errors import DmqError, ErrorCode
from dmq.wire.messages.k42_delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


def handle(service: CoordinatingService, call: Call, request: DeleteGroupsRequest) -> None:
    names = list(dict.fromkeys(request.groups_names))
    answers = [service.groups.submit(name, group.DeleteGroup(name)) for name in names]

    def reply() -> None:
        results = list(map(_result, names, answers))
        call.reply(DeleteGroupsResponse(results=results))

    when_all(answers, reply)


def _result(name: str, answer: Answer[None]) -> DeletableGroupResult:
    try:
        answer.get()
    except DmqError as error:
        return DeletableGroupResult(name, error.code)
    return DeletableGroupResult(name, ErrorCode.NONE)
