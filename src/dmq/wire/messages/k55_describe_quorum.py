"""DescribeQuorum (key 55, versions 0-2): the metadata quorum: leader, voters, observers.

1 times of the last fetch. 2 directory ids and endpoints (KIP-853).
"""

from uuid import UUID

from dmq.wire.schema import f, message


@message
class PartitionData:
    partition_index: int = f("int32")


@message
class TopicData:
    topic_name: str = f("string")
    partitions: list[PartitionData] = f([PartitionData])


@message
class DescribeQuorumRequest:
    topics: list[TopicData] = f([TopicData])


@message
class ReplicaState:
    replica_id: int = f("int32")
    replica_directory_id: UUID = f("uuid", "2+")
    log_end_offset: int = f("int64")
    last_fetch_timestamp: int = f("int64", "1+", default=-1)
    last_caught_up_timestamp: int = f("int64", "1+", default=-1)


@message
class ResponsePartitionData:
    partition_index: int = f("int32")
    error_code: int = f("int16")
    error_message: str | None = f("string", "2+", null="0+")
    leader_id: int = f("int32")
    leader_epoch: int = f("int32")
    high_watermark: int = f("int64")
    current_voters: list[ReplicaState] = f([ReplicaState])
    observers: list[ReplicaState] = f([ReplicaState])


@message
class ResponseTopicData:
    topic_name: str = f("string")
    partitions: list[ResponsePartitionData] = f([ResponsePartitionData])


@message
class Listener:
    name: str = f("string")
    host: str = f("string")
    port: int = f("uint16")


@message
class Node:
    node_id: int = f("int32")
    listeners: list[Listener] = f([Listener])


@message
class DescribeQuorumResponse:
    error_code: int = f("int16")
    error_message: str | None = f("string", "2+", null="0+")
    topics: list[ResponseTopicData] = f([ResponseTopicData])
    nodes: list[Node] = f([Node], "2+")
