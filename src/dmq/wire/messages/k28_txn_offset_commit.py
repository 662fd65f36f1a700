"""TxnOffsetCommit (key 28, versions 0-5): commits offsets inside a transaction.

2 leader epochs. 3 who the member is. 5 joins the transaction by itself (KIP-890). Flexible from 3.
"""

from dmq.wire.schema import f, message


@message
class TxnOffsetCommitRequestPartition:
    partition_index: int = f("int32")
    committed_offset: int = f("int64")
    committed_leader_epoch: int = f("int32", "2+", default=-1)
    committed_metadata: str | None = f("string", null="0+")


@message
class TxnOffsetCommitRequestTopic:
    name: str = f("string")
    partitions: list[TxnOffsetCommitRequestPartition] = f([TxnOffsetCommitRequestPartition])


@message
class TxnOffsetCommitRequest:
    transactional_id: str = f("string")
    group_id: str = f("string")
    producer_id: int = f("int64")
    producer_epoch: int = f("int16")
    generation_id: int = f("int32", "3+", default=-1)
    member_id: str = f("string", "3+")
    group_instance_id: str | None = f("string", "3+", null="0+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = f([TxnOffsetCommitRequestTopic])


@message
class TxnOffsetCommitResponsePartition:
    partition_index: int = f("int32")
    error_code: int = f("int16")


@message
class TxnOffsetCommitResponseTopic:
    name: str = f("string")
    partitions: list[TxnOffsetCommitResponsePartition] = f([TxnOffsetCommitResponsePartition])


@message
class TxnOffsetCommitResponse:
    throttle_time_ms: int = f("int32")
    topics: list[TxnOffsetCommitResponseTopic] = f([TxnOffsetCommitResponseTopic])
