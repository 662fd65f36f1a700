"""StreamsGroupDescribe (key 89, version 0): members, tasks and topology of streams groups
(KIP-1071).
"""

from dmq.wire.schema import f, message


@message
class StreamsGroupDescribeRequest:
    group_ids: list[str] = f(["string"])
    include_authorized_operations: bool = f("bool")


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
class Subtopology:
    subtopology_id: str = f("string")
    source_topics: list[str] = f(["string"])
    repartition_sink_topics: list[str] = f(["string"])
    state_changelog_topics: list[TopicInfo] = f([TopicInfo])
    repartition_source_topics: list[TopicInfo] = f([TopicInfo])


@message
class Topology:
    epoch: int = f("int32")
    subtopologies: list[Subtopology] | None = f([Subtopology], null="0+", default=None)


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
class TaskIds:
    subtopology_id: str = f("string")
    partitions: list[int] = f(["int32"])


@message
class Assignment:
    active_tasks: list[TaskIds] = f([TaskIds])
    standby_tasks: list[TaskIds] = f([TaskIds])
    warmup_tasks: list[TaskIds] = f([TaskIds])


@message
class Member:
    member_id: str = f("string")
    member_epoch: int = f("int32")
    instance_id: str | None = f("string", null="0+", default=None)
    rack_id: str | None = f("string", null="0+", default=None)
    client_id: str = f("string")
    client_host: str = f("string")
    topology_epoch: int = f("int32")
    process_id: str = f("string")
    user_endpoint: Endpoint | None = f(Endpoint, null="0+", default=None)
    client_tags: list[KeyValue] = f([KeyValue])
    task_offsets: list[TaskOffset] = f([TaskOffset])
    task_end_offsets: list[TaskOffset] = f([TaskOffset])
    assignment: Assignment = f(Assignment)
    target_assignment: Assignment = f(Assignment)
    is_classic: bool = f("bool")


@message
class DescribedGroup:
    error_code: int = f("int16")
    error_message: str | None = f("string", null="0+", default=None)
    group_id: str = f("string")
    group_state: str = f("string")
    group_epoch: int = f("int32")
    assignment_epoch: int = f("int32")
    topology: Topology | None = f(Topology, null="0+", default=None)
    members: list[Member] = f([Member])
    authorized_operations: int = f("int32", default=-2147483648)


@message
class StreamsGroupDescribeResponse:
    throttle_time_ms: int = f("int32")
    groups: list[DescribedGroup] = f([DescribedGroup])
