"""ShareFetch (key 78, versions 1-2): takes records of a share group, and acknowledges (KIP-932).

2 how records are acquired (KIP-1206), renewed locks (KIP-1222).
"""

from collections.abc import Sized
from uuid import UUID

from dmq.wire.schema import f, message


@message
class AcknowledgementBatch:
    first_offset: int = f("int64")
    last_offset: int = f("int64")
    acknowledge_types: list[int] = f(["int8"])


@message
class FetchPartition:
    partition_index: int = f("int32")
    acknowledgement_batches: list[AcknowledgementBatch] = f([AcknowledgementBatch])


@message
class FetchTopic:
    topic_id: UUID = f("uuid")
    partitions: list[FetchPartition] = f([FetchPartition])


@message
class ForgottenTopic:
    topic_id: UUID = f("uuid")
    partitions: list[int] = f(["int32"])


@message
class ShareFetchRequest:
    group_id: str | None = f("string", null="0+", default=None)
    member_id: str | None = f("string", null="0+")
    share_session_epoch: int = f("int32")
    max_wait_ms: int = f("int32")
    min_bytes: int = f("int32")
    max_bytes: int = f("int32", default=2147483647)
    max_records: int = f("int32")
    batch_size: int = f("int32")
    share_acquire_mode: int = f("int8", "2+")
    is_renew_ack: bool = f("bool", "2+")
    topics: list[FetchTopic] = f([FetchTopic])
    forgotten_topics_data: list[ForgottenTopic] = f([ForgottenTopic])


@message
class LeaderIdAndEpoch:
    leader_id: int = f("int32")
    leader_epoch: int = f("int32")


@message
class AcquiredRecords:
    first_offset: int = f("int64")
    last_offset: int = f("int64")
    delivery_count: int = f("int16")


@message
class PartitionData:
    partition_index: int = f("int32")
    error_code: int = f("int16")
    error_message: str | None = f("string", null="0+", default=None)
    acknowledge_error_code: int = f("int16")
    acknowledge_error_message: str | None = f("string", null="0+", default=None)
    current_leader: LeaderIdAndEpoch = f(LeaderIdAndEpoch)
    records: Sized | None = f("records")
    acquired_records: list[AcquiredRecords] = f([AcquiredRecords])


@message
class ShareFetchableTopicResponse:
    topic_id: UUID = f("uuid")
    partitions: list[PartitionData] = f([PartitionData])


@message
class NodeEndpoint:
    node_id: int = f("int32")
    host: str = f("string")
    port: int = f("int32")
    rack: str | None = f("string", null="0+", default=None)


@message
class ShareFetchResponse:
    throttle_time_ms: int = f("int32")
    error_code: int = f("int16")
    error_message: str | None = f("string", null="0+", default=None)
    acquisition_lock_timeout_ms: int = f("int32")
    responses: list[ShareFetchableTopicResponse] = f([ShareFetchableTopicResponse])
    node_endpoints: list[NodeEndpoint] = f([NodeEndpoint])
