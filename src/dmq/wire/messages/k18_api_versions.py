"""ApiVersions (key 18, versions 0-4): which APIs and versions the broker speaks.

3 the client's name, features. 4 a feature may start at 0. The response header is always 0.
Flexible from 3.
"""

from dmq.wire.schema import f, message


@message
class ApiVersionsRequest:
    client_software_name: str = f("string", "3+")
    client_software_version: str = f("string", "3+")


@message
class ApiVersion:
    api_key: int = f("int16")
    min_version: int = f("int16")
    max_version: int = f("int16")


@message
class SupportedFeatureKey:
    name: str = f("string")
    min_version: int = f("int16")
    max_version: int = f("int16")


@message
class FinalizedFeatureKey:
    name: str = f("string")
    max_version_level: int = f("int16")
    min_version_level: int = f("int16")


@message
class ApiVersionsResponse:
    error_code: int = f("int16")
    api_keys: list[ApiVersion] = f([ApiVersion])
    throttle_time_ms: int = f("int32", "1+")
    supported_features: list[SupportedFeatureKey] = f([SupportedFeatureKey], "3+", tag=0)
    finalized_features_epoch: int = f("int64", "3+", tag=1, default=-1)
    finalized_features: list[FinalizedFeatureKey] = f([FinalizedFeatureKey], "3+", tag=2)
    zk_migration_ready: bool = f("bool", "3+", tag=3)
