"""DescribeProducers, version 0: who wrote of late to partitions that this broker leads.

Shows what is committed: ids, epochs, last sequences and times, and where an open transaction begins.
`kafka-transactions find-hanging` looks here for transactions that nobody will end.
"""

from dmq.broker.answer import Answer, when_all
from dmq.broker.transacting import ProducerView, TransactingService
from dmq.doors.call import Call
from dmq.errors import DmqError, ErrorCode
from dmq.types import TopicPartition
from dmq.wire.messages.k61_describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

Views = Answer[list[ProducerView]]


def handle(service: TransactingService, call: Call, request: DescribeProducersRequest) -> None:
    asked: list[tuple[PartitionResponse, Views]] = []
    topics: list[TopicResponse] = []
    for topic in request.topics:
        partitions = [PartitionResponse(index) for index in topic.partition_indexes]
        topics.append(TopicResponse(topic.name, partitions))
        for partition in partitions:
            where = TopicPartition(topic.name, partition.partition_index)
            asked.append((partition, service.transactions.producers(where)))

    def all_told() -> None:
        for partition, answer in asked:
            _fill(partition, answer)
        call.reply(DescribeProducersResponse(topics=topics))

    when_all([answer for _, answer in asked], all_told)


def _fill(partition: PartitionResponse, answer: Views) -> None:
    try:
        views = answer.get()
    except DmqError as error:
        partition.error_code = error.code
        partition.error_message = str(error)
        return
    partition.error_code = ErrorCode.NONE
    partition.active_producers = [ProducerState(*view) for view in views]
