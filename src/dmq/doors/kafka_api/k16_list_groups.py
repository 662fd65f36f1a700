"""ListGroups, versions 0 to 5: the groups that this broker coordinates.

4  filter by state    5  filter by type (KIP-848)
"""

from dmq.broker.answer import Answer
from dmq.broker.coordinators import CoordinatingService
from dmq.broker.coordinators import commands as group
from dmq.doors.call import Call
from dmq.errors import DmqError
from dmq.wire.messages.k16_list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


def handle(service: CoordinatingService, call: Call, request: ListGroupsRequest) -> None:
    command = group.ListGroups(tuple(request.states_filter), tuple(request.types_filter))

    def on_listed(answer: Answer[list[group.ListedGroup]]) -> None:
        try:
            groups = [ListedGroup(*each) for each in answer.get()]
        except DmqError as error:
            call.reply(ListGroupsResponse(error_code=error.code))
        else:
            call.reply(ListGroupsResponse(groups=groups))

    service.groups.list_groups(command).on_done(on_listed)
