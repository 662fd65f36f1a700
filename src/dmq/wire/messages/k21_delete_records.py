"""DeleteRecords (key 21, versions 0-2): moves the start of logs forward.

Flexible from 2.
"""

from dmq.wire.schema import f, message


@message
class DeleteRecordsPartition:
    partition_index: int = f("int32")
    offset: int = f("int64")


@message
class DeleteRecordsTopic:
    name: str = f("string")
    partitions: list[DeleteRecordsPartition] = f([DeleteRecordsPartition])


@message
class DeleteRecordsRequest:
    topics: list[DeleteRecordsTopic] = f([DeleteRecordsTopic])
    timeout_ms: int = f("int32")


@message
class DeleteRecordsPartitionResult:
    partition_index: int = f("int32")
    low_watermark: int = f("int64")
    error_code: int = f("int16")


@message
class DeleteRecordsTopicResult:
    name: str = f("string")
    partitions: list[DeleteRecordsPartitionResult] = f([DeleteRecordsPartitionResult])


@message
class DeleteRecordsResponse:
    throttle_time_ms: int = f("int32")
    topics: list[DeleteRecordsTopicResult] = f([DeleteRecordsTopicResult])
