"""DeleteGroups (key 42, versions 0-2): deletes groups.

Flexible from 2.
"""

from dmq.wire.schema import f, message


@message
class DeleteGroupsRequest:
    groups_names: list[str] = f(["string"])


@message
class DeletableGroupResult:
    group_id: str = f("string")
    error_code: int = f("int16")


@message
class DeleteGroupsResponse:
    throttle_time_ms: int = f("int32")
    results: list[DeletableGroupResult] = f([DeletableGroupResult])
