"""CreateAcls (key 30, versions 1-3): adds access rules.

1 patterns of names. 3 users as resources. Flexible from 2.
"""

from dmq.wire.schema import f, message


@message
class AclCreation:
    resource_type: int = f("int8")
    resource_name: str = f("string")
    resource_pattern_type: int = f("int8", default=3)
    principal: str = f("string")
    host: str = f("string")
    operation: int = f("int8")
    permission_type: int = f("int8")


@message
class CreateAclsRequest:
    creations: list[AclCreation] = f([AclCreation])


@message
class AclCreationResult:
    error_code: int = f("int16")
    error_message: str | None = f("string", null="0+")


@message
class CreateAclsResponse:
    throttle_time_ms: int = f("int32")
    results: list[AclCreationResult] = f([AclCreationResult])
