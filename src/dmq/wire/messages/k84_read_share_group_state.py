"""ReadShareGroupState (key 84, version 0): reads the state of a share group's partitions, broker
to broker.
"""

from uuid import UUID

from dmq.wire.schema import f, message


@message
class PartitionData:
    partition: int = f("int32")
    leader_epoch: int = f("int32")


@message
class ReadStateData:
    topic_id: UUID = f("uuid")
    partitions: list[PartitionData] = f([PartitionData])


@message
class ReadShareGroupStateRequest:
    group_id: str = f("string")
    topics: list[ReadStateData] = f([ReadStateData])


@message
class StateBatch:
    first_offset: int = f("int64")
    last_offset: int = f("int64")
    delivery_state: int = f("int8")
    delivery_count: int = f("int16")


@message
class PartitionResult:
    partition: int = f("int32")
    error_code: int = f("int16")
    error_message: str | None = f("string", null="0+", default=None)
    state_epoch: int = f("int32")
    start_offset: int = f("int64")
    state_batches: list[StateBatch] = f([StateBatch])


@message
class ReadStateResult:
    topic_id: UUID = f("uuid")
    partitions: list[PartitionResult] = f([PartitionResult])


@message
class ReadShareGroupStateResponse:
    results: list[ReadStateResult] = f([ReadStateResult])
