"""DeleteAcls (key 31, versions 1-3): removes the access rules that match filters.

1 patterns of names. 3 users as resources. Flexible from 2.
"""

from dmq.wire.schema import f, message


@message
class DeleteAclsFilter:
    resource_type_filter: int = f("int8")
    resource_name_filter: str | None = f("string", null="0+")
    pattern_type_filter: int = f("int8", default=3)
    principal_filter: str | None = f("string", null="0+")
    host_filter: str | None = f("string", null="0+")
    operation: int = f("int8")
    permission_type: int = f("int8")


@message
class DeleteAclsRequest:
    filters: list[DeleteAclsFilter] = f([DeleteAclsFilter])


@message
class DeleteAclsMatchingAcl:
    error_code: int = f("int16")
    error_message: str | None = f("string", null="0+")
    resource_type: int = f("int8")
    resource_name: str = f("string")
    pattern_type: int = f("int8", default=3)
    principal: str = f("string")
    host: str = f("string")
    operation: int = f("int8")
    permission_type: int = f("int8")


@message
class DeleteAclsFilterResult:
    error_code: int = f("int16")
    error_message: str | None = f("string", null="0+")
    matching_acls: list[DeleteAclsMatchingAcl] = f([DeleteAclsMatchingAcl])


@message
class DeleteAclsResponse:
    throttle_time_ms: int = f("int32")
    filter_results: list[DeleteAclsFilterResult] = f([DeleteAclsFilterResult])
