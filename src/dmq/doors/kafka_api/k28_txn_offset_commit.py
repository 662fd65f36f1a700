"""TxnOffsetCommit, versions 0 to 5: offsets of a group that count when a transaction commits.

The group's coordinator writes them in the producer's name, once the transaction's coordinator has
vouched for it. Partitions that don't exist are refused here; the others go on together.

    2  leader epochs; COORDINATOR_LOAD_IN_PROGRESS is told as COORDINATOR_NOT_AVAILABLE before
    3  who the member is (KIP-447)
    4  TRANSACTION_ABORTABLE by its name; INVALID_TXN_STATE before
    5  joins the transaction by itself, without AddOffsetsToTxn (KIP-890)
"""

from dmq.broker.answer import Answer
from dmq.broker.coordinators import coordinators_code
from dmq.broker.coordinators import offset_commands as offsets
from dmq.broker.transacting import (
    CLIENT_ADDS,
    LEADER_ADDS,
    TransactingService,
    code_at_offsets,
)
from dmq.doors.call import Call
from dmq.errors import DmqError, ErrorCode, KafkaError
from dmq.wire.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

LOADING_SINCE = 2
ABORTABLE_SINCE = 4
JOINS_SINCE = 5

Asked = list[tuple[offsets.OffsetToCommit, TxnOffsetCommitResponsePartition]]


def handle(service: TransactingService, call: Call, request: TxnOffsetCommitRequest) -> None:
    asked: Asked = []
    topics = [_topic(service, topic, asked) for topic in request.topics]
    response = TxnOffsetCommitResponse(topics=topics)
    if topics and not asked:
        call.reply(response)
        return
    if not request.group_id:
        for _, partition in asked:
            partition.error_code = ErrorCode.INVALID_GROUP_ID
        call.reply(response)
        return

    def tell(codes: list[ErrorCode]) -> None:
        for (_, partition), code in zip(asked, codes, strict=True):
            is_new = code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and call.version < LOADING_SINCE
            partition.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE if is_new else code
        call.reply(response)

    def on_committed(answer: Answer[list[offsets.OffsetResult]]) -> None:
        try:
            tell([result.error for result in answer.get()])
        except DmqError as error:
            tell([error.code] * len(asked))

    def on_entered(answer: Answer[None]) -> None:
        try:
            answer.get()
        except DmqError as error:
            knows = call.version >= ABORTABLE_SINCE
            code = code_at_offsets(coordinators_code(error.code), knows_abortable=knows)
            tell([code] * len(asked))
            return
        service.groups.submit(request.group_id, _command(request, asked)).on_done(on_committed)

    _enter(service, call, request).on_done(on_entered)


def _enter(
    service: TransactingService, call: Call, request: TxnOffsetCommitRequest
) -> Answer[None]:
    try:
        partition = service.transactions.offsets_partition(request.group_id)
    except KafkaError as error:
        refused: Answer[None] = Answer()
        refused.fail(error)
        return refused
    return service.transactions.enter(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        partition,
        LEADER_ADDS if call.version >= JOINS_SINCE else CLIENT_ADDS,
    )


def _command(request: TxnOffsetCommitRequest, asked: Asked) -> offsets.CommitOffsetsInTransaction:
    return offsets.CommitOffsetsInTransaction(
        request.group_id,
        request.producer_id,
        request.producer_epoch,
        tuple(offset for offset, _ in asked),
        request.member_id,
        request.generation_id,
        request.group_instance_id,
    )


def _topic(
    service: TransactingService, topic: TxnOffsetCommitRequestTopic, asked: Asked
) -> TxnOffsetCommitResponseTopic:
    known = service.cluster.topics.get(topic.name)
    results: list[TxnOffsetCommitResponsePartition] = []
    for wanted in topic.partitions:
        index = wanted.partition_index
        result = TxnOffsetCommitResponsePartition(index)
        results.append(result)
        if known is None or not 0 <= index < len(known.partitions):
            result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            continue
        offset = offsets.OffsetToCommit(
            known.name,
            index,
            wanted.committed_offset,
            wanted.committed_leader_epoch,
            wanted.committed_metadata or "",
            known.topic_id,
        )
        asked.append((offset, result))
    return TxnOffsetCommitResponseTopic(topic.name, results)
