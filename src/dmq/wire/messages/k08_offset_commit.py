"""OffsetCommit (key 8, versions 2-10): commits the offsets of a group.

5 no retention time. 6 leader epochs. 7 static members. 9 the new group protocol (KIP-848). 10
topic ids instead of names. Flexible from 8.
"""

from uuid import UUID

from dmq.wire.schema import f, message


@message
class OffsetCommitRequestPartition:
    partition_index: int = f("int32")
    committed_offset: int = f("int64")
    committed_leader_epoch: int = f("int32", "6+", default=-1)
    committed_metadata: str | None = f("string", null="0+")


@message
class OffsetCommitRequestTopic:
    name: str = f("string", "2-9")
    topic_id: UUID = f("uuid", "10+")
    partitions: list[OffsetCommitRequestPartition] = f([OffsetCommitRequestPartition])


@message
class OffsetCommitRequest:
    group_id: str = f("string")
    generation_id_or_member_epoch: int = f("int32", default=-1)
    member_id: str = f("string")
    group_instance_id: str | None = f("string", "7+", null="0+", default=None)
    retention_time_ms: int = f("int64", "2-4", default=-1)
    topics: list[OffsetCommitRequestTopic] = f([OffsetCommitRequestTopic])


@message
class OffsetCommitResponsePartition:
    partition_index: int = f("int32")
    error_code: int = f("int16")


@message
class OffsetCommitResponseTopic:
    name: str = f("string", "2-9")
    topic_id: UUID = f("uuid", "10+")
    partitions: list[OffsetCommitResponsePartition] = f([OffsetCommitResponsePartition])


@message
class OffsetCommitResponse:
    throttle_time_ms: int = f("int32", "3+")
    topics: list[OffsetCommitResponseTopic] = f([OffsetCommitResponseTopic])
