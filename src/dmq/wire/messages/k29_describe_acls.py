"""DescribeAcls (key 29, versions 1-3): access rules that match a filter.

1 patterns of names. 3 users as resources. Flexible from 2.
"""

from dmq.wire.schema import f, message


@message
class DescribeAclsRequest:
    resource_type_filter: int = f("int8")
    resource_name_filter: str | None = f("string", null="0+")
    pattern_type_filter: int = f("int8", default=3)
    principal_filter: str | None = f("string", null="0+")
    host_filter: str | None = f("string", null="0+")
    operation: int = f("int8")
    permission_type: int = f("int8")


@message
class AclDescription:
    principal: str = f("string")
    host: str = f("string")
    operation: int = f("int8")
    permission_type: int = f("int8")


@message
class DescribeAclsResource:
    resource_type: int = f("int8")
    resource_name: str = f("string")
    pattern_type: int = f("int8", default=3)
    acls: list[AclDescription] = f([AclDescription])


@message
class DescribeAclsResponse:
    throttle_time_ms: int = f("int32")
    error_code: int = f("int16")
    error_message: str | None = f("string", null="0+")
    resources: list[DescribeAclsResource] = f([DescribeAclsResource])
