"""AlterClientQuotas (key 49, versions 0-1): sets and removes quotas.

Flexible from 1.
"""

from dmq.wire.schema import f, message


@message
class EntityData:
    entity_type: str = f("string")
    entity_name: str | None = f("string", null="0+")


@message
class OpData:
    key: str = f("string")
    value: float = f("float64")
    remove: bool = f("bool")


@message
class EntryData:
    entity: list[EntityData] = f([EntityData])
    ops: list[OpData] = f([OpData])


@message
class AlterClientQuotasRequest:
    entries: list[EntryData] = f([EntryData])
    validate_only: bool = f("bool")


@message
class ResponseEntryData:
    error_code: int = f("int16")
    error_message: str | None = f("string", null="0+")
    entity: list[EntityData] = f([EntityData])


@message
class AlterClientQuotasResponse:
    throttle_time_ms: int = f("int32")
    entries: list[ResponseEntryData] = f([ResponseEntryData])
