"""Consumer groups (KIP-848), as kept in `__consumer_offsets` (types 3-8 and 16).

A member of the new protocol has a classic_member_metadata of None, which is sent; the default is
not sent, and means an empty struct.
"""

from uuid import UUID

from dmq.wire.schema import f, message


@message
class ConsumerGroupMetadataKey:
    group_id: str = f("string")


@message
class ConsumerGroupMetadataValue:
    epoch: int = f("int32")
    metadata_hash: int = f("int64", tag=0)


@message
class ConsumerGroupPartitionMetadataKey:
    group_id: str = f("string")


@message
class PartitionMetadata:
    partition: int = f("int32")
    racks: list[str] = f(["string"])


@message
class TopicMetadata:
    topic_id: UUID = f("uuid")
    topic_name: str = f("string")
    num_partitions: int = f("int32")
    partition_metadata: list[PartitionMetadata] = f([PartitionMetadata])


@message
class ConsumerGroupPartitionMetadataValue:
    topics: list[TopicMetadata] = f([TopicMetadata])


@message
class ConsumerGroupMemberMetadataKey:
    group_id: str = f("string")
    member_id: str = f("string")


@message
class ClassicProtocol:
    name: str = f("string")
    metadata: bytes = f("bytes")


@message
class ClassicMemberMetadata:
    session_timeout_ms: int = f("int32")
    supported_protocols: list[ClassicProtocol] = f([ClassicProtocol])


@message
class ConsumerGroupMemberMetadataValue:
    instance_id: str | None = f("string", null="0+")
    rack_id: str | None = f("string", null="0+")
    client_id: str = f("string")
    client_host: str = f("string")
    subscribed_topic_names: list[str] = f(["string"])
    subscribed_topic_regex: str | None = f("string", null="0+")
    rebalance_timeout_ms: int = f("int32", default=-1)
    server_assignor: str | None = f("string", null="0+")
    classic_member_metadata: ClassicMemberMetadata | None = f(
        ClassicMemberMetadata, null="0+", tag=0
    )


@message
class ConsumerGroupTargetAssignmentMetadataKey:
    group_id: str = f("string")


@message
class ConsumerGroupTargetAssignmentMetadataValue:
    assignment_epoch: int = f("int32")
    assignment_timestamp: int = f("int64", tag=0)


@message
class ConsumerGroupTargetAssignmentMemberKey:
    group_id: str = f("string")
    member_id: str = f("string")


@message
class TopicPartition:
    topic_id: UUID = f("uuid")
    partitions: list[int] = f(["int32"])


@message
class ConsumerGroupTargetAssignmentMemberValue:
    topic_partitions: list[TopicPartition] = f([TopicPartition])


@message
class ConsumerGroupCurrentMemberAssignmentKey:
    group_id: str = f("string")
    member_id: str = f("string")


@message
class TopicPartitions:
    topic_id: UUID = f("uuid")
    partitions: list[int] = f(["int32"])
    assignment_epochs: list[int] | None = f(["int32"], null="0+", tag=0)


@message
class ConsumerGroupCurrentMemberAssignmentValue:
    member_epoch: int = f("int32")
    previous_member_epoch: int = f("int32")
    state: int = f("int8")
    assigned_partitions: list[TopicPartitions] = f([TopicPartitions])
    partitions_pending_revocation: list[TopicPartitions] = f([TopicPartitions])


@message
class ConsumerGroupRegularExpressionKey:
    group_id: str = f("string")
    regular_expression: str = f("string")


@message
class ConsumerGroupRegularExpressionValue:
    topics: list[str] = f(["string"])
    version: int = f("int64")
    timestamp: int = f("int64")
