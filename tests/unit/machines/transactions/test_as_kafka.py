"""What Apache Kafka 4.3.0 answered, asked the same over the wire, and what we answer.

Recorded from a single broker with `transaction.version` 2, its producer id written as 100. Where a step
has two answers the second one is ours: there we differ on purpose, and the step says why.
"""

from typing import Any, NamedTuple

import pytest
from fakes.calls import answer
from fakes.transactions import TransactionService

from dmq.doors.kafka_api import k22_init_producer_id, k24_add_partitions_to_txn, k26_end_txn
from dmq.errors import ErrorCode
from dmq.types import TopicPartition
from dmq.wire.messages.k22_init_producer_id import InitProducerIdRequest
from dmq.wire.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from dmq.wire.messages.k26_end_txn import EndTxnRequest


class Step(NamedTuple):
    """`ours` is None where it is as Kafka's; `why` then is empty."""

    doing: str
    args: tuple[Any, ...]
    kafka: Any
    ours: Any = None
    why: str = ""


CONCURRENT = ("CONCURRENT_TRANSACTIONS", -1, -1)
FENCED = ("PRODUCER_FENCED", -1, -1)
INVALID = ("INVALID_TXN_STATE", -1, -1)
NO_LEADERS, LEADERS = Step("leaders", (False,), None), Step("leaders", (True,), None)

DECIDED = "the decision is durable: there is nothing to wait for"
TAKEN = "another producer has the name: the old one is out, also while its transaction ends"

EPOCH_PER_TRANSACTION = [
    Step("init", (), ("NONE", 100, 0)),
    Step("end", (0, True), INVALID),
    Step("end", (-1, False), FENCED),
    Step("write", (0, 0), "NONE"),
    NO_LEADERS,
    Step("end", (0, True), ("NONE", 100, 1)),
    Step("end", (0, True), CONCURRENT, ("NONE", 100, 1), DECIDED),
    LEADERS,
    Step("end", (0, True), ("NONE", 100, 1)),
    Step("end", (0, False), INVALID),
    Step("state", (), ("CompleteCommit", 100, 1)),
    Step("write", (0, 1), "INVALID_PRODUCER_EPOCH"),
    Step("end", (1, False), ("NONE", 100, 2)),
    LEADERS,
    Step("state", (), ("CompleteAbort", 100, 2)),
    Step("end", (2, True), INVALID),
    Step("write", (2, 3), "OUT_OF_ORDER_SEQUENCE_NUMBER"),
    Step("write", (2, 0), "NONE"),
    Step("end", (1, False), FENCED),
    Step("end", (1, True), FENCED),
    Step("end", (3, True), FENCED),
]

A_NEWCOMER = [
    Step("init", (), ("NONE", 100, 0)),
    Step("write", (0, 0), "NONE"),
    NO_LEADERS,
    Step("init", (), CONCURRENT),
    Step("end", (0, False), CONCURRENT, FENCED, TAKEN),
    LEADERS,
    Step("state", (), ("CompleteAbort", 100, 1)),
    Step("end", (0, False), ("NONE", 100, 1), FENCED, TAKEN),
    Step("end", (0, True), INVALID, FENCED, TAKEN),
    Step("init", (100, 0), ("NONE", 100, 1), FENCED, TAKEN),
    Step("init", (), ("NONE", 100, 2)),
    Step("end", (0, False), FENCED),
    Step("write", (0, 1), "INVALID_PRODUCER_EPOCH"),
]

GOING_ON = [
    Step("init", (), ("NONE", 100, 0)),
    Step("init", (100, 0), ("NONE", 100, 1)),
    Step("init", (100, 0), ("NONE", 100, 1)),
    Step("init", (100, 7), FENCED),
    Step("init", (999, 0), FENCED),
    Step("write", (1, 0), "NONE"),
    Step("init", (100, 0), CONCURRENT, FENCED, "a late request must not abort what is open"),
    LEADERS,
    Step("state", (), ("CompleteAbort", 100, 2), ("Ongoing", 100, 1), "so it is open still"),
]

GOING_ON_WITH_ONE_OPEN = [
    Step("init", (), ("NONE", 100, 0)),
    Step("write", (0, 0), "NONE"),
    NO_LEADERS,
    Step("init", (100, 0), CONCURRENT),
    Step("init", (100, 0), CONCURRENT),
    LEADERS,
    Step("state", (), ("CompleteAbort", 100, 1)),
    Step("init", (100, 0), ("NONE", 100, 1)),
    Step("write", (1, 0), "NONE"),
]

