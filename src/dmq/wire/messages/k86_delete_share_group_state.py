"""DeleteShareGroupState (key 86, version 0): deletes the state of a share group's partitions,
broker to broker.
"""

from uuid import UUID

from dmq.wire.schema import f, message


@message
class PartitionData:
    partition: int = f("int32")


@message
class DeleteStateData:
    topic_id: UUID = f("uuid")
    partitions: list[PartitionData] = f([PartitionData])


@message
class DeleteShareGroupStateRequest:
    group_id: str = f("string")
    topics: list[DeleteStateData] = f([DeleteStateData])


@message
class PartitionResult:
    partition: int = f("int32")
    error_code: int = f("int16")
    error_message: str | None = f("string", null="0+", default=None)


@message
class DeleteStateResult:
    topic_id: UUID = f("uuid")
    partitions: list[PartitionResult] = f([PartitionResult])


@message
class DeleteShareGroupStateResponse:
    results: list[DeleteStateResult] = f([DeleteStateResult])
