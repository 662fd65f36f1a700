"""Classic groups and their members, as kept in `__consumer_offsets` (type 2).

Values: 1 rebalance timeouts. 2 since when the state lasts. 3 static members. 4 flexible.
"""

from dmq.wire.schema import f, message


@message
class GroupMetadataKey:
    group: str = f("string")


@message
class MemberMetadata:
    member_id: str = f("string")
    group_instance_id: str | None = f("string", "3+", null="0+", default=None)
    client_id: str = f("string")
    client_host: str = f("string")
    rebalance_timeout: int = f("int32", "1+", default=-1)
    session_timeout: int = f("int32")
    subscription: bytes = f("bytes")
    assignment: bytes = f("bytes")


@message
class GroupMetadataValue:
    protocol_type: str = f("string")
    generation: int = f("int32")
    protocol: str | None = f("string", null="0+")
    leader: str | None = f("string", null="0+")
    current_state_timestamp: int = f("int64", "2+", default=-1)
    members: list[MemberMetadata] = f([MemberMetadata])
