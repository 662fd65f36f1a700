"""JoinGroup (key 11, versions 0-9): joins a classic group.

1 rebalance timeout. 4 a member id is given before joining. 5 static members. 7 the protocol's
type. 8 the reason. 9 whether the leader may skip assigning. Flexible from 6.
"""

from dmq.wire.schema import f, message


@message
class JoinGroupRequestProtocol:
    name: str = f("string")
    metadata: bytes = f("bytes")


@message
class JoinGroupRequest:
    group_id: str = f("string")
    session_timeout_ms: int = f("int32")
    rebalance_timeout_ms: int = f("int32", "1+", default=-1)
    member_id: str = f("string")
    group_instance_id: str | None = f("string", "5+", null="0+", default=None)
    protocol_type: str = f("string")
    protocols: list[JoinGroupRequestProtocol] = f([JoinGroupRequestProtocol])
    reason: str | None = f("string", "8+", null="0+", default=None)


@message
class JoinGroupResponseMember:
    member_id: str = f("string")
    group_instance_id: str | None = f("string", "5+", null="0+", default=None)
    metadata: bytes = f("bytes")


@message
class JoinGroupResponse:
    throttle_time_ms: int = f("int32", "2+")
    error_code: int = f("int16")
    generation_id: int = f("int32", default=-1)
    protocol_type: str | None = f("string", "7+", null="0+", default=None)
    protocol_name: str | None = f("string", null="7+")
    leader: str = f("string")
    skip_assignment: bool = f("bool", "9+")
    member_id: str = f("string")
    members: list[JoinGroupResponseMember] = f([JoinGroupResponseMember])
