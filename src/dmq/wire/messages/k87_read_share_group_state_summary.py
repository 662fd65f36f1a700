"""ReadShareGroupStateSummary (key 87, versions 0-1): reads the start and epoch of a share group's
partitions, broker to broker.

1 how many deliveries were completed.
"""

from uuid import UUID

from dmq.wire.schema import f, message


@message
class PartitionData:
    partition: int = f("int32")
    leader_epoch: int = f("int32")


@message
class ReadStateSummaryData:
    topic_id: UUID = f("uuid")
    partitions: list[PartitionData] = f([PartitionData])


@message
class ReadShareGroupStateSummaryRequest:
    group_id: str = f("string")
    topics: list[ReadStateSummaryData] = f([ReadStateSummaryData])


@message
class PartitionResult:
    partition: int = f("int32")
    error_code: int = f("int16")
    error_message: str | None = f("string", null="0+", default=None)
    state_epoch: int = f("int32")
    leader_epoch: int = f("int32")
    start_offset: int = f("int64")
    delivery_complete_count: int = f("int32", "1+", default=-1)


@message
class ReadStateSummaryResult:
    topic_id: UUID = f("uuid")
    partitions: list[PartitionResult] = f([PartitionResult])


@message
class ReadShareGroupStateSummaryResponse:
    results: list[ReadStateSummaryResult] = f([ReadStateSummaryResult])
