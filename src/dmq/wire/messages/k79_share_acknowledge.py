"""ShareAcknowledge (key 79, versions 1-2): acknowledges records of a share group (KIP-932).

2 renewed locks (KIP-1222).
"""

from uuid import UUID

from dmq.wire.schema import f, message


@message
class AcknowledgementBatch:
    first_offset: int = f("int64")
    last_offset: int = f("int64")
    acknowledge_types: list[int] = f(["int8"])


@message
class AcknowledgePartition:
    partition_index: int = f("int32")
    acknowledgement_batches: list[AcknowledgementBatch] = f([AcknowledgementBatch])


@message
class AcknowledgeTopic:
    topic_id: UUID = f("uuid")
    partitions: list[AcknowledgePartition] = f([AcknowledgePartition])


@message
class ShareAcknowledgeRequest:
    group_id: str | None = f("string", null="0+", default=None)
    member_id: str | None = f("string", null="0+")
    share_session_epoch: int = f("int32")
    is_renew_ack: bool = f("bool", "2+")
    topics: list[AcknowledgeTopic] = f([AcknowledgeTopic])


@message
class LeaderIdAndEpoch:
    leader_id: int = f("int32")
    leader_epoch: int = f("int32")


@message
class PartitionData:
    partition_index: int = f("int32")
    error_code: int = f("int16")
    error_message: str | None = f("string", null="0+", default=None)
    current_leader: LeaderIdAndEpoch = f(LeaderIdAndEpoch)


@message
class ShareAcknowledgeTopicResponse:
    topic_id: UUID = f("uuid")
    partitions: list[PartitionData] = f([PartitionData])


@message
class NodeEndpoint:
    node_id: int = f("int32")
    host: str = f("string")
    port: int = f("int32")
    rack: str | None = f("string", null="0+", default=None)


@message
class ShareAcknowledgeResponse:
    throttle_time_ms: int = f("int32")
    error_code: int = f("int16")
    error_message: str | None = f("string", null="0+", default=None)
    acquisition_lock_timeout_ms: int = f("int32", "2+")
    responses: list[ShareAcknowledgeTopicResponse] = f([ShareAcknowledgeTopicResponse])
    node_endpoints: list[NodeEndpoint] = f([NodeEndpoint])
