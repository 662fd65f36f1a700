"""DeleteRecords, versions 0 to 2: move the start of the log forward.

Offset -1 means the high watermark. The answer leaves when the new start is durable; the files go
when no record in them is left.
"""

from dmq.broker.answer import Answer, when_all
from dmq.broker.internal_topics import check_is_clients
from dmq.broker.service import Service
from dmq.doors.call import Call
from dmq.errors import DmqError
from dmq.types import NIL_UUID
from dmq.wire.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)


def handle(service: Service, call: Call, request: DeleteRecordsRequest) -> None:
    topics: list[DeleteRecordsTopicResult] = []
    answers: list[Answer[int]] = []
    for topic in request.topics:
        results: list[DeleteRecordsPartitionResult] = []
        for wanted in topic.partitions:
            result = DeleteRecordsPartitionResult(wanted.partition_index, -1)
            results.append(result)
            answers.append(_delete(service, topic.name, wanted, result))
        topics.append(DeleteRecordsTopicResult(topic.name, results))
    when_all(answers, lambda: call.reply(DeleteRecordsResponse(topics=topics)))


def _delete(
    service: Service,
    topic: str,
    wanted: DeleteRecordsPartition,
    result: DeleteRecordsPartitionResult,
) -> Answer[int]:
    def on_deleted(answer: Answer[int]) -> None:
        try:
            result.low_watermark = answer.get()
        except DmqError as error:
            result.error_code = error.code

    try:
        partition = service.find(topic, NIL_UUID, wanted.partition_index)
        check_is_clients(topic)
        answer = service.delete_records(partition, wanted.offset)
    except DmqError as error:
        result.error_code = error.code
        return Answer.of(-1)
    answer.on_done(on_deleted)
    return answer
