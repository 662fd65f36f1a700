"""UnregisterBroker, version 0: the cluster forgets a broker that will not come back.

Refused while replicas are placed on it: move them away first (`dmq cluster decommission` does). Kafka
lets it go all the same and leaves its partitions with one replica less.
"""

from dmq.broker.answer import Answer
from dmq.broker.elections import Done, UnregisterBroker
from dmq.broker.service import Service
from dmq.doors.call import Call
from dmq.errors import DmqError, ErrorCode
from dmq.wire.messages.k64_unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)


def handle(service: Service, call: Call, request: UnregisterBrokerRequest) -> None:
    def on_done(answer: Answer[Done]) -> None:
        try:
            answer.get()
        except DmqError as error:
            call.reply(UnregisterBrokerResponse(error_code=error.code, error_message=str(error)))
        else:
            call.reply(UnregisterBrokerResponse(error_code=ErrorCode.NONE))

    service.submit(UnregisterBroker(request.broker_id)).on_done(on_done)
