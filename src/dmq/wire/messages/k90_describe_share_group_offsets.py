"""DescribeShareGroupOffsets (key 90, versions 0-1): start offsets of share groups.

1 lag.
"""

from uuid import UUID

from dmq.wire.schema import f, message


@message
class DescribeShareGroupOffsetsRequestTopic:
    topic_name: str = f("string")
    partitions: list[int] = f(["int32"])


@message
class DescribeShareGroupOffsetsRequestGroup:
    group_id: str = f("string")
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = f(
        [DescribeShareGroupOffsetsRequestTopic], null="0+"
    )


@message
class DescribeShareGroupOffsetsRequest:
    groups: list[DescribeShareGroupOffsetsRequestGroup] = f([DescribeShareGroupOffsetsRequestGroup])


@message
class DescribeShareGroupOffsetsResponsePartition:
    partition_index: int = f("int32")
    start_offset: int = f("int64")
    leader_epoch: int = f("int32")
    lag: int = f("int64", "1+", default=-1)
    error_code: int = f("int16")
    error_message: str | None = f("string", null="0+", default=None)


@message
class DescribeShareGroupOffsetsResponseTopic:
    topic_name: str = f("string")
    topic_id: UUID = f("uuid")
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = f(
        [DescribeShareGroupOffsetsResponsePartition]
    )


@message
class DescribeShareGroupOffsetsResponseGroup:
    group_id: str = f("string")
    topics: list[DescribeShareGroupOffsetsResponseTopic] = f(
        [DescribeShareGroupOffsetsResponseTopic]
    )
    error_code: int = f("int16")
    error_message: str | None = f("string", null="0+", default=None)


@message
class DescribeShareGroupOffsetsResponse:
    throttle_time_ms: int = f("int32")
    groups: list[DescribeShareGroupOffsetsResponseGroup] = f(
        [DescribeShareGroupOffsetsResponseGroup]
    )
