"""DescribeTransactions (key 65, version 0): transactions by their ids."""

from dmq.wire.schema import f, message


@message
class DescribeTransactionsRequest:
    transactional_ids: list[str] = f(["string"])


@message
class TopicData:
    topic: str = f("string")
    partitions: list[int] = f(["int32"])


@message
class TransactionState:
    error_code: int = f("int16")
    transactional_id: str = f("string")
    transaction_state: str = f("string")
    transaction_timeout_ms: int = f("int32")
    transaction_start_time_ms: int = f("int64")
    producer_id: int = f("int64")
    producer_epoch: int = f("int16")
    topics: list[TopicData] = f([TopicData])


@message
class DescribeTransactionsResponse:
    throttle_time_ms: int = f("int32")
    transaction_states: list[TransactionState] = f([TransactionState])
