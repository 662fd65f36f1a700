"""Produce of a transaction: which of its batches need leave of the coordinator, and what it said.

Only the first batch of a transaction in each partition asks; the log vouches for the later ones.
"""

from dmq.broker.answer import Answer
from dmq.broker.internal_topics import INTERNAL_TOPICS
from dmq.broker.service import Service
from dmq.broker.transacting import CLIENT_ADDS, LEADER_ADDS, code_at_log
from dmq.doors.call import Call
from dmq.errors import DmqError, KafkaError
from dmq.records import HEADER_SIZE, read_header
from dmq.types import NIL_UUID, TopicPartition
from dmq.wire.messages.k00_produce import PartitionProduceData, ProduceRequest

ABORTABLE_SINCE = 11
JOINS_SINCE = 12

Entering = list[tuple[PartitionProduceData, Answer[None]]]


def to_enter(service: Service, call: Call, request: ProduceRequest) -> Entering:
    """Batches that must wait for their transaction's coordinator, and its answers."""
    version = _transaction_version(call)
    found: Entering = []
    for topic in request.topic_data:
        name = topic.name
        if topic.topic_id != NIL_UUID:
            known = service.cluster.topics_by_id.get(topic.topic_id)
            name = "" if known is None else known.name
        if name in INTERNAL_TOPICS:
            continue  # Refused where it would be appended.
        for data in topic.partition_data:
            if data.records is None or len(data.records) < HEADER_SIZE:
                continue
            header = read_header(data.records)
            if header.is_transactional and header.producer_id >= 0:
                entered = service.transactions.enter(
                    request.transactional_id or "",
                    header.producer_id,
                    header.producer_epoch,
                    TopicPartition(name, data.index),
                    version,
                    header.base_sequence,
                )
                if not (entered.is_done and _is_granted(entered)):
                    found.append((data, entered))
    return found


def _transaction_version(call: Call) -> int:
    return LEADER_ADDS if call.version >= JOINS_SINCE else CLIENT_ADDS


def _is_granted(entered: Answer[None]) -> bool:
    try:
        entered.get()
    except DmqError:
        return False
    return True


def refusals(call: Call, entering: Entering) -> list[tuple[PartitionProduceData, DmqError]]:
    """Whom the coordinator refused, in the words that a producer expects."""
    knows = call.version >= ABORTABLE_SINCE
    found: list[tuple[PartitionProduceData, DmqError]] = []
    for data, entered in entering:
        try:
            entered.get()
        except DmqError as error:
            code = code_at_log(
                error.code, knows_abortable=knows, version=_transaction_version(call)
            )
            found.append((data, KafkaError(code, str(error))))
    return found
