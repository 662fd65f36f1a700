"""DescribeGroups (key 15, versions 0-6): members and state of classic groups.

3 operations allowed. 4 static members. 6 a group that does not exist is an error, with a message
(KIP-1043). Flexible from 5.
"""

from dmq.wire.schema import f, message


@message
class DescribeGroupsRequest:
    groups: list[str] = f(["string"])
    include_authorized_operations: bool = f("bool", "3+")


@message
class DescribedGroupMember:
    member_id: str = f("string")
    group_instance_id: str | None = f("string", "4+", null="0+", default=None)
    client_id: str = f("string")
    client_host: str = f("string")
    member_metadata: bytes = f("bytes")
    member_assignment: bytes = f("bytes")


@message
class DescribedGroup:
    error_code: int = f("int16")
    error_message: str | None = f("string", "6+", null="0+", default=None)
    group_id: str = f("string")
    group_state: str = f("string")
    protocol_type: str = f("string")
    protocol_data: str = f("string")
    members: list[DescribedGroupMember] = f([DescribedGroupMember])
    authorized_operations: int = f("int32", "3+", default=-2147483648)


@message
class DescribeGroupsResponse:
    throttle_time_ms: int = f("int32", "1+")
    groups: list[DescribedGroup] = f([DescribedGroup])
