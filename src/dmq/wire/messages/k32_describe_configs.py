"""DescribeConfigs (key 32, versions 1-4): configs of topics, brokers and more.

1 synonyms and sources. 3 types and documentation. Flexible from 4.
"""

from dmq.wire.schema import f, message


@message
class DescribeConfigsResource:
    resource_type: int = f("int8")
    resource_name: str = f("string")
    configuration_keys: list[str] | None = f(["string"], null="0+")


@message
class DescribeConfigsRequest:
    resources: list[DescribeConfigsResource] = f([DescribeConfigsResource])
    include_synonyms: bool = f("bool")
    include_documentation: bool = f("bool", "3+")


@message
class DescribeConfigsSynonym:
    name: str = f("string")
    value: str | None = f("string", null="0+")
    source: int = f("int8")


@message
class DescribeConfigsResourceResult:
    name: str = f("string")
    value: str | None = f("string", null="0+")
    read_only: bool = f("bool")
    config_source: int = f("int8", default=-1)
    is_sensitive: bool = f("bool")
    synonyms: list[DescribeConfigsSynonym] = f([DescribeConfigsSynonym])
    config_type: int = f("int8", "3+")
    documentation: str | None = f("string", "3+", null="0+")


@message
class DescribeConfigsResult:
    error_code: int = f("int16")
    error_message: str | None = f("string", null="0+")
    resource_type: int = f("int8")
    resource_name: str = f("string")
    configs: list[DescribeConfigsResourceResult] = f([DescribeConfigsResourceResult])


@message
class DescribeConfigsResponse:
    throttle_time_ms: int = f("int32")
    results: list[DescribeConfigsResult] = f([DescribeConfigsResult])
