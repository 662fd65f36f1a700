"""ListTransactions, versions 0 to 2: transactional ids that this broker coordinates.

Filters by state and producer id; names that are no states come back as such.

    1  open for longer than (KIP-994)    2  ids that match a pattern (KIP-1152)
"""

from dmq.broker.answer import Answer
from dmq.broker.transacting import TransactingService, matcher, unknown_states
from dmq.broker.transacting import commands as transactions
from dmq.doors.call import Call
from dmq.errors import DmqError, KafkaError
from dmq.wire.messages.k66_list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)


def handle(service: TransactingService, call: Call, request: ListTransactionsRequest) -> None:
    unknown = unknown_states(request.state_filters)

    def on_listed(answer: Answer[list[transactions.TransactionView]]) -> None:
        try:
            views = answer.get()
        except DmqError as error:
            call.reply(_refusal(error))
            return
        states = [
            TransactionState(view.transactional_id, view.producer_id, view.state) for view in views
        ]
        call.reply(
            ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=states)
        )

    try:
        matches = matcher(request.transactional_id_pattern)
    except KafkaError as error:
        call.reply(_refusal(error))
        return
    command = transactions.ListTransactions(
        frozenset(request.state_filters),
        frozenset(request.producer_id_filters),
        request.duration_filter,
        matches,
    )
    service.transactions.list_transactions(command).on_done(on_listed)


def _refusal(error: DmqError) -> ListTransactionsResponse:
    return ListTransactionsResponse(
        error_code=error.code, unknown_state_filters=[], transaction_states=[]
    )
