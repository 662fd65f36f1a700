"""ShareGroupHeartbeat (key 76, version 1): a member of a share group joins, is alive, leaves
(KIP-932).
"""

from uuid import UUID

from dmq.wire.schema import f, message


@message
class ShareGroupHeartbeatRequest:
    group_id: str = f("string")
    member_id: str = f("string")
    member_epoch: int = f("int32")
    rack_id: str | None = f("string", null="0+", default=None)
    subscribed_topic_names: list[str] | None = f(["string"], null="0+", default=None)


@message
class TopicPartitions:
    topic_id: UUID = f("uuid")
    partitions: list[int] = f(["int32"])


@message
class Assignment:
    topic_partitions: list[TopicPartitions] = f([TopicPartitions])


@message
class ShareGroupHeartbeatResponse:
    throttle_time_ms: int = f("int32")
    error_code: int = f("int16")
    error_message: str | None = f("string", null="0+", default=None)
    member_id: str | None = f("string", null="0+", default=None)
    member_epoch: int = f("int32")
    heartbeat_interval_ms: int = f("int32")
    assignment: Assignment | None = f(Assignment, null="0+", default=None)
