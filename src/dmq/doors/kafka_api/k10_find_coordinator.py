"""FindCoordinator, versions 0 to 6: who coordinates a group, a transaction, a share group.

Version 4 asks for several keys at once. Group coordinators are named so that simple consumers find
their broker; transaction and share coordinators are not served here yet.
"""

from dmq.broker.service import Service
from dmq.doors.call import Call
from dmq.errors import ErrorCode
from dmq.wire.messages.k10_find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

GROUP = 0
MANY_KEYS_SINCE = 4


def handle(service: Service, call: Call, request: FindCoordinatorRequest) -> None:
    keys = request.coordinator_keys if call.version >= MANY_KEYS_SINCE else [request.key]
    found = [_find(service, call, key, request.key_type) for key in keys]
    if call.version >= MANY_KEYS_SINCE:
        call.reply(FindCoordinatorResponse(coordinators=found))
        return
    only = found[0]
    call.reply(
        FindCoordinatorResponse(
            error_code=only.error_code,
            error_message=only.error_message,
            node_id=only.node_id,
            host=only.host,
            port=only.port,
        )
    )


def _find(service: Service, call: Call, key: str, key_type: int) -> Coordinator:
    if key_type != GROUP:
        return Coordinator(
            key,
            -1,
            "",
            -1,
            ErrorCode.INVALID_REQUEST,
            "this broker coordinates consumer groups only",
        )
    broker = service.this_broker(call.connection.door.listener)
    return Coordinator(key, broker.node_id, broker.host, broker.port, ErrorCode.NONE, None)
