"""UpdateFeatures (key 57, versions 0-2): raises and lowers the cluster's features.

1 dry run, kinds of downgrade. 2 one error for all.
"""

from dmq.wire.schema import f, message


@message
class FeatureUpdateKey:
    feature: str = f("string")
    max_version_level: int = f("int16")
    allow_downgrade: bool = f("bool", "0")
    upgrade_type: int = f("int8", "1+", default=1)


@message
class UpdateFeaturesRequest:
    timeout_ms: int = f("int32", default=60000)
    feature_updates: list[FeatureUpdateKey] = f([FeatureUpdateKey])
    validate_only: bool = f("bool", "1+")


@message
class UpdatableFeatureResult:
    feature: str = f("string")
    error_code: int = f("int16")
    error_message: str | None = f("string", null="0+")


@message
class UpdateFeaturesResponse:
    throttle_time_ms: int = f("int32")
    error_code: int = f("int16")
    error_message: str | None = f("string", null="0+")
    results: list[UpdatableFeatureResult] = f([UpdatableFeatureResult], "0-1")
