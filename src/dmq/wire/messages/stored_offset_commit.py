"""Offsets that groups committed, as kept in `__consumer_offsets` (types 0 and 1).

Values: 1 when the offset expires. 3 leader epochs. 4 flexible, topic ids.
"""

from uuid import UUID

from dmq.wire.schema import f, message


@message
class LegacyOffsetCommitKey:
    group: str = f("string")
    topic: str = f("string")
    partition: int = f("int32")


@message
class LegacyOffsetCommitValue:
    offset: int = f("int64")
    metadata: str = f("string")
    commit_timestamp: int = f("int64")


@message
class OffsetCommitKey:
    group: str = f("string")
    topic: str = f("string")
    partition: int = f("int32")


@message
class OffsetCommitValue:
    offset: int = f("int64")
    leader_epoch: int = f("int32", "3+", default=-1)
    metadata: str = f("string")
    commit_timestamp: int = f("int64")
    expire_timestamp: int = f("int64", "1", default=-1)
    topic_id: UUID = f("uuid", "4+", tag=0)
