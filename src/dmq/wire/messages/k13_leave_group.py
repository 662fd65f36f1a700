"""LeaveGroup (key 13, versions 0-5): members leave a classic group.

3 several members, with their static ids. 5 the reason. Flexible from 4.
"""

from dmq.wire.schema import f, message


@message
class MemberIdentity:
    member_id: str = f("string")
    group_instance_id: str | None = f("string", null="0+", default=None)
    reason: str | None = f("string", "5+", null="0+", default=None)


@message
class LeaveGroupRequest:
    group_id: str = f("string")
    member_id: str = f("string", "0-2")
    members: list[MemberIdentity] = f([MemberIdentity], "3+")


@message
class MemberResponse:
    member_id: str = f("string")
    group_instance_id: str | None = f("string", null="0+")
    error_code: int = f("int16")


@message
class LeaveGroupResponse:
    throttle_time_ms: int = f("int32", "1+")
    error_code: int = f("int16")
    members: list[MemberResponse] = f([MemberResponse], "3+")
