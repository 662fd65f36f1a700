"""ShareGroupDescribe (key 77, version 1): members and state of share groups (KIP-932)."""

from uuid import UUID

from dmq.wire.schema import f, message


@message
class ShareGroupDescribeRequest:
    group_ids: list[str] = f(["string"])
    include_authorized_operations: bool = f("bool")


@message
class TopicPartitions:
    topic_id: UUID = f("uuid")
    topic_name: str = f("string")
    partitions: list[int] = f(["int32"])


@message
class Assignment:
    topic_partitions: list[TopicPartitions] = f([TopicPartitions])


@message
class Member:
    member_id: str = f("string")
    rack_id: str | None = f("string", null="0+", default=None)
    member_epoch: int = f("int32")
    client_id: str = f("string")
    client_host: str = f("string")
    subscribed_topic_names: list[str] = f(["string"])
    assignment: Assignment = f(Assignment)


@message
class DescribedGroup:
    error_code: int = f("int16")
    error_message: str | None = f("string", null="0+", default=None)
    group_id: str = f("string")
    group_state: str = f("string")
    group_epoch: int = f("int32")
    assignment_epoch: int = f("int32")
    assignor_name: str = f("string")
    members: list[Member] = f([Member])
    authorized_operations: int = f("int32", default=-2147483648)


@message
class ShareGroupDescribeResponse:
    throttle_time_ms: int = f("int32")
    groups: list[DescribedGroup] = f([DescribedGroup])
