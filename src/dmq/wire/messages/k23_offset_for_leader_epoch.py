"""OffsetForLeaderEpoch (key 23, versions 2-4): where an epoch ended in the leader's log.

3 who asks. Truncation is found by it (KIP-320). Flexible from 4.
"""

from dmq.wire.schema import f, message


@message
class OffsetForLeaderPartition:
    partition: int = f("int32")
    current_leader_epoch: int = f("int32", default=-1)
    leader_epoch: int = f("int32")


@message
class OffsetForLeaderTopic:
    topic: str = f("string")
    partitions: list[OffsetForLeaderPartition] = f([OffsetForLeaderPartition])


@message
class OffsetForLeaderEpochRequest:
    replica_id: int = f("int32", "3+", default=-2)
    topics: list[OffsetForLeaderTopic] = f([OffsetForLeaderTopic])


@message
class EpochEndOffset:
    error_code: int = f("int16")
    partition: int = f("int32")
    leader_epoch: int = f("int32", default=-1)
    end_offset: int = f("int64", default=-1)


@message
class OffsetForLeaderTopicResult:
    topic: str = f("string")
    partitions: list[EpochEndOffset] = f([EpochEndOffset])


@message
class OffsetForLeaderEpochResponse:
    throttle_time_ms: int = f("int32")
    topics: list[OffsetForLeaderTopicResult] = f([OffsetForLeaderTopicResult])
