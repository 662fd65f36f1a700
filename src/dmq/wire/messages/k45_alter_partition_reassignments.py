"""AlterPartitionReassignments (key 45, versions 0-1): moves replicas between brokers.

1 whether the replication factor may change.
"""

from dmq.wire.schema import f, message


@message
class ReassignablePartition:
    partition_index: int = f("int32")
    replicas: list[int] | None = f(["int32"], null="0+", default=None)


@message
class ReassignableTopic:
    name: str = f("string")
    partitions: list[ReassignablePartition] = f([ReassignablePartition])


@message
class AlterPartitionReassignmentsRequest:
    timeout_ms: int = f("int32", default=60000)
    allow_replication_factor_change: bool = f("bool", "1+", default=True)
    topics: list[ReassignableTopic] = f([ReassignableTopic])


@message
class ReassignablePartitionResponse:
    partition_index: int = f("int32")
    error_code: int = f("int16")
    error_message: str | None = f("string", null="0+")


@message
class ReassignableTopicResponse:
    name: str = f("string")
    partitions: list[ReassignablePartitionResponse] = f([ReassignablePartitionResponse])


@message
class AlterPartitionReassignmentsResponse:
    throttle_time_ms: int = f("int32")
    allow_replication_factor_change: bool = f("bool", "1+", default=True)
    error_code: int = f("int16")
    error_message: str | None = f("string", null="0+")
    responses: list[ReassignableTopicResponse] = f([ReassignableTopicResponse])
