"""SyncGroup (key 14, versions 0-5): assignments of a classic group, from the leader to all.

3 static members. 5 the protocol's type and name. Flexible from 4.
"""

from dmq.wire.schema import f, message


@message
class SyncGroupRequestAssignment:
    member_id: str = f("string")
    assignment: bytes = f("bytes")


@message
class SyncGroupRequest:
    group_id: str = f("string")
    generation_id: int = f("int32")
    member_id: str = f("string")
    group_instance_id: str | None = f("string", "3+", null="0+", default=None)
    protocol_type: str | None = f("string", "5+", null="0+", default=None)
    protocol_name: str | None = f("string", "5+", null="0+", default=None)
    assignments: list[SyncGroupRequestAssignment] = f([SyncGroupRequestAssignment])


@message
class SyncGroupResponse:
    throttle_time_ms: int = f("int32", "1+")
    error_code: int = f("int16")
    protocol_type: str | None = f("string", "5+", null="0+", default=None)
    protocol_name: str | None = f("string", "5+", null="0+", default=None)
    assignment: bytes = f("bytes")
