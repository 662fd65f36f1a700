"""ConsumerGroupDescribe (key 69, versions 0-1): members and state of consumer groups (KIP-848).

1 the kind of member.
"""

from uuid import UUID

from dmq.wire.schema import f, message


@message
class ConsumerGroupDescribeRequest:
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
    instance_id: str | None = f("string", null="0+", default=None)
    rack_id: str | None = f("string", null="0+", default=None)
    member_epoch: int = f("int32")
    client_id: str = f("string")
    client_host: str = f("string")
    subscribed_topic_names: list[str] = f(["string"])
    subscribed_topic_regex: str | None = f("string", null="0+", default=None)
    assignment: Assignment = f(Assignment)
    target_assignment: Assignment = f(Assignment)
    member_type: int = f("int8", "1+", default=-1)


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
class ConsumerGroupDescribeResponse:
    throttle_time_ms: int = f("int32")
    groups: list[DescribedGroup] = f([DescribedGroup])
