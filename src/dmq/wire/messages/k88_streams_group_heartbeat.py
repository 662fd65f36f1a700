"""StreamsGroupHeartbeat (key 88, version 0): a member of a streams group joins, is alive, leaves
(KIP-1071).
"""

from dmq.wire.schema import f, message


@message
class KeyValue:
    key: str = f("string")
    value: str = f("string")


@message
class TopicInfo:
    name: str = f("string")
    partitions: int = f("int32")
    replication_factor: int = f("int16")
    topic_configs: list[KeyValue] = f([KeyValue])


@message
class CopartitionGroup:
    source_topics: list[int] = f(["int16"])
    source_topic_regex: list[int] = f(["int16"])
    repartition_source_topics: list[int] = f(["int16"])


@message
class Subtopology:
    subtopology_id: str = f("string")
    source_topics: list[str] = f(["string"])
    source_topic_regex: list[str] = f(["string"])
    state_changelog_topics: list[TopicInfo] = f([TopicInfo])
    repartition_sink_topics: list[str] = f(["string"])
    repartition_source_topics: list[TopicInfo] = f([TopicInfo])
    copartition_groups: list[CopartitionGroup] = f([CopartitionGroup])


@message
class Topology:
    epoch: int = f("int32")
    subtopologies: list[Subtopology] = f([Subtopology])


@message
class TaskIds:
    subtopology_id: str = f("string")
    partitions: list[int] = f(["int32"])


@message
class Endpoint:
    host: str = f("string")
    port: int = f("uint16")


@message
class TaskOffset:
    subtopology_id: str = f("string")
    partition: int = f("int32")
    offset: int = f("int64")


@message
class StreamsGroupHeartbeatRequest:
    group_id: str = f("string")
    member_id: str = f("string")
    member_epoch: int = f("int32")
    endpoint_information_epoch: int = f("int32")
    instance_id: str | None = f("string", null="0+", default=None)
    rack_id: str | None = f("string", null="0+", default=None)
    rebalance_timeout_ms: int = f("int32", default=-1)
    topology: Topology | None = f(Topology, null="0+", default=None)
    active_tasks: list[TaskIds] | None = f([TaskIds], null="0+", default=None)
    standby_tasks: list[TaskIds] | None = f([TaskIds], null="0+", default=None)
    warmup_tasks: list[TaskIds] | None = f([TaskIds], null="0+", default=None)
    process_id: str | None = f("string", null="0+", default=None)
    user_endpoint: Endpoint | None = f(Endpoint, null="0+", default=None)
    client_tags: list[KeyValue] | None = f([KeyValue], null="0+", default=None)
    task_offsets: list[TaskOffset] | None = f([TaskOffset], null="0+", default=None)
    task_end_offsets: list[TaskOffset] | None = f([TaskOffset], null="0+", default=None)
    shutdown_application: bool = f("bool")


@message
class Status:
    status_code: int = f("int8")
    status_detail: str = f("string")


@message
class TopicPartition:
    topic: str = f("string")
    partitions: list[int] = f(["int32"])


@message
class EndpointToPartitions:
    user_endpoint: Endpoint = f(Endpoint)
    active_partitions: list[TopicPartition] = f([TopicPartition])
    standby_partitions: list[TopicPartition] = f([TopicPartition])


@message
class StreamsGroupHeartbeatResponse:
    throttle_time_ms: int = f("int32")
    error_code: int = f("int16")
    error_message: str | None = f("string", null="0+", default=None)
    member_id: str = f("string")
    member_epoch: int = f("int32")
    heartbeat_interval_ms: int = f("int32")
    acceptable_recovery_lag: int = f("int32")
    task_offset_interval_ms: int = f("int32")
    status: list[Status] | None = f([Status], null="0+")
    active_tasks: list[TaskIds] | None = f([TaskIds], null="0+", default=None)
    standby_tasks: list[TaskIds] | None = f([TaskIds], null="0+", default=None)
    warmup_tasks: list[TaskIds] | None = f([TaskIds], null="0+", default=None)
    endpoint_information_epoch: int = f("int32")
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = f(
        [EndpointToPartitions], null="0+", default=None
    )
