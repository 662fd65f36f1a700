"""InitProducerId, versions 0 to 5: a producer id that nobody had before, or the one of a name.

With a transactional id its coordinator gives the id and the next epoch, and whoever had the name before
is fenced.

    3  who has an id and epoch says so, and goes on with the next epoch (KIP-360)
    4  PRODUCER_FENCED by its name; INVALID_PRODUCER_EPOCH before (KIP-588)
"""

from dmq.broker.answer import Answer
from dmq.broker.transacting import TransactingService
from dmq.broker.transacting import commands as transactions
from dmq.doors.call import Call
from dmq.errors import DmqError, ErrorCode
from dmq.wire.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse

FENCED_SINCE = 4


def handle(service: TransactingService, call: Call, request: InitProducerIdRequest) -> None:
    has_id, has_epoch = request.producer_id != -1, request.producer_epoch != -1
    if request.transactional_id == "" or has_id is not has_epoch:
        call.reply(_refusal(ErrorCode.INVALID_REQUEST))
        return
    if request.transactional_id is None:
        service.next_producer_id().on_done(lambda answer: _reply_new(call, answer))
        return

    def on_initialised(answer: Answer[transactions.Initialised]) -> None:
        try:
            given = answer.get()
        except DmqError as error:
            call.reply(_refusal(_known(error.code, call.version)))
            return
        call.reply(
            InitProducerIdResponse(
                error_code=given.code,
                producer_id=given.producer_id,
                producer_epoch=given.producer_epoch,
            )
        )

    command = transactions.InitProducerId(
        request.transactional_id,
        request.transaction_timeout_ms,
        request.producer_id,
        request.producer_epoch,
    )
    service.transactions.submit(request.transactional_id, command).on_done(on_initialised)


def _reply_new(call: Call, answer: Answer[int]) -> None:
    try:
        call.reply(InitProducerIdResponse(producer_id=answer.get(), producer_epoch=0))
    except DmqError as error:
        call.reply(_refusal(error.code))


def _known(code: ErrorCode, version: int) -> ErrorCode:
    is_new = code is ErrorCode.PRODUCER_FENCED and version < FENCED_SINCE
    return ErrorCode.INVALID_PRODUCER_EPOCH if is_new else code


def _refusal(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
