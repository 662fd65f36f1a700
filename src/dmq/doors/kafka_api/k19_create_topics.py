"""CreateTopics, versions 2 to 7: topics by number of partitions or by manual assignment.

Each topic succeeds or fails by itself. The answer leaves when the partitions take records, so the
request's timeout is not needed.

    4  -1 takes the broker's defaults     5  configs and counts in the answer     7  topic ids
"""

from functools import partial

from dmq.broker.admin import NewTopic, TopicCreated
from dmq.broker.answer import Answer
from dmq.broker.service import Service
from dmq.doors.call import Call
from dmq.errors import DmqError, ErrorCode
from dmq.wire.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

CONFIGS_SINCE = 5
TOLD_PER_PASS = 50
"""Topics per pass of the loop; each has dozens of configs. More than these are not encoded in it
either."""

Described = dict[tuple[tuple[str, str], ...], list[CreatableTopicConfigs]]
"""Configs of topics by what they set: most topics of a request set the same."""


def handle(service: Service, call: Call, request: CreateTopicsRequest) -> None:
    topics = [_new_topic(service, topic) for topic in request.topics]

    def on_created(answer: Answer[list[TopicCreated]]) -> None:
        try:
            created = answer.get()
        except DmqError as error:
            call.reply(_refusal(request, error))
            return
        tell = partial(_result, service, call, {})
        service.in_slices(created, tell, partial(_reply, call), step=TOLD_PER_PASS)

    service.admin.create_topics(topics, validate_only=request.validate_only).on_done(on_created)


def _refusal(request: CreateTopicsRequest, error: DmqError) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(topic.name, error_code=error.code, error_message=str(error))
            for topic in request.topics
        ]
    )


def _reply(call: Call, results: list[CreatableTopicResult]) -> None:
    reply = call.reply if len(results) <= TOLD_PER_PASS else call.reply_large
    reply(CreateTopicsResponse(topics=results))


def _new_topic(service: Service, topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        topic.name,
        service.admin.new_uuid(),
        topic.num_partitions,
        topic.replication_factor,
        tuple((each.partition_index, tuple(each.broker_ids)) for each in topic.assignments),
        tuple((each.name, each.value) for each in topic.configs),
    )


def _result(
    service: Service, call: Call, described: Described, created: TopicCreated
) -> CreatableTopicResult:
    if created.error is not None:
        return CreatableTopicResult(
            created.name,
            error_code=created.error.code,
            error_message=created.error.message,
        )
    configs: list[CreatableTopicConfigs] | None = None
    if call.version >= CONFIGS_SINCE:
        key = tuple(created.config.items())
        configs = described.get(key)
        if configs is None:
            configs = described[key] = _configs(service, created)
    return CreatableTopicResult(
        created.name,
        created.topic_id,
        ErrorCode.NONE,
        None,
        num_partitions=created.partitions,
        replication_factor=created.replication_factor,
        configs=configs,
    )


def _configs(service: Service, created: TopicCreated) -> list[CreatableTopicConfigs]:
    return [
        CreatableTopicConfigs(
            entry.name, entry.value, entry.read_only, entry.source, entry.is_sensitive
        )
        for entry in service.admin.describe_new_topic(created.config)
    ]
