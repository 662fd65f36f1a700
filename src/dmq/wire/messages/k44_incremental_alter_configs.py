"""IncrementalAlterConfigs (key 44, versions 0-1): sets, deletes, appends to and takes from single
configs.

Flexible from 1.
"""

from dmq.wire.schema import f, message


@message
class AlterableConfig:
    name: str = f("string")
    config_operation: int = f("int8")
    value: str | None = f("string", null="0+")


@message
class AlterConfigsResource:
    resource_type: int = f("int8")
    resource_name: str = f("string")
    configs: list[AlterableConfig] = f([AlterableConfig])


@message
class IncrementalAlterConfigsRequest:
    resources: list[AlterConfigsResource] = f([AlterConfigsResource])
    validate_only: bool = f("bool")


@message
class AlterConfigsResourceResponse:
    error_code: int = f("int16")
    error_message: str | None = f("string", null="0+")
    resource_type: int = f("int8")
    resource_name: str = f("string")


@message
class IncrementalAlterConfigsResponse:
    throttle_time_ms: int = f("int32")
    responses: list[AlterConfigsResourceResponse] = f([AlterConfigsResourceResponse])
