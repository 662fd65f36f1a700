"""AddPartitionsToTxn, versions 0 to 5: partitions that a transaction writes to.

Clients (up to 3) add for one transaction. Brokers (4, 5) add or only ask for several; each
transaction succeeds or fails by itself. Within one, a partition that does not exist, or that is a
coordinator's, fails them all: the others are OPERATION_NOT_ATTEMPTED.

    2  PRODUCER_FENCED by its name; INVALID_PRODUCER_EPOCH before    5  TRANSACTION_ABORTABLE by its
       name; INVALID_TXN_STATE before
"""

from collections.abc import Mapping
from functools import partial

from dmq.broker.answer import Answer
from dmq.broker.internal_topics import INTERNAL_TOPICS
from dmq.broker.transacting import CLIENT_ADDS, LEADER_ADDS, TransactingService
from dmq.broker.transacting import commands as transactions
from dmq.doors.call import Call
from dmq.errors import DmqError, ErrorCode
from dmq.types import TopicPartition
from dmq.wire.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

FENCED_SINCE = 2
BROKERS_SINCE = 4
ABORTABLE_SINCE = 5

Codes = Mapping[TopicPartition, ErrorCode]


def handle(service: TransactingService, call: Call, request: AddPartitionsToTxnRequest) -> None:
    asked = request.transactions
    if call.version < BROKERS_SINCE:
        asked = [
            AddPartitionsToTxnTransaction(
                request.v3_and_below_transactional_id,
                request.v3_and_below_producer_id,
                request.v3_and_below_producer_epoch,
                False,
                request.v3_and_below_topics,
            )
        ]
    results: list[AddPartitionsToTxnResult | None] = [None] * len(asked)
    left = len(asked) + 1

    def one_done() -> None:
        nonlocal left
        left -= 1
        if not left:
            _reply(call, [result for result in results if result is not None])

    def on_codes(at: int, codes: Codes) -> None:
        transaction = asked[at]
        topics = [_result(topic, codes, call.version) for topic in transaction.topics]
        results[at] = AddPartitionsToTxnResult(transaction.transactional_id, topics)
        one_done()

    for at, transaction in enumerate(asked):
        _ask(service, call, transaction).on_done(
            lambda answer, at=at: on_codes(at, answer.get())  # type: ignore[misc]
        )
    one_done()


def _reply(call: Call, results: list[AddPartitionsToTxnResult]) -> None:
    if call.version < BROKERS_SINCE:
        topics = results[0].topic_results
        call.reply(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics))
    else:
        call.reply(AddPartitionsToTxnResponse(results_by_transaction=results))


def _ask(
    service: TransactingService, call: Call, transaction: AddPartitionsToTxnTransaction
) -> Answer[Codes]:
    """A code for each partition."""
    partitions = [
        TopicPartition(topic.name, index)
        for topic in transaction.topics
        for index in topic.partitions
    ]
    refused = _refused(service, partitions, of_client=call.version < BROKERS_SINCE)
    if refused:
        return Answer.of(dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED) | refused)
    name, wanted = transaction.transactional_id, frozenset(partitions)
    who = name, transaction.producer_id, transaction.producer_epoch
    told: Answer[Codes] = Answer()
    if transaction.verify_only:
        verify = transactions.VerifyPartitions(*who, wanted)
        service.transactions.submit(name, verify).on_done(partial(_verified, told, partitions))
        return told
    version = CLIENT_ADDS if call.version < BROKERS_SINCE else LEADER_ADDS
    add = transactions.AddPartitions(*who, wanted, version)
    service.transactions.submit(name, add).on_done(partial(_added, told, partitions))
    return told


def _added(told: Answer[Codes], partitions: list[TopicPartition], answer: Answer[None]) -> None:
    code = ErrorCode.NONE
    try:
        answer.get()
    except DmqError as error:
        code = error.code
    told.resolve(dict.fromkeys(partitions, code))


def _verified(
    told: Answer[Codes],
    partitions: list[TopicPartition],
    answer: Answer[dict[TopicPartition, ErrorCode]],
) -> None:
    try:
        codes = answer.get()
    except DmqError as error:
        codes = dict.fromkeys(partitions, error.code)
    told.resolve(codes)


def _refused(
    service: TransactingService, partitions: list[TopicPartition], *, of_client: bool
) -> dict[TopicPartition, ErrorCode]:
    """Those that can't be in a transaction, or not at a client's wish."""
    codes: dict[TopicPartition, ErrorCode] = {}
    for partition in partitions:
        topic = service.cluster.topics.get(partition.topic)
        if of_client and partition.topic in INTERNAL_TOPICS:
            codes[partition] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif topic is None or not 0 <= partition.partition < len(topic.partitions):
            codes[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return codes


def _result(
    topic: AddPartitionsToTxnTopic, codes: Codes, version: int
) -> AddPartitionsToTxnTopicResult:
    return AddPartitionsToTxnTopicResult(
        topic.name,
        [
            AddPartitionsToTxnPartitionResult(
                index, _known(codes[TopicPartition(topic.name, index)], version)
            )
            for index in topic.partitions
        ],
    )


def _known(code: ErrorCode, version: int) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED and version < FENCED_SINCE:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    return code
