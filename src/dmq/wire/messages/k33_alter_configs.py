"""AlterConfigs (key 33, versions 0-2): replaces configs as a whole (IncrementalAlterConfigs is the
better way).

Flexible from 2.
"""

from dmq.wire.schema import f, message


@message
class AlterableConfig:
    name: str = f("string")
    value: str | None = f("string", null="0+")


@message
class AlterConfigsResource:
    resource_type: int = f("int8")
    resource_name: str = f("string")
    configs: list[AlterableConfig] = f([AlterableConfig])


@message
class AlterConfigsRequest:
    resources: list[AlterConfigsResource] = f([AlterConfigsResource])
    validate_only: bool = f("bool")


@message
class AlterConfigsResourceResponse:
    error_code: int = f("int16")
    error_message: str | None = f("string", null="0+")
    resource_type: int = f("int8")
    resource_name: str = f("string")


@message
class AlterConfigsResponse:
    throttle_time_ms: int = f("int32")
    responses: list[AlterConfigsResourceResponse] = f([AlterConfigsResourceResponse])
