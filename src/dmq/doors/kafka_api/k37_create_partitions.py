"""CreatePartitions, versions 0 to 3: raise a topic's number of partitions.

Each topic succeeds or fails by itself; the answer leaves when the new partitions take records.
"""

from dmq.broker.admin import MorePartitions, PartitionsCreated
from dmq.broker.answer import Answer
from dmq.broker.service import Service
from dmq.doors.call import Call
from dmq.errors import DmqError, ErrorCode
from dmq.wire.messages.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


def handle(service: Service, call: Call, request: CreatePartitionsRequest) -> None:
    def on_created(answer: Answer[list[PartitionsCreated]]) -> None:
        try:
            results = [_result(created) for created in answer.get()]
        except DmqError as error:
            results = [
                CreatePartitionsTopicResult(topic.name, error.code, str(error))
                for topic in request.topics
            ]
        call.reply(CreatePartitionsResponse(results=results))

    service.admin.create_partitions(
        [_more(topic) for topic in request.topics], validate_only=request.validate_only
    ).on_done(on_created)


def _more(topic: CreatePartitionsTopic) -> MorePartitions:
    assignments = None
    if topic.assignments is not None:
        assignments = tuple(tuple(each.broker_ids) for each in topic.assignments)
    return MorePartitions(topic.name, topic.count, assignments)


def _result(created: PartitionsCreated) -> CreatePartitionsTopicResult:
    error = created.error
    if error is None:
        return CreatePartitionsTopicResult(created.name, ErrorCode.NONE)
    return CreatePartitionsTopicResult(created.name, error.code, error.message)
