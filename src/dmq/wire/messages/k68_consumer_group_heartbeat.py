"""ConsumerGroupHeartbeat (key 68, versions 0-1): a member of a consumer group joins, is alive,
leaves (KIP-848).

1 topics by a pattern; the member makes its own id.
"""

from uuid import UUID

from dmq.wire.schema import f, message


@message
class TopicPartitions:
    topic_id: UUID = f("uuid")
    partitions: list[int] = f(["int32"])


@message
class ConsumerGroupHeartbeatRequest:
    group_id: str = f("string")
    member_id: str = f("string")
    member_epoch: int = f("int32")
    instance_id: str | None = f("string", null="0+", default=None)
    rack_id: str | None = f("string", null="0+", default=None)
    rebalance_timeout_ms: int = f("int32", default=-1)
    subscribed_topic_names: list[str] | None = f(["string"], null="0+", default=None)
    subscribed_topic_regex: str | None = f("string", "1+", null="0+", default=None)
    server_assignor: str | None = f("string", null="0+", default=None)
    topic_partitions: list[TopicPartitions] | None = f([TopicPartitions], null="0+", default=None)


@message
class Assignment:
    topic_partitions: list[TopicPartitions] = f([TopicPartitions])


@message
class ConsumerGroupHeartbeatResponse:
    throttle_time_ms: int = f("int32")
    error_code: int = f("int16")
    error_message: str | None = f("string", null="0+", default=None)
    member_id: str | None = f("string", null="0+", default=None)
    member_epoch: int = f("int32")
    heartbeat_interval_ms: int = f("int32")
    assignment: Assignment | None = f(Assignment, null="0+", default=None)
