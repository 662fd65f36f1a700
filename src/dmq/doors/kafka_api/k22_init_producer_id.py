"""InitProducerId, versions 0 to 5: a producer id that nobody had before.

Skipped: transactional ids are refused (transactions are not served here yet).
"""

from dmq.broker.answer import Answer
from dmq.broker.service import Service
from dmq.doors.call import Call
from dmq.errors import DmqError, ErrorCode
from dmq.wire.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse


def handle(service: Service, call: Call, request: InitProducerIdRequest) -> None:
    if request.transactional_id is not None:
        is_named = bool(request.transactional_id)
        call.reply(
            _refusal(ErrorCode.UNSUPPORTED_VERSION if is_named else ErrorCode.INVALID_REQUEST)
        )
        return

    def on_id(answer: Answer[int]) -> None:
        try:
            call.reply(InitProducerIdResponse(producer_id=answer.get(), producer_epoch=0))
        except DmqError as error:
            call.reply(_refusal(error.code))

    service.next_producer_id().on_done(on_id)


def _refusal(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
