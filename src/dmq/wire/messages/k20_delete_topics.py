"""DeleteTopics (key 20, versions 1-6): deletes topics.

5 an error's message. 6 topics by id. Flexible from 4.
"""

from uuid import UUID

from dmq.wire.schema import f, message


@message
class DeleteTopicState:
    name: str | None = f("string", null="0+", default=None)
    topic_id: UUID = f("uuid")


@message
class DeleteTopicsRequest:
    topics: list[DeleteTopicState] = f([DeleteTopicState], "6+")
    topic_names: list[str] = f(["string"], "1-5")
    timeout_ms: int = f("int32")


@message
class DeletableTopicResult:
    name: str | None = f("string", null="6+")
    topic_id: UUID = f("uuid", "6+")
    error_code: int = f("int16")
    error_message: str | None = f("string", "5+", null="0+", default=None)


@message
class DeleteTopicsResponse:
    throttle_time_ms: int = f("int32")
    responses: list[DeletableTopicResult] = f([DeletableTopicResult])
