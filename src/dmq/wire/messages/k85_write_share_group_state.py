"""WriteShareGroupState (key 85, versions 0-1): writes the state of a share group's partitions,
broker to broker.

1 how many deliveries were completed.
"""

from uuid import UUID

from dmq.wire.schema import f, message


@message
class StateBatch:
    first_offset: int = f("int64")
    last_offset: int = f("int64")
    delivery_state: int = f("int8")
    delivery_count: int = f("int16")


@message
class PartitionData:
    partition: int = f("int32")
    state_epoch: int = f("int32")
    leader_epoch: int = f("int32")
    start_offset: int = f("int64")
    delivery_complete_count: int = f("int32", "1+", default=-1)
    state_batches: list[StateBatch] = f([StateBatch])


@message
class WriteStateData:
    topic_id: UUID = f("uuid")
    partitions: list[PartitionData] = f([PartitionData])


@message
class WriteShareGroupStateRequest:
    group_id: str = f("string")
    topics: list[WriteStateData] = f([WriteStateData])


@message
class PartitionResult:
    partition: int = f("int32")
    error_code: int = f("int16")
    error_message: str | None = f("string", null="0+", default=None)


@message
class WriteStateResult:
    topic_id: UUID = f("uuid")
    partitions: list[PartitionResult] = f([PartitionResult])


@message
class WriteShareGroupStateResponse:
    results: list[WriteStateResult] = f([WriteStateResult])
