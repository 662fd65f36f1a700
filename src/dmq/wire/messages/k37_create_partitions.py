"""CreatePartitions (key 37, versions 0-3): adds partitions to topics.

3 a throttled request is told so by an error (KIP-599). Flexible from 2.
"""

from dmq.wire.schema import f, message


@message
class CreatePartitionsAssignment:
    broker_ids: list[int] = f(["int32"])


@message
class CreatePartitionsTopic:
    name: str = f("string")
    count: int = f("int32")
    assignments: list[CreatePartitionsAssignment] | None = f(
        [CreatePartitionsAssignment], null="0+"
    )


@message
class CreatePartitionsRequest:
    topics: list[CreatePartitionsTopic] = f([CreatePartitionsTopic])
    timeout_ms: int = f("int32")
    validate_only: bool = f("bool")


@message
class CreatePartitionsTopicResult:
    name: str = f("string")
    error_code: int = f("int16")
    error_message: str | None = f("string", null="0+", default=None)


@message
class CreatePartitionsResponse:
    throttle_time_ms: int = f("int32")
    results: list[CreatePartitionsTopicResult] = f([CreatePartitionsTopicResult])
