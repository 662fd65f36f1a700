"""Share groups (KIP-932), as kept in `__consumer_offsets` (types 10-15)."""

from uuid import UUID

from dmq.wire.schema import f, message


@message
class ShareGroupMemberMetadataKey:
    group_id: str = f("string")
    member_id: str = f("string")


@message
class ShareGroupMemberMetadataValue:
    rack_id: str | None = f("string", null="0+")
    client_id: str = f("string")
    client_host: str = f("string")
    subscribed_topic_names: list[str] = f(["string"])


@message
class ShareGroupMetadataKey:
    group_id: str = f("string")


@message
class ShareGroupMetadataValue:
    epoch: int = f("int32")
    metadata_hash: int = f("int64")


@message
class ShareGroupTargetAssignmentMetadataKey:
    group_id: str = f("string")


@message
class ShareGroupTargetAssignmentMetadataValue:
    assignment_epoch: int = f("int32")
    assignment_timestamp: int = f("int64", tag=0)


@message
class ShareGroupTargetAssignmentMemberKey:
    group_id: str = f("string")
    member_id: str = f("string")


@message
class TopicPartition:
    topic_id: UUID = f("uuid")
    partitions: list[int] = f(["int32"])


@message
class ShareGroupTargetAssignmentMemberValue:
    topic_partitions: list[TopicPartition] = f([TopicPartition])


@message
class ShareGroupCurrentMemberAssignmentKey:
    group_id: str = f("string")
    member_id: str = f("string")


@message
class TopicPartitions:
    topic_id: UUID = f("uuid")
    partitions: list[int] = f(["int32"])


@message
class ShareGroupCurrentMemberAssignmentValue:
    member_epoch: int = f("int32")
    previous_member_epoch: int = f("int32")
    state: int = f("int8")
    assigned_partitions: list[TopicPartitions] = f([TopicPartitions])


@message
class ShareGroupStatePartitionMetadataKey:
    group_id: str = f("string")


@message
class TopicPartitionsInfo:
    topic_id: UUID = f("uuid")
    topic_name: str = f("string")
    partitions: list[int] = f(["int32"])


@message
class TopicInfo:
    topic_id: UUID = f("uuid")
    topic_name: str = f("string")


@message
class ShareGroupStatePartitionMetadataValue:
    initializing_topics: list[TopicPartitionsInfo] = f([TopicPartitionsInfo])
    initialized_topics: list[TopicPartitionsInfo] = f([TopicPartitionsInfo])
    deleting_topics: list[TopicInfo] = f([TopicInfo])
