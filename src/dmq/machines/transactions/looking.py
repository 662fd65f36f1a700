"""What people see of transactions: DescribeTransactions and ListTransactions.

Looks at the state and changes nothing. `longer_than_ms` counts from the start of the last
transaction, open or not, as Kafka's does; an id that never had one counts as the oldest.
"""

from collections.abc import Iterable

from dmq.errors import ErrorCode, KafkaError
from dmq.machines.transactions.commands import ListTransactions, TransactionView
from dmq.machines.transactions.facts import BY_LABEL, Transaction


def describe(transactional_id: str, transaction: Transaction | None) -> TransactionView:
    """Raises KafkaError."""
    if not transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a transactional id is not empty")
    if transaction is None:
        raise KafkaError(
            ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"no transactional id {transactional_id!r}"
        )
    return view(transactional_id, transaction)


def list_all(
    transactions: Iterable[tuple[str, Transaction]], asked: ListTransactions, now: int
) -> list[TransactionView]:
    states = {BY_LABEL[name] for name in asked.states if name in BY_LABEL}
    return [
        view(name, transaction)
        for name, transaction in transactions
        if (not asked.states or transaction.state in states)
        and (not asked.producer_ids or transaction.producer_id in asked.producer_ids)
        and (asked.longer_than_ms < 0 or now - transaction.start_ms > asked.longer_than_ms)
        and (asked.matches is None or asked.matches(name))
    ]


def unknown_states(names: Iterable[str]) -> list[str]:
    """Those that are no names of states."""
    return [name for name in names if name not in BY_LABEL]


def view(transactional_id: str, transaction: Transaction) -> TransactionView:
    return TransactionView(
        transactional_id,
        transaction.state.label,
        transaction.timeout_ms,
        transaction.start_ms,
        transaction.producer_id,
        transaction.producer_epoch,
        tuple(sorted(transaction.partitions)),
    )
