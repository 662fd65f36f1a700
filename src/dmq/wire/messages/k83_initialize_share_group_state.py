"""InitializeShareGroupState (key 83, version 0): starts the state of a share group's partitions,
broker to broker.
"""

from uuid import UUID

from dmq.wire.schema import f, message


@message
class PartitionData:
    partition: int = f("int32")
    state_epoch: int = f("int32")
    start_offset: int = f("int64")


@message
class InitializeStateData:
    topic_id: UUID = f("uuid")
    partitions: list[PartitionData] = f([PartitionData])


@message
class InitializeShareGroupStateRequest:
    group_id: str = f("string")
    topics: list[InitializeStateData] = f([InitializeStateData])


@message
class PartitionResult:
    partition: int = f("int32")
    error_code: int = f("int16")
    error_message: str | None = f("string", null="0+", default=None)


@message
class InitializeStateResult:
    topic_id: UUID = f("uuid")
    partitions: list[PartitionResult] = f([PartitionResult])


@message
class InitializeShareGroupStateResponse:
    results: list[InitializeStateResult] = f([InitializeStateResult])
