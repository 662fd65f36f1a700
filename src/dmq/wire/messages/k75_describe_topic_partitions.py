"""DescribeTopicPartitions (key 75, version 0): partitions of topics, page by page (KIP-966)."""

from uuid import UUID

from dmq.wire.schema import f, message


@message
class TopicRequest:
    name: str = f("string")


@message
class Cursor:
    topic_name: str = f("string")
    partition_index: int = f("int32")


@message
class DescribeTopicPartitionsRequest:
    topics: list[TopicRequest] = f([TopicRequest])
    response_partition_limit: int = f("int32", default=2000)
    cursor: Cursor | None = f(Cursor, null="0+", default=None)


@message
class DescribeTopicPartitionsResponsePartition:
    error_code: int = f("int16")
    partition_index: int = f("int32")
    leader_id: int = f("int32")
    leader_epoch: int = f("int32", default=-1)
    replica_nodes: list[int] = f(["int32"])
    isr_nodes: list[int] = f(["int32"])
    eligible_leader_replicas: list[int] | None = f(["int32"], null="0+", default=None)
    last_known_elr: list[int] | None = f(["int32"], null="0+", default=None)
    offline_replicas: list[int] = f(["int32"])


@message
class DescribeTopicPartitionsResponseTopic:
    error_code: int = f("int16")
    name: str | None = f("string", null="0+")
    topic_id: UUID = f("uuid")
    is_internal: bool = f("bool")
    partitions: list[DescribeTopicPartitionsResponsePartition] = f(
        [DescribeTopicPartitionsResponsePartition]
    )
    topic_authorized_operations: int = f("int32", default=-2147483648)


@message
class DescribeTopicPartitionsResponse:
    throttle_time_ms: int = f("int32")
    topics: list[DescribeTopicPartitionsResponseTopic] = f([DescribeTopicPartitionsResponseTopic])
    next_cursor: Cursor | None = f(Cursor, null="0+", default=None)
