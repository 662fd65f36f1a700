"""OffsetDelete (key 47, version 0): forgets committed offsets of a group."""

from dmq.wire.schema import f, message


@message
class OffsetDeleteRequestPartition:
    partition_index: int = f("int32")


@message
class OffsetDeleteRequestTopic:
    name: str = f("string")
    partitions: list[OffsetDeleteRequestPartition] = f([OffsetDeleteRequestPartition])


@message
class OffsetDeleteRequest:
    group_id: str = f("string")
    topics: list[OffsetDeleteRequestTopic] = f([OffsetDeleteRequestTopic])


@message
class OffsetDeleteResponsePartition:
    partition_index: int = f("int32")
    error_code: int = f("int16")


@message
class OffsetDeleteResponseTopic:
    name: str = f("string")
    partitions: list[OffsetDeleteResponsePartition] = f([OffsetDeleteResponsePartition])


@message
class OffsetDeleteResponse:
    error_code: int = f("int16")
    throttle_time_ms: int = f("int32")
    topics: list[OffsetDeleteResponseTopic] = f([OffsetDeleteResponseTopic])
