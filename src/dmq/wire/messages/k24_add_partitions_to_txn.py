"""AddPartitionsToTxn (key 24, versions 0-5): adds partitions to a transaction.

0-3 clients, one transaction. 4 brokers, several, and asking only. 5 error codes only (KIP-890).
Flexible from 3.
"""

from dmq.wire.schema import f, message


@message
class AddPartitionsToTxnTopic:
    name: str = f("string")
    partitions: list[int] = f(["int32"])


@message
class AddPartitionsToTxnTransaction:
    transactional_id: str = f("string")
    producer_id: int = f("int64")
    producer_epoch: int = f("int16")
    verify_only: bool = f("bool")
    topics: list[AddPartitionsToTxnTopic] = f([AddPartitionsToTxnTopic])


@message
class AddPartitionsToTxnRequest:
    transactions: list[AddPartitionsToTxnTransaction] = f([AddPartitionsToTxnTransaction], "4+")
    v3_and_below_transactional_id: str = f("string", "0-3")
    v3_and_below_producer_id: int = f("int64", "0-3")
    v3_and_below_producer_epoch: int = f("int16", "0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = f([AddPartitionsToTxnTopic], "0-3")


@message
class AddPartitionsToTxnPartitionResult:
    partition_index: int = f("int32")
    partition_error_code: int = f("int16")


@message
class AddPartitionsToTxnTopicResult:
    name: str = f("string")
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = f(
        [AddPartitionsToTxnPartitionResult]
    )


@message
class AddPartitionsToTxnResult:
    transactional_id: str = f("string")
    topic_results: list[AddPartitionsToTxnTopicResult] = f([AddPartitionsToTxnTopicResult])


@message
class AddPartitionsToTxnResponse:
    throttle_time_ms: int = f("int32")
    error_code: int = f("int16", "4+")
    results_by_transaction: list[AddPartitionsToTxnResult] = f([AddPartitionsToTxnResult], "4+")
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = f(
        [AddPartitionsToTxnTopicResult], "0-3"
    )
