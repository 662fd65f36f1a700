"""ListPartitionReassignments (key 46, version 0): moves of replicas that are under way."""

from dmq.wire.schema import f, message


@message
class ListPartitionReassignmentsTopics:
    name: str = f("string")
    partition_indexes: list[int] = f(["int32"])


@message
class ListPartitionReassignmentsRequest:
    timeout_ms: int = f("int32", default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = f(
        [ListPartitionReassignmentsTopics], null="0+", default=None
    )


@message
class OngoingPartitionReassignment:
    partition_index: int = f("int32")
    replicas: list[int] = f(["int32"])
    adding_replicas: list[int] = f(["int32"])
    removing_replicas: list[int] = f(["int32"])


@message
class OngoingTopicReassignment:
    name: str = f("string")
    partitions: list[OngoingPartitionReassignment] = f([OngoingPartitionReassignment])


@message
class ListPartitionReassignmentsResponse:
    throttle_time_ms: int = f("int32")
    error_code: int = f("int16")
    error_message: str | None = f("string", null="0+")
    topics: list[OngoingTopicReassignment] = f([OngoingTopicReassignment])
