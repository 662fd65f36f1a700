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


@pytest.mark.parametrize("code", [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING])
def test_an_epoch_that_the_coordinator_does_not_know_fences_nobody(
    monkeypatch: pytest.MonkeyPatch, code: ErrorCode
) -> None:
    broker = FakeBroker()
    broker.create("t")

    def ask(name: str, producer_id: int, epoch: int, *rest: object) -> Answer[None]:
        answer: Answer[None] = Answer()
        if epoch == EPOCH:
            answer.resolve(None)
        else:
            answer.fail(KafkaError(code))
        return answer

    monkeypatch.setattr(broker.transactions, "_ask", ask)
    monkeypatch.setattr(broker.transactions, "_leader", lambda name: NODE_ID)
    with pytest.raises(KafkaError) as refused:
        broker.transactions.enter("x", PRODUCER, EPOCH + 1, HERE, VERSION).get()
    assert refused.value.code == code
    broker.transactions.enter("x", PRODUCER, EPOCH, HERE, VERSION).get()


def test_who_waits_for_the_coordinator_is_not_overtaken(monkeypatch: pytest.MonkeyPatch) -> None:
    """It can't say now: the first batch comes again, and the second does not go before it."""
    broker = FakeBroker()
    broker.create("t")
    book = broker.replicas.find("t", NIL_UUID, 0).book
    assert book is not None
    later: Answer[None] = Answer()
    later.fail(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    said = iter([later, Answer.of(None)])
    monkeypatch.setattr(broker.transactions, "_ask", lambda *who: next(said))
    monkeypatch.setattr(broker.transactions, "_leader", lambda name: NODE_ID)
    with pytest.raises(KafkaError):
        broker.transactions.enter("x", PRODUCER, EPOCH, HERE, VERSION, 0).get()
    broker.transactions.enter("x", PRODUCER, EPOCH, HERE, VERSION, 1).get()
    with pytest.raises(KafkaError) as refused:
        book.guards.check_order(PRODUCER, 1)
    assert refused.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
