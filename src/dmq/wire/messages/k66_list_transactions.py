"""ListTransactions (key 66, versions 0-2): transactions of a broker.

1 older than. 2 ids by a pattern.
"""

from dmq.wire.schema import f, message


@message
class ListTransactionsRequest:
    state_filters: list[str] = f(["string"])
    producer_id_filters: list[int] = f(["int64"])
    duration_filter: int = f("int64", "1+", default=-1)
    transactional_id_pattern: str | None = f("string", "2+", null="0+", default=None)


@message
class TransactionState:
    transactional_id: str = f("string")
    producer_id: int = f("int64")
    transaction_state: str = f("string")


@message
class ListTransactionsResponse:
    throttle_time_ms: int = f("int32")
    error_code: int = f("int16")
    unknown_state_filters: list[str] = f(["string"])
    transaction_states: list[TransactionState] = f([TransactionState])
