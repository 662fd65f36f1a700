"""ListConfigResources (key 74)."""

from dmq.wire.schema import f, message


@message
class ListConfigResourcesRequest:
    resource_types: list[int] = f(["int8"], "1+")


@message
class ConfigResource:
    resource_name: str = f("string")
    resource_type: int = f("int8", "1+", default=16)


@message
class ListConfigResourcesResponse:
    throttle_time_ms: int = f("int32")
    error_code: int = f("int16")
    config_resources: list[ConfigResource] = f([ConfigResource])
