"""Produce (key 0, versions 3-13): appends record batches to partitions.

5 log start offset. 8 errors by record. 10 the new leader in a refusal (KIP-951). 12 joins the
transaction by itself (KIP-890). 13 topic ids instead of names. Flexible from 9.
"""

from uuid import UUID

from dmq.wire.primitives import Buffer
from dmq.wire.schema import f, message


@message
class PartitionProduceData:
    index: int = f("int32")
    records: Buffer | None = f("records", null="0+")


@message
class TopicProduceData:
    name: str = f("string", "3-12")
    topic_id: UUID = f("uuid", "13+")
    partition_data: list[PartitionProduceData] = f([PartitionProduceData])


@message
class ProduceRequest:
    transactional_id: str | None = f("string", null="0+", default=None)
    acks: int = f("int16")
    timeout_ms: int = f("int32")
    topic_data: list[TopicProduceData] = f([TopicProduceData])


@message
class BatchIndexAndErrorMessage:
    batch_index: int = f("int32")
    batch_index_error_message: str | None = f("string", null="0+", default=None)


@message
class LeaderIdAndEpoch:
    leader_id: int = f("int32", default=-1)
    leader_epoch: int = f("int32", default=-1)


@message
class PartitionProduceResponse:
    index: int = f("int32")
    error_code: int = f("int16")
    base_offset: int = f("int64")
    log_append_time_ms: int = f("int64", default=-1)
    log_start_offset: int = f("int64", "5+", default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = f([BatchIndexAndErrorMessage], "8+")
    error_message: str | None = f("string", "8+", null="0+", default=None)
    current_leader: LeaderIdAndEpoch | None = f(LeaderIdAndEpoch, "10+", tag=0)


@message
class TopicProduceResponse:
    name: str = f("string", "3-12")
    topic_id: UUID = f("uuid", "13+")
    partition_responses: list[PartitionProduceResponse] = f([PartitionProduceResponse])


@message
class NodeEndpoint:
    node_id: int = f("int32")
    host: str = f("string")
    port: int = f("int32")
    rack: str | None = f("string", null="0+", default=None)


@message
class ProduceResponse:
    responses: list[TopicProduceResponse] = f([TopicProduceResponse])
    throttle_time_ms: int = f("int32")
    node_endpoints: list[NodeEndpoint] = f([NodeEndpoint], "10+", tag=0)
