"""DescribeTransactions, version 0: where transactional ids stand that this broker coordinates."""

from itertools import groupby
from operator import itemgetter

from dmq.broker.answer import Answer, when_all
from dmq.broker.transacting import TransactingService
from dmq.broker.transacting import commands as transactions
from dmq.doors.call import Call
from dmq.errors import DmqError, ErrorCode
from dmq.wire.messages.k65_describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)


def handle(service: TransactingService, call: Call, request: DescribeTransactionsRequest) -> None:
    asked = [
        (name, service.transactions.submit(name, transactions.DescribeTransaction(name)))
        for name in request.transactional_ids
    ]

    def all_told() -> None:
        states = [_state(name, answer) for name, answer in asked]
        call.reply(DescribeTransactionsResponse(transaction_states=states))

    when_all([answer for _, answer in asked], all_told)


def _state(name: str, answer: Answer[transactions.TransactionView]) -> TransactionState:
    try:
        view = answer.get()
    except DmqError as error:
        return TransactionState(error.code, name, topics=[])
    topics = [
        TopicData(topic, [partition for _, partition in group])
        for topic, group in groupby(view.partitions, key=itemgetter(0))
    ]
    return TransactionState(
        ErrorCode.NONE,
        name,
        view.state,
        view.timeout_ms,
        view.start_ms,
        view.producer_id,
        view.producer_epoch,
        topics,
    )
