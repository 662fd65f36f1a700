"""ListOffsets (key 2, versions 1-11): offsets of partitions by time.

2 isolation level. 4 leader epochs. 7 the record of the highest timestamp (-3). 8, 9, 11 tiers (-4,
-5, -6). 10 a timeout. Flexible from 6.
"""

from dmq.wire.schema import f, message


@message
class ListOffsetsPartition:
    partition_index: int = f("int32")
    current_leader_epoch: int = f("int32", "4+", default=-1)
    timestamp: int = f("int64")


@message
class ListOffsetsTopic:
    name: str = f("string")
    partitions: list[ListOffsetsPartition] = f([ListOffsetsPartition])


@message
class ListOffsetsRequest:
    replica_id: int = f("int32")
    isolation_level: int = f("int8", "2+")
    topics: list[ListOffsetsTopic] = f([ListOffsetsTopic])
    timeout_ms: int = f("int32", "10+")


@message
class ListOffsetsPartitionResponse:
    partition_index: int = f("int32")
    error_code: int = f("int16")
    timestamp: int = f("int64", default=-1)
    offset: int = f("int64", default=-1)
    leader_epoch: int = f("int32", "4+", default=-1)


@message
class ListOffsetsTopicResponse:
    name: str = f("string")
    partitions: list[ListOffsetsPartitionResponse] = f([ListOffsetsPartitionResponse])


@message
class ListOffsetsResponse:
    throttle_time_ms: int = f("int32", "2+")
    topics: list[ListOffsetsTopicResponse] = f([ListOffsetsTopicResponse])