ONE_EPOCH = [
    Step("init", (), ("NONE", 100, 0)),
    Step("end_v4", (0, True), "INVALID_TXN_STATE"),
    Step("end_v4", (0, False), "INVALID_TXN_STATE"),
    Step("add", (0, 0), ["NONE"]),
    NO_LEADERS,
    Step("end_v4", (0, True), "NONE"),
    Step("end_v4", (0, True), "CONCURRENT_TRANSACTIONS", "NONE", DECIDED),
    LEADERS,
    Step("end_v4", (0, True), "NONE"),
    Step("end_v4", (0, False), "INVALID_TXN_STATE"),
    Step("add", (1, 0), ["PRODUCER_FENCED"]),
    Step("add", (0, 0, 9), ["OPERATION_NOT_ATTEMPTED", "UNKNOWN_TOPIC_OR_PARTITION"]),
]

TOO_SLOW = [
    Step("init", (), ("NONE", 100, 0)),
    Step("write", (0, 0), "NONE"),
    Step("timeout", (), None),
    Step("state", (), ("CompleteAbort", 100, 1)),
    Step("end", (0, True), INVALID),
    Step("end", (0, False), ("NONE", 100, 1)),
    Step("init", (100, 0), ("NONE", 100, 1)),
    Step("write", (0, 1), "INVALID_PRODUCER_EPOCH"),
]


TRANSCRIPTS = {
    "an epoch per transaction": EPOCH_PER_TRANSACTION,
    "a newcomer": A_NEWCOMER,
    "going on": GOING_ON,
    "going on with one open": GOING_ON_WITH_ONE_OPEN,
    "one epoch": ONE_EPOCH,
    "too slow": TOO_SLOW,
}


class Doings:
    """The requests of the transcripts, with a producer whose id is 100."""

    def __init__(self) -> None:
        self.service = TransactionService()
        self.service.create("t", 2)

    def init(self, producer_id: int = -1, epoch: int = -1) -> tuple[str, int, int]:
        request = InitProducerIdRequest("x", 60_000, producer_id, epoch)
        reply = answer(k22_init_producer_id.handle, self.service, 22, 5, request)
        return ErrorCode(reply.error_code).name, reply.producer_id, reply.producer_epoch

    def add(self, epoch: int, *partitions: int) -> list[str]:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=100,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic("t", list(partitions))],
        )
        reply = answer(k24_add_partitions_to_txn.handle, self.service, 24, 3, request)
        (topic,) = reply.results_by_topic_v3_and_below
        return [ErrorCode(p.partition_error_code).name for p in topic.results_by_partition]

    def end(self, epoch: int, is_commit: bool) -> tuple[str, int, int]:
        request = EndTxnRequest("x", 100, epoch, is_commit)
        reply = answer(k26_end_txn.handle, self.service, 26, 5, request)
        return ErrorCode(reply.error_code).name, reply.producer_id, reply.producer_epoch

    def end_v4(self, epoch: int, is_commit: bool) -> str:
        request = EndTxnRequest("x", 100, epoch, is_commit)
        reply = answer(k26_end_txn.handle, self.service, 26, 4, request)
        return ErrorCode(reply.error_code).name

    def write(self, epoch: int, sequence: int) -> str:
        return self.service.produce("x", (100, epoch), TopicPartition("t", 0), sequence).name

    def state(self) -> tuple[str, int, int]:
        found = self.service.machine.state.find("x")
        assert found is not None
        return found.state.label, found.producer_id, found.producer_epoch

    def leaders(self, are_there: bool) -> None:
        """Without them markers are not written, and the transaction is not finished."""
        self.service.has_leaders = are_there
        self.service.coordinator.send_again()

    def timeout(self) -> None:
        self.service.now += 60_001
        self.service.coordinator.abort_timed_out()


@pytest.mark.parametrize(
    "transcript",
    TRANSCRIPTS.values(),
    ids=TRANSCRIPTS.keys(),
)
def test_we_answer_as_kafka_does(transcript: list[Step]) -> None:
    doings = Doings()
    for number, step in enumerate(transcript):
        expected = step.kafka if step.ours is None else step.ours
        assert getattr(doings, step.doing)(*step.args) == expected, (number, step)
