"""Transactions, as kept in `__transaction_state` (type 0).

Values: 1 flexible, and the producer ids before and after in tags (KIP-890).
"""

from dmq.wire.schema import f, message


@message
class TransactionLogKey:
    transactional_id: str = f("string")


@message
class PartitionsSchema:
    topic: str = f("string")
    partition_ids: list[int] = f(["int32"])


@message
class TransactionLogValue:
    producer_id: int = f("int64")
    previous_producer_id: int = f("int64", "1+", tag=0, default=-1)
    next_producer_id: int = f("int64", "1+", tag=1, default=-1)
    producer_epoch: int = f("int16")
    next_producer_epoch: int = f("int16", "1+", tag=3, default=-1)
    transaction_timeout_ms: int = f("int32")
    transaction_status: int = f("int8")
    transaction_partitions: list[PartitionsSchema] | None = f([PartitionsSchema], null="0+")
    transaction_last_update_timestamp_ms: int = f("int64")
    transaction_start_timestamp_ms: int = f("int64")
    client_transaction_version: int = f("int16", "1+", tag=2)
