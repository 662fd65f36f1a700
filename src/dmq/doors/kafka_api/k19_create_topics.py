"""CreateTopics, versions 2 to 7: topics by number of partitions or by manual assignment.

Each topic succeeds or fails by itself. The answer leaves when the partitions take records, so the
request's timeout is not needed.

    4  -1 takes the broker's defaults     5  configs and counts in the answer     7  topic ids
"""

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
TOPIC = 2


def handle(service: Service, call: Call, request: CreateTopicsRequest) -> None:
    topics = [_new_topic(service, topic) for topic in request.topics]

    def on_created(answer: Answer[list[TopicCreated]]) -> None:
        try:
            results = [_result(service, call, created) for created in answer.get()]
        except DmqError as error:
            results = [
                CreatableTopicResult(
                    topic.name, error_code=error.code, error_message=str(error), configs=None
                )
                for topic in request.topics
            ]
        call.reply(CreateTopicsResponse(topics=results))

    service.admin.create_topics(topics, validate_only=request.validate_only).on_done(on_created)


def _new_topic(service: Service, topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        topic.name,
        service.admin.new_uuid(),
        topic.num_partitions,
        topic.replication_factor,
        tuple((each.partition_index, tuple(each.broker_ids)) for each in topic.assignments),
        tuple((each.name, each.value) for each in topic.configs),
    )


def _result(service: Service, call: Call, created: TopicCreated) -> CreatableTopicResult:
    if created.error is not None:
        return CreatableTopicResult(
            created.name,
            error_code=created.error.code,
            error_message=created.error.message,
            configs=None,
        )
    configs: list[CreatableTopicConfigs] | None = None
    if call.version >= CONFIGS_SINCE:
        entries = service.admin.describe_new_topic(created.config)
        configs = [
            CreatableTopicConfigs(
                entry.name, entry.value, entry.read_only, entry.source, entry.is_sensitive
            )
            for entry in entries
        ]
    return CreatableTopicResult(
        created.name,
        created.topic_id,
        ErrorCode.NONE,
        None,
        num_partitions=created.partitions,
        replication_factor=created.replication_factor,
        configs=configs,
    )
