"""AddOffsetsToTxn, versions 0 to 4: a transaction will commit offsets of a group.

Adds the partition of `__consumer_offsets` that the group belongs to; TxnOffsetCommit then writes there.

    2  PRODUCER_FENCED by its name; INVALID_PRODUCER_EPOCH before
"""

from dmq.broker.answer import Answer
from dmq.broker.transacting import CLIENT_ADDS, TransactingService
from dmq.broker.transacting import commands as transactions
from dmq.doors.call import Call
from dmq.errors import DmqError, ErrorCode, KafkaError
from dmq.wire.messages.k25_add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)

FENCED_SINCE = 2


def handle(service: TransactingService, call: Call, request: AddOffsetsToTxnRequest) -> None:
    try:
        partition = service.transactions.offsets_partition(request.group_id)
    except KafkaError as error:
        call.reply(AddOffsetsToTxnResponse(error_code=error.code))
        return

    def on_added(answer: Answer[None]) -> None:
        code = ErrorCode.NONE
        try:
            answer.get()
        except DmqError as error:
            code = error.code
        if code is ErrorCode.PRODUCER_FENCED and call.version < FENCED_SINCE:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        call.reply(AddOffsetsToTxnResponse(error_code=code))

    command = transactions.AddPartitions(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        frozenset({partition}),
        CLIENT_ADDS,
    )
    service.transactions.submit(request.transactional_id, command).on_done(on_added)
