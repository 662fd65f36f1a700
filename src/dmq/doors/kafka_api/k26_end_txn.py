"""EndTxn, versions 0 to 5: a transaction commits or aborts.

The answer leaves when the decision is committed; markers follow. Asked again, the answer is the same.

    2  PRODUCER_FENCED by its name; INVALID_PRODUCER_EPOCH before
    5  every end makes a new epoch, which the answer tells (KIP-890)
"""

from dmq.broker.answer import Answer
from dmq.broker.transacting import CLIENT_ADDS, LEADER_ADDS, TransactingService
from dmq.broker.transacting import commands as transactions
from dmq.doors.call import Call
from dmq.errors import DmqError, ErrorCode
from dmq.wire.messages.k26_end_txn import EndTxnRequest, EndTxnResponse

FENCED_SINCE = 2
EPOCHS_SINCE = 5


def handle(service: TransactingService, call: Call, request: EndTxnRequest) -> None:
    def on_ended(answer: Answer[transactions.Ended]) -> None:
        try:
            ended = answer.get()
        except DmqError as error:
            code = error.code
            if code is ErrorCode.PRODUCER_FENCED and call.version < FENCED_SINCE:
                code = ErrorCode.INVALID_PRODUCER_EPOCH
            call.reply(EndTxnResponse(error_code=code))
            return
        call.reply(
            EndTxnResponse(producer_id=ended.producer_id, producer_epoch=ended.producer_epoch)
        )

    command = transactions.EndTransaction(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        request.committed,
        LEADER_ADDS if call.version >= EPOCHS_SINCE else CLIENT_ADDS,
    )
    service.transactions.submit(request.transactional_id, command).on_done(on_ended)
