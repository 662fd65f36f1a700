"""ListGroups (key 16, versions 0-5): the groups of a broker.

4 filter by state. 5 filter by type (KIP-848). Flexible from 3.
"""

from dmq.wire.schema import f, message


@message
class ListGroupsRequest:
    states_filter: list[str] = f(["string"], "4+")
    types_filter: list[str] = f(["string"], "5+")


@message
class ListedGroup:
    group_id: str = f("string")
    protocol_type: str = f("string")
    group_state: str = f("string", "4+")
    group_type: str = f("string", "5+")


@message
class ListGroupsResponse:
    throttle_time_ms: int = f("int32", "1+")
    error_code: int = f("int16")
    groups: list[ListedGroup] = f([ListedGroup])
