"""DescribeProducers (key 61, version 0): producers that wrote to partitions of late."""

from dmq.wire.schema import f, message


@message
class TopicRequest:
    name: str = f("string")
    partition_indexes: list[int] = f(["int32"])


@message
class DescribeProducersRequest:
    topics: list[TopicRequest] = f([TopicRequest])


@message
class ProducerState:
    producer_id: int = f("int64")
    producer_epoch: int = f("int32")
    last_sequence: int = f("int32", default=-1)
    last_timestamp: int = f("int64", default=-1)
    coordinator_epoch: int = f("int32")
    current_txn_start_offset: int = f("int64", default=-1)


@message
class PartitionResponse:
    partition_index: int = f("int32")
    error_code: int = f("int16")
    error_message: str | None = f("string", null="0+", default=None)
    active_producers: list[ProducerState] = f([ProducerState])


@message
class TopicResponse:
    name: str = f("string")
    partitions: list[PartitionResponse] = f([PartitionResponse])


@message
class DescribeProducersResponse:
    throttle_time_ms: int = f("int32")
    topics: list[TopicResponse] = f([TopicResponse])
