"""Leave to write into a transaction, while markers of the one before come in."""

import pytest
from fakes.broker import NODE_ID, FakeBroker

from dmq.broker.answer import Answer
from dmq.broker.transaction_seats import ENTER_TRIES
from dmq.errors import ErrorCode, KafkaError
from dmq.machines.producers.guards import VerificationGuards
from dmq.types import NIL_UUID, TopicPartition

PRODUCER, EPOCH, VERSION = 7, 3, 2
HERE = TopicPartition("t", 0)


class Coordinator:
    """Says yes; the first `markers` times the end of the transaction before comes in first."""

    def __init__(self, guards: VerificationGuards, markers: int) -> None:
        self.guards = guards
        self.markers = markers
        self.questions = 0

    def ask(self, *who: object) -> Answer[None]:
        self.questions += 1
        if self.questions <= self.markers:
            self.guards.revoke(PRODUCER)
        return Answer.of(None)


def entering(monkeypatch: pytest.MonkeyPatch, markers: int) -> tuple[Coordinator, Answer[None]]:
    broker = FakeBroker()
    broker.create("t")
    book = broker.replicas.find("t", NIL_UUID, 0).book
    assert book is not None
    coordinator = Coordinator(book.guards, markers)
    monkeypatch.setattr(broker.transactions, "_ask", coordinator.ask)
    monkeypatch.setattr(broker.transactions, "_leader", lambda name: NODE_ID)
    return coordinator, broker.transactions.enter("x", PRODUCER, EPOCH, HERE, VERSION)


@pytest.mark.parametrize("markers", range(ENTER_TRIES))
def test_a_marker_of_the_transaction_before_costs_one_more_question(
    monkeypatch: pytest.MonkeyPatch, markers: int
) -> None:
    coordinator, answer = entering(monkeypatch, markers)
    answer.get()
    assert coordinator.questions == markers + 1
    assert coordinator.guards.verified(PRODUCER, EPOCH) == VERSION


def test_one_whose_leave_is_taken_each_time_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator, answer = entering(monkeypatch, ENTER_TRIES)
    with pytest.raises(KafkaError) as refused:
        answer.get()
    assert refused.value.code == ErrorCode.INVALID_TXN_STATE
    assert coordinator.questions == ENTER_TRIES
