"""A transaction coordinator at work: ids, markers on their way, failures, a new coordinator."""

import pytest
from fakes.transactions import REFUSED, TransactionService

from dmq.broker.answer import Answer
from dmq.broker.endings import Endings
from dmq.errors import ErrorCode, KafkaError
from dmq.machines.transactions.commands import (
    AddPartitions,
    Ended,
    Ending,
    EndTransaction,
    InitProducerId,
    TxnMarker,
)
from dmq.machines.transactions.facts import TxnState
from dmq.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def begun(service: TransactionService, name: str = "x") -> tuple[int, int]:
    """A producer with a transaction on two partitions."""
    if "t" not in service.cluster.topics:
        service.create("t", 2)
    given = service.coordinator.submit(InitProducerId(name, 60_000)).get()
    producer = given.producer_id, given.producer_epoch
    service.coordinator.submit(AddPartitions(name, *producer, frozenset({T0, T1}), 2)).get()
    return producer


def end(service: TransactionService, producer: tuple[int, int]) -> Answer[Ended]:
    return service.coordinator.submit(EndTransaction("x", *producer, True, 2))


def state(service: TransactionService, name: str = "x") -> TxnState:
    found = service.machine.state.find(name)
    assert found is not None
    return found.state


def test_ids_are_fetched_when_they_are_needed() -> None:
    service = TransactionService()
    assert begun(service, "x") == (100, 0)
    assert begun(service, "y") == (101, 0)
    service.coordinator.submit(InitProducerId("y", 60_000)).get()
    assert service.next_id == 102, "the third one needed none"


def test_a_transaction_ends_with_its_markers() -> None:
    service = TransactionService()
    producer = begun(service)
    assert end(service, producer).get()[:2] == (100, 1)
    assert [marker[:5] for marker in service.markers] == [
        ("t", 0, 100, 1, True),
        ("t", 1, 100, 1, True),
    ]
    assert state(service) is TxnState.COMPLETE_COMMIT
    assert len(service.coordinator.endings) == 0


def test_no_marker_leaves_before_the_decision_is_committed() -> None:
    service = TransactionService()
    producer = begun(service)
    service.txn_host.is_held = True
    answer = end(service, producer)
    assert service.markers == []
    assert not answer.is_done
    service.txn_host.is_held = False
    service.txn_host.commit()
    assert len(service.markers) == 2
    assert answer.is_done


def test_markers_are_sent_until_they_are_written() -> None:
    service = TransactionService()
    producer = begun(service)
    service.has_leaders = False
    end(service, producer).get()
    service.coordinator.send_again()
    assert state(service) is TxnState.PREPARE_COMMIT
    service.has_leaders = True
    service.coordinator.send_again()
    assert state(service) is TxnState.COMPLETE_COMMIT


def test_a_new_coordinator_finishes_what_the_old_one_left() -> None:
    service = TransactionService()
    producer = begun(service)
    service.has_leaders = False
    end(service, producer).get()
    service.coordinator.resign()
    service.has_leaders = True
    service.coordinator.send_again()
    assert service.markers == [], "not its business any more"
    service.coordinator.lead(2)
    assert {marker.coordinator_epoch for marker in service.markers} == {2}
    assert state(service) is TxnState.COMPLETE_COMMIT


def test_the_beginning_is_tried_again() -> None:
    service = TransactionService()
    producer = begun(service)
    service.has_leaders = False
    end(service, producer).get()
    service.coordinator.resign()
    service.txn_host.refusal = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    service.coordinator.lead(2)
    service.txn_host.refusal = None
    service.has_leaders = True
    service.coordinator.send_again()
    assert state(service) is TxnState.COMPLETE_COMMIT


def test_an_end_that_the_disk_refused_to_note_is_noted_later() -> None:
    service = TransactionService()
    producer = begun(service)
    service.has_leaders = False
    end(service, producer).get()
    service.has_leaders = True
    service.txn_host.refusal = REFUSED
    service.coordinator.send_again()
    assert state(service) is TxnState.PREPARE_COMMIT
    service.txn_host.refusal = None
    service.coordinator.send_again()
    assert state(service) is TxnState.COMPLETE_COMMIT


def test_what_is_open_for_too_long_is_aborted() -> None:
    service = TransactionService()
    begun(service)
    service.now += 60_001
    service.coordinator.abort_timed_out()
    assert [marker.is_commit for marker in service.markers] == [False, False]
    assert state(service) is TxnState.COMPLETE_ABORT
    assert service.coordinator.forget_idle().get() == 0


