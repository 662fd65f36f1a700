"""DeleteTopics, versions 1 to 6: by name or, from version 6 on, by id.

The answer leaves when the deletion is committed; the files go to quarantine first and are removed a while
later.
"""

from dmq.broker.admin import TopicDeleted
from dmq.broker.answer import Answer
from dmq.broker.service import Service
from dmq.doors.call import Call
from dmq.errors import DmqError, ErrorCode
from dmq.types import NIL_UUID
from dmq.wire.messages.k20_delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

BY_ID_SINCE = 6


def handle(service: Service, call: Call, request: DeleteTopicsRequest) -> None:
    if call.version >= BY_ID_SINCE:
        targets = [(topic.name, topic.topic_id) for topic in request.topics]
    else:
        targets = [(name, NIL_UUID) for name in request.topic_names]

    def on_deleted(answer: Answer[list[TopicDeleted]]) -> None:
        try:
            results = [_result(deleted) for deleted in answer.get()]
        except DmqError as error:
            results = [
                DeletableTopicResult(name, topic_id, error.code, str(error))
                for name, topic_id in targets
            ]
        call.reply(DeleteTopicsResponse(responses=results))

    service.admin.delete_topics(targets).on_done(on_deleted)


def _result(deleted: TopicDeleted) -> DeletableTopicResult:
    error = deleted.error
    if error is None:
        return DeletableTopicResult(deleted.name, deleted.topic_id, ErrorCode.NONE, None)
    return DeletableTopicResult(deleted.name, deleted.topic_id, error.code, error.message)
