"""DescribeClientQuotas (key 48, versions 0-1): quotas that match a filter.

Flexible from 1.
"""

from dmq.wire.schema import f, message


@message
class ComponentData:
    entity_type: str = f("string")
    match_type: int = f("int8")
    match: str | None = f("string", null="0+")


@message
class DescribeClientQuotasRequest:
    components: list[ComponentData] = f([ComponentData])
    strict: bool = f("bool")


@message
class EntityData:
    entity_type: str = f("string")
    entity_name: str | None = f("string", null="0+")


@message
class ValueData:
    key: str = f("string")
    value: float = f("float64")


@message
class EntryData:
    entity: list[EntityData] = f([EntityData])
    values: list[ValueData] = f([ValueData])


@message
class DescribeClientQuotasResponse:
    throttle_time_ms: int = f("int32")
    error_code: int = f("int16")
    error_message: str | None = f("string", null="0+")
    entries: list[EntryData] | None = f([EntryData], null="0+")
