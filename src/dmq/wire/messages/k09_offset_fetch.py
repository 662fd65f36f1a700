"""OffsetFetch (key 9, versions 1-10): committed offsets of groups.

2 null asks for all. 5 leader epochs. 7 only stable ones. 8 several groups. 9 the new group
protocol (KIP-848). 10 topic ids instead of names. Flexible from 6.
"""

from uuid import UUID

from dmq.wire.schema import f, message


@message
class OffsetFetchRequestTopic:
    name: str = f("string")
    partition_indexes: list[int] = f(["int32"])


@message
class OffsetFetchRequestTopics:
    name: str = f("string", "8-9")
    topic_id: UUID = f("uuid", "10+")
    partition_indexes: list[int] = f(["int32"])


@message
class OffsetFetchRequestGroup:
    group_id: str = f("string")
    member_id: str | None = f("string", "9+", null="0+", default=None)
    member_epoch: int = f("int32", "9+", default=-1)
    topics: list[OffsetFetchRequestTopics] | None = f([OffsetFetchRequestTopics], null="0+")


@message
class OffsetFetchRequest:
    group_id: str = f("string", "1-7")
    topics: list[OffsetFetchRequestTopic] | None = f([OffsetFetchRequestTopic], "1-7", null="2-7")
    groups: list[OffsetFetchRequestGroup] = f([OffsetFetchRequestGroup], "8+")
    require_stable: bool = f("bool", "7+")


@message
class OffsetFetchResponsePartition:
    partition_index: int = f("int32")
    committed_offset: int = f("int64")
    committed_leader_epoch: int = f("int32", "5+", default=-1)
    metadata: str | None = f("string", null="0+")
    error_code: int = f("int16")


@message
class OffsetFetchResponseTopic:
    name: str = f("string")
    partitions: list[OffsetFetchResponsePartition] = f([OffsetFetchResponsePartition])


@message
class OffsetFetchResponsePartitions:
    partition_index: int = f("int32")
    committed_offset: int = f("int64")
    committed_leader_epoch: int = f("int32", default=-1)
    metadata: str | None = f("string", null="0+")
    error_code: int = f("int16")


@message
class OffsetFetchResponseTopics:
    name: str = f("string", "8-9")
    topic_id: UUID = f("uuid", "10+")
    partitions: list[OffsetFetchResponsePartitions] = f([OffsetFetchResponsePartitions])


@message
class OffsetFetchResponseGroup:
    group_id: str = f("string")
    topics: list[OffsetFetchResponseTopics] = f([OffsetFetchResponseTopics])
    error_code: int = f("int16")


@message
class OffsetFetchResponse:
    throttle_time_ms: int = f("int32", "3+")
    topics: list[OffsetFetchResponseTopic] = f([OffsetFetchResponseTopic], "1-7")
    error_code: int = f("int16", "2-7")
    groups: list[OffsetFetchResponseGroup] = f([OffsetFetchResponseGroup], "8+")
