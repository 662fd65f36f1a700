"""CreateTopics (key 19, versions 2-7): creates topics.

4 -1 takes the broker's defaults. 5 configs and counts in the answer. 7 topic ids. Flexible from 5.
"""

from uuid import UUID

from dmq.wire.schema import f, message


@message
class CreatableReplicaAssignment:
    partition_index: int = f("int32")
    broker_ids: list[int] = f(["int32"])


@message
class CreatableTopicConfig:
    name: str = f("string")
    value: str | None = f("string", null="0+")


@message
class CreatableTopic:
    name: str = f("string")
    num_partitions: int = f("int32")
    replication_factor: int = f("int16")
    assignments: list[CreatableReplicaAssignment] = f([CreatableReplicaAssignment])
    configs: list[CreatableTopicConfig] = f([CreatableTopicConfig])


@message
class CreateTopicsRequest:
    topics: list[CreatableTopic] = f([CreatableTopic])
    timeout_ms: int = f("int32", default=60000)
    validate_only: bool = f("bool")


@message
class CreatableTopicConfigs:
    name: str = f("string")
    value: str | None = f("string", null="0+")
    read_only: bool = f("bool")
    config_source: int = f("int8", default=-1)
    is_sensitive: bool = f("bool")


@message
class CreatableTopicResult:
    name: str = f("string")
    topic_id: UUID = f("uuid", "7+")
    error_code: int = f("int16")
    error_message: str | None = f("string", null="0+")
    topic_config_error_code: int = f("int16", "5+", tag=0)
    num_partitions: int = f("int32", "5+", default=-1)
    replication_factor: int = f("int16", "5+", default=-1)
    configs: list[CreatableTopicConfigs] | None = f([CreatableTopicConfigs], "5+", null="0+")


@message
class CreateTopicsResponse:
    throttle_time_ms: int = f("int32")
    topics: list[CreatableTopicResult] = f([CreatableTopicResult])
