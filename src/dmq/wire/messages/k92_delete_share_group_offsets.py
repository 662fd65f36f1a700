"""DeleteShareGroupOffsets (key 92, version 0): forgets start offsets of a share group."""

from uuid import UUID

from dmq.wire.schema import f, message


@message
class DeleteShareGroupOffsetsRequestTopic:
    topic_name: str = f("string")


@message
class DeleteShareGroupOffsetsRequest:
    group_id: str = f("string")
    topics: list[DeleteShareGroupOffsetsRequestTopic] = f([DeleteShareGroupOffsetsRequestTopic])


@message
class DeleteShareGroupOffsetsResponseTopic:
    topic_name: str = f("string")
    topic_id: UUID = f("uuid")
    error_code: int = f("int16")
    error_message: str | None = f("string", null="0+", default=None)


@message
class DeleteShareGroupOffsetsResponse:
    throttle_time_ms: int = f("int32")
    error_code: int = f("int16")
    error_message: str | None = f("string", null="0+", default=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic] = f(
        [DeleteShareGroupOffsetsResponseTopic]
    )
