"""AlterShareGroupOffsets (key 91, version 0): sets start offsets of a share group."""

from uuid import UUID

from dmq.wire.schema import f, message


@message
class AlterShareGroupOffsetsRequestPartition:
    partition_index: int = f("int32")
    start_offset: int = f("int64")


@message
class AlterShareGroupOffsetsRequestTopic:
    topic_name: str = f("string")
    partitions: list[AlterShareGroupOffsetsRequestPartition] = f(
        [AlterShareGroupOffsetsRequestPartition]
    )


@message
class AlterShareGroupOffsetsRequest:
    group_id: str = f("string")
    topics: list[AlterShareGroupOffsetsRequestTopic] = f([AlterShareGroupOffsetsRequestTopic])


@message
class AlterShareGroupOffsetsResponsePartition:
    partition_index: int = f("int32")
    error_code: int = f("int16")
    error_message: str | None = f("string", null="0+", default=None)


@message
class AlterShareGroupOffsetsResponseTopic:
    topic_name: str = f("string")
    topic_id: UUID = f("uuid")
    partitions: list[AlterShareGroupOffsetsResponsePartition] = f(
        [AlterShareGroupOffsetsResponsePartition]
    )


@message
class AlterShareGroupOffsetsResponse:
    throttle_time_ms: int = f("int32")
    error_code: int = f("int16")
    error_message: str | None = f("string", null="0+", default=None)
    responses: list[AlterShareGroupOffsetsResponseTopic] = f([AlterShareGroupOffsetsResponseTopic])
