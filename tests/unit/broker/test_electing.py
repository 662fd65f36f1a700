"""Unclean elections on a broker that is alone: what an order that takes its time is answered."""

import pytest
from fakes.broker import FakeBroker

from dmq.broker.answer import Answer
from dmq.broker.electing import Electing
from dmq.broker.elections import UNCLEAN, Elected
from dmq.broker.partition import Partition
from dmq.errors import ErrorCode, KafkaError, StorageError
from dmq.machines.commands import Done

WHERE = ("t", 0)


def damaged() -> tuple[FakeBroker, Partition]:
    broker = FakeBroker()
    (partition,) = broker.create("t")
    for n in range(3):
        partition.replica.produce(broker.batch(b"%d" % n), broker.now, acks=1, timeout_ms=1000)
        broker.turn()
    log = partition.log
    segment = log.segments_list[0]
    at = log.reader(segment).position(1)
    broker.disk.flip(segment.name(), at + 9)
    segment.index, segment.trusted_bytes = None, 0
    segment.hints.clear()
    try:
        log.read(2, 1000, 3)
    except StorageError:
        broker.turn()
    assert not partition.is_leader
    return broker, partition


def elect(broker: FakeBroker) -> Answer[list[Elected]]:
    answer = broker.service.elect_leaders(UNCLEAN, [WHERE], 5000)
    broker.turn()
    return answer


def work(broker: FakeBroker) -> None:
    for job in broker.store.maintain(broker.now):
        job.run()
        broker.store.done(job)
    broker.turn()


def test_the_offsets_that_are_lost_are_told() -> None:
    broker, partition = damaged()
    answer = elect(broker)
    assert not answer.is_done
    work(broker)
    assert partition.is_leader
    text = "Offsets that were in damaged files are lost: 1 to 1."
    assert answer.get() == [Elected(*WHERE, ErrorCode.NONE, text)]


def test_an_order_that_is_not_obeyed_in_time_was_given_all_the_same() -> None:
    broker, partition = damaged()
    answer = elect(broker)
    broker.pass_time(5001)
    (elected,) = answer.get()
    assert elected.code is ErrorCode.REQUEST_TIMED_OUT
    assert elected.message == "Ordered; broker 1 does not lead yet."
    work(broker)
    assert partition.is_leader
    (again,) = elect(broker).get()
    assert again.code is ErrorCode.ELECTION_NOT_NEEDED


def test_an_order_is_told_of_when_it_was_taken_and_not_before(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broker, partition = damaged()
    refusal: Answer[Done] = Answer()
    refusal.fail(KafkaError(ErrorCode.NOT_CONTROLLER, "nobody leads the metadata"))
    with monkeypatch.context() as refused:
        refused.setattr(Electing, "give_order", lambda electing, order: refusal)
        (elected,) = elect(broker).get()
    assert elected.code is ErrorCode.NOT_CONTROLLER
    assert "goes on" not in caplog.text
    elect(broker)
    assert "t-0 goes on with what broker 1 has, up to offset 3" in caplog.text
    work(broker)
    assert partition.is_leader
