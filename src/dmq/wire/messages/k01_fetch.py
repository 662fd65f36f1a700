"""Fetch (key 1, versions 4-18): reads record batches from partitions.

5 log start offset. 7 sessions (KIP-227). 9 leader epochs. 11 racks, reads from followers. 12
diverging epochs. 13 topic ids instead of names. 15 the replica in a tag. 16 the new leader in a
refusal. 17 directory ids. 18 the follower's high watermark. Flexible from 12.
"""

from collections.abc import Sized
from uuid import UUID

from dmq.wire.schema import f, message


@message
class ReplicaState:
    replica_id: int = f("int32", default=-1)
    replica_epoch: int = f("int64", default=-1)


@message
class FetchPartition:
    partition: int = f("int32")
    current_leader_epoch: int = f("int32", "9+", default=-1)
    fetch_offset: int = f("int64")
    last_fetched_epoch: int = f("int32", "12+", default=-1)
    log_start_offset: int = f("int64", "5+", default=-1)
    partition_max_bytes: int = f("int32")
    replica_directory_id: UUID = f("uuid", "17+", tag=0)
    high_watermark: int = f("int64", "18+", tag=1, default=9223372036854775807)


@message
class FetchTopic:
    topic: str = f("string", "4-12")
    topic_id: UUID = f("uuid", "13+")
    partitions: list[FetchPartition] = f([FetchPartition])


@message
class ForgottenTopic:
    topic: str = f("string", "7-12")
    topic_id: UUID = f("uuid", "13+")
    partitions: list[int] = f(["int32"])


@message
class FetchRequest:
    cluster_id: str | None = f("string", "12+", null="0+", tag=0, default=None)
    replica_id: int = f("int32", "4-14", default=-1)
    replica_state: ReplicaState | None = f(ReplicaState, "15+", tag=1)
    max_wait_ms: int = f("int32")
    min_bytes: int = f("int32")
    max_bytes: int = f("int32", default=2147483647)
    isolation_level: int = f("int8")
    session_id: int = f("int32", "7+")
    session_epoch: int = f("int32", "7+", default=-1)
    topics: list[FetchTopic] = f([FetchTopic])
    forgotten_topics_data: list[ForgottenTopic] = f([ForgottenTopic], "7+")
    rack_id: str = f("string", "11+")


@message
class EpochEndOffset:
    epoch: int = f("int32", default=-1)
    end_offset: int = f("int64", default=-1)


@message
class LeaderIdAndEpoch:
    leader_id: int = f("int32", default=-1)
    leader_epoch: int = f("int32", default=-1)


@message
class SnapshotId:
    end_offset: int = f("int64", default=-1)
    epoch: int = f("int32", default=-1)


@message
class AbortedTransaction:
    producer_id: int = f("int64")
    first_offset: int = f("int64")


@message
class PartitionData:
    partition_index: int = f("int32")
    error_code: int = f("int16")
    high_watermark: int = f("int64")
    last_stable_offset: int = f("int64", default=-1)
    log_start_offset: int = f("int64", "5+", default=-1)
    diverging_epoch: EpochEndOffset | None = f(EpochEndOffset, "12+", tag=0)
    current_leader: LeaderIdAndEpoch | None = f(LeaderIdAndEpoch, "12+", tag=1)
    snapshot_id: SnapshotId | None = f(SnapshotId, "12+", tag=2)
    aborted_transactions: list[AbortedTransaction] | None = f([AbortedTransaction], null="0+")
    preferred_read_replica: int = f("int32", "11+", default=-1)
    records: Sized | None = f("records", null="0+")


@message
class FetchableTopicResponse:
    topic: str = f("string", "4-12")
    topic_id: UUID = f("uuid", "13+")
    partitions: list[PartitionData] = f([PartitionData])


@message
class NodeEndpoint:
    node_id: int = f("int32")
    host: str = f("string")
    port: int = f("int32")
    rack: str | None = f("string", null="0+", default=None)


@message
class FetchResponse:
    throttle_time_ms: int = f("int32")
    error_code: int = f("int16", "7+")
    session_id: int = f("int32", "7+")
    responses: list[FetchableTopicResponse] = f([FetchableTopicResponse])
    node_endpoints: list[NodeEndpoint] = f([NodeEndpoint], "16+", tag=0)
