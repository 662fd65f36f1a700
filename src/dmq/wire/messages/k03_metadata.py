"""Metadata (key 3, versions 0-13): brokers, topics, partitions and who leads them.

1 null asks for all topics, 0 says so by an empty list. 4 auto-creation. 5 offline replicas. 7
leader epochs. 8 operations allowed. 10 topic ids. 12 topics by id. 13 an error of the whole.
Flexible from 9.
"""

from uuid import UUID

from dmq.wire.schema import f, message


@message
class MetadataRequestTopic:
    topic_id: UUID = f("uuid", "10+")
    name: str | None = f("string", null="10+")


@message
class MetadataRequest:
    topics: list[MetadataRequestTopic] | None = f([MetadataRequestTopic], null="1+")
    allow_auto_topic_creation: bool = f("bool", "4+", default=True)
    include_cluster_authorized_operations: bool = f("bool", "8-10")
    include_topic_authorized_operations: bool = f("bool", "8+")


@message
class MetadataResponseBroker:
    node_id: int = f("int32")
    host: str = f("string")
    port: int = f("int32")
    rack: str | None = f("string", "1+", null="0+", default=None)


@message
class MetadataResponsePartition:
    error_code: int = f("int16")
    partition_index: int = f("int32")
    leader_id: int = f("int32")
    leader_epoch: int = f("int32", "7+", default=-1)
    replica_nodes: list[int] = f(["int32"])
    isr_nodes: list[int] = f(["int32"])
    offline_replicas: list[int] = f(["int32"], "5+")


@message
class MetadataResponseTopic:
    error_code: int = f("int16")
    name: str | None = f("string", null="12+")
    topic_id: UUID = f("uuid", "10+")
    is_internal: bool = f("bool", "1+")
    partitions: list[MetadataResponsePartition] = f([MetadataResponsePartition])
    topic_authorized_operations: int = f("int32", "8+", default=-2147483648)


@message
class MetadataResponse:
    throttle_time_ms: int = f("int32", "3+")
    brokers: list[MetadataResponseBroker] = f([MetadataResponseBroker])
    cluster_id: str | None = f("string", "2+", null="0+", default=None)
    controller_id: int = f("int32", "1+", default=-1)
    topics: list[MetadataResponseTopic] = f([MetadataResponseTopic])
    cluster_authorized_operations: int = f("int32", "8-10", default=-2147483648)
    error_code: int = f("int16", "13+")
