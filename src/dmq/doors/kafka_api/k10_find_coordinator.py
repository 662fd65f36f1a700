"""FindCoordinator, versions 0 to 6: who coordinates a group, a transaction, a share group.

Version 4 asks for several keys at once. The topic that coordinators live on is made by the first who
asks. Share coordinators are not served here yet.

While a coordinator's place is empty, as after a crash, the question waits a little. Kafka would say at
once that there is none, and clients ask again; but librdkafka asks three times in half a second, and
then waits for a change that it may never hear of (a transaction's offsets hang for ever). So it does if
it is sent to a broker that is down: who is not heard coordinates nothing, though clients are told of it.
And first the others are asked whether they are still there, as for Metadata.
"""

from functools import partial

from dmq.broker.answer import Answer, when_all
from dmq.broker.service import Service
from dmq.doors.call import Call
from dmq.errors import DmqError, ErrorCode
from dmq.wire.messages.k10_find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

GROUP, TRANSACTION = 0, 1
MANY_KEYS_SINCE = 4
PATIENCE_MS = 2000
"""Longer than an election takes. What comes behind on the same connection waits as well."""
LOOK_EACH_MS = 100


def handle(service: Service, call: Call, request: FindCoordinatorRequest) -> None:
    service.when_sure(partial(call.perform, _tell, service, call, request))


def _tell(service: Service, call: Call, request: FindCoordinatorRequest) -> None:
    keys = request.coordinator_keys if call.version >= MANY_KEYS_SINCE else [request.key]
    found = [_find(service, call, key, request.key_type) for key in keys]
    when_all(found, lambda: _reply(call, [answer.get() for answer in found]))


def _reply(call: Call, found: list[Coordinator]) -> None:
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


def _find(service: Service, call: Call, key: str, key_type: int) -> Answer[Coordinator]:
    if key_type not in (GROUP, TRANSACTION):
        text = "this broker coordinates consumer groups and transactions only"
        return Answer.of(Coordinator(key, -1, "", -1, ErrorCode.INVALID_REQUEST, text))
    coordinators = service.groups if key_type == GROUP else service.transactions
    deadline = service.steady_now() + PATIENCE_MS
    answer: Answer[Coordinator] = Answer()

    def look() -> None:
        coordinators.coordinator_of(key).on_done(looked)

    def looked(told: Answer[int]) -> None:
        try:
            found = _coordinator(service, call, key, told.get())
        except DmqError as error:
            answer.fail(error)
            return
        is_over = service.steady_now() >= deadline or call.connection.is_closed
        if found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE and not is_over:
            service.later(LOOK_EACH_MS, look)
        else:
            answer.resolve(found)

    look()
    return answer


def _coordinator(service: Service, call: Call, key: str, node: int) -> Coordinator:
    for broker in service.brokers(call.connection.door.listener, with_fenced=True):
        if broker.node_id == node and not broker.is_fenced:
            return Coordinator(key, node, broker.host, broker.port, ErrorCode.NONE, None)
    text = "the coordinator is not up yet; ask again"
    return Coordinator(key, -1, "", -1, ErrorCode.COORDINATOR_NOT_AVAILABLE, text)
