"""WriteTxnMarkers, versions 1 and 2: the ends of transactions, for partitions that this broker leads.

Brokers send it, and `kafka-transactions abort` to free a partition from a transaction that hangs. The
answer leaves when all markers are committed, or refused; each partition has its own code.

    2  the transaction's version: from 2 on a late marker can be told
"""

from dmq.broker.answer import Answer, when_all
from dmq.broker.transacting import CLIENT_ADDS, TransactingService
from dmq.broker.transacting import commands as transactions
from dmq.doors.call import Call
from dmq.errors import DmqError, ErrorCode
from dmq.wire.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

Written = list[tuple[WritableTxnMarkerPartitionResult, Answer[None]]]


def handle(service: TransactingService, call: Call, request: WriteTxnMarkersRequest) -> None:
    written: Written = []
    results = [_write(service, marker, written) for marker in request.markers]

    def all_written() -> None:
        for result, answer in written:
            result.error_code = _code_of(answer)
        call.reply(WriteTxnMarkersResponse(markers=results))

    when_all([answer for _, answer in written], all_written)


def _write(
    service: TransactingService, marker: WritableTxnMarker, written: Written
) -> WritableTxnMarkerResult:
    topics = [_write_topic(service, marker, topic, written) for topic in marker.topics]
    return WritableTxnMarkerResult(marker.producer_id, topics)


def _write_topic(
    service: TransactingService,
    marker: WritableTxnMarker,
    topic: WritableTxnMarkerTopic,
    written: Written,
) -> WritableTxnMarkerTopicResult:
    results: list[WritableTxnMarkerPartitionResult] = []
    for index in topic.partition_indexes:
        result = WritableTxnMarkerPartitionResult(index)
        results.append(result)
        ended = transactions.TxnMarker(
            topic.name,
            index,
            marker.producer_id,
            marker.producer_epoch,
            marker.transaction_result,
            marker.coordinator_epoch,
            max(marker.transaction_version, CLIENT_ADDS),
        )
        written.append((result, service.transactions.write_marker(ended)))
    return WritableTxnMarkerTopicResult(topic.name, results)


def _code_of(answer: Answer[None]) -> ErrorCode:
    try:
        answer.get()
    except DmqError as error:
        return error.code
    return ErrorCode.NONE