def test_a_newcomer_sets_the_end_of_the_old_transaction_going() -> None:
    service = TransactionService()
    begun(service)
    given = service.coordinator.submit(InitProducerId("x", 60_000)).get()
    assert given.code is ErrorCode.CONCURRENT_TRANSACTIONS
    assert service.coordinator.submit(InitProducerId("x", 60_000)).get().producer_epoch == 2


def test_refusals_go_through() -> None:
    service = TransactionService()
    answer = service.coordinator.submit(EndTransaction("x", 1, 0, True, 2))
    with pytest.raises(KafkaError, check=lambda e: e.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING):
        answer.get()


def test_without_a_new_id_the_reason_is_told() -> None:
    service = TransactionService()
    failed: Answer[int] = Answer()
    failed.fail(KafkaError(ErrorCode.NOT_CONTROLLER))
    service.coordinator._new_producer_id = lambda: failed
    with pytest.raises(KafkaError, check=lambda error: error.code is ErrorCode.NOT_CONTROLLER):
        service.coordinator.submit(InitProducerId("x", 60_000)).get()


# --- endings ------------------------------------------------------------------------------------


class Wires:
    """Answers to markers when the test says so."""

    def __init__(self) -> None:
        self.sent: list[tuple[TxnMarker, Answer[None]]] = []
        self.finished: list[Ending] = []
        self.topics = {"t"}
        self.endings = Endings(
            self.write, self.finished.append, lambda where: where.topic in self.topics
        )

    def write(self, marker: TxnMarker) -> Answer[None]:
        self.sent.append((marker, Answer()))
        return self.sent[-1][1]

    def tell(self, at: int, code: ErrorCode) -> None:
        answer = self.sent[at][1]
        if code is ErrorCode.NONE:
            answer.resolve(None)
        else:
            answer.fail(KafkaError(code))


def ending(*partitions: int) -> Ending:
    markers = tuple(TxnMarker("t", index, 1, 2, True, 3, 2) for index in partitions)
    return Ending("x", 1, 2, markers)


def test_an_ending_is_done_with_its_last_marker() -> None:
    wires = Wires()
    wires.endings.begin(ending(0, 1))
    wires.endings.begin(ending(0, 1))
    assert len(wires.sent) == 2, "it is under way already"
    wires.tell(0, ErrorCode.NONE)
    assert wires.finished == []
    wires.tell(1, ErrorCode.NONE)
    assert wires.finished == [ending(0, 1)]


def test_an_ending_without_partitions_is_done_at_once() -> None:
    wires = Wires()
    wires.endings.begin(ending())
    assert wires.finished == [ending()]


def test_only_what_failed_is_sent_again() -> None:
    wires = Wires()
    wires.endings.begin(ending(0, 1, 2))
    wires.tell(0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    wires.tell(1, ErrorCode.NONE)
    wires.endings.send_again()
    assert [marker.partition for marker, _ in wires.sent] == [0, 1, 2, 0]


def test_a_later_epoch_there_means_that_it_was_written() -> None:
    wires = Wires()
    wires.endings.begin(ending(0))
    wires.tell(0, ErrorCode.INVALID_PRODUCER_EPOCH)
    assert wires.finished == [ending(0)]


def test_a_topic_that_is_gone_needs_no_marker_and_an_unknown_one_does() -> None:
    wires = Wires()
    wires.endings.begin(ending(0))
    wires.tell(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert wires.finished == []
    wires.topics.clear()
    wires.endings.send_again()
    wires.tell(1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert wires.finished == [ending(0)]


def test_a_fenced_coordinator_lets_go() -> None:
    wires = Wires()
    wires.endings.begin(ending(0, 1))
    wires.tell(0, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
    wires.tell(1, ErrorCode.NONE)
    wires.endings.send_again()
    assert (wires.finished, len(wires.sent)) == ([], 2)


def test_answers_of_a_former_stay_do_not_count() -> None:
    wires = Wires()
    wires.endings.begin(ending(0))
    wires.endings.clear()
    wires.endings.begin(ending(0))
    wires.tell(0, ErrorCode.NONE)
    assert wires.finished == []
    wires.tell(1, ErrorCode.NONE)
    assert wires.finished == [ending(0)]
