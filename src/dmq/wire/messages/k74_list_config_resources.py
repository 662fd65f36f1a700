"""ListConfigResources (key 74, versions 0-1): resources that have configs.

0 client metrics only. 1 kinds of resource.
"""

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
