"""A machine on a log that may refuse: answers, state and log always agree."""

import logging

import pytest
from fakes.broker import FakeBroker
from fakes.disk import FakeDisk

from dmq.broker.admin import NewTopic
from dmq.broker.answer import Answer
from dmq.errors import ErrorCode, FatalStorageError, KafkaError
from dmq.types import NIL_UUID


@pytest.fixture
def broker() -> FakeBroker:
    return FakeBroker()


def fill(broker: FakeBroker) -> None:
    """Not a byte more fits on the disk."""
    broker.disk.capacity = sum(len(inode.now) for inode in broker.disk.inodes())


def new_topic(broker: FakeBroker, name: str, configs: int = 0) -> "NewTopic":
    values = tuple((f"{'x' * 200}.{n}", "1") for n in range(configs))
    return NewTopic(name, broker.service.admin.new_uuid(), 1, 1, (), values)


def code_of(answer: Answer[object]) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        answer.get()
    return caught.value.code


def test_what_the_disk_refused_is_not_in_the_state(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dmq.broker")
    broker.create("before")
    fill(broker)
    refused = broker.service.admin.create_topics([new_topic(broker, "refused")])
    assert "refused" in broker.machine.state.topics, "handled on the newest state"
    broker.turn()
    assert code_of(refused) == ErrorCode.KAFKA_STORAGE_ERROR
    assert list(broker.machine.state.topics) == ["before"]
    assert broker.service.topic("refused") is None
    assert "what is not committed of the cluster's metadata is forgotten" in caplog.text
    assert "Replica" not in caplog.text, "names of classes are not for operators"


def test_answers_that_rest_on_what_was_refused_are_refused_too(broker: FakeBroker) -> None:
    fill(broker)
    admin = broker.service.admin
    broker.service.admin.create_topics([new_topic(broker, "t")])
    again = admin.create_topics([new_topic(broker, "t")])
    settled = admin.alter_configs([], replace=False, validate_only=False)
    not_there = admin.delete_topics([("other", NIL_UUID)])
    broker.turn()
    for answer in (again, settled, not_there):
        assert code_of(answer) == ErrorCode.KAFKA_STORAGE_ERROR


def test_it_goes_on_when_there_is_room_again(broker: FakeBroker) -> None:
    fill(broker)
    refused = broker.service.admin.create_topics([new_topic(broker, "t")])
    broker.turn()
    assert refused.is_done
    broker.disk.capacity = None
    (partition,) = broker.create("t")
    partition.append(broker.batch(b"v"), broker.now)
    broker.turn()
    after = broker.restart(crash=FakeDisk.power_cut)
    assert list(after.machine.state.topics) == ["t"]
    assert after.find("t").high_watermark == 1


def test_a_command_given_while_others_are_refused_finds_the_old_state(broker: FakeBroker) -> None:
    fill(broker)
    admin = broker.service.admin
    first = admin.create_topics([new_topic(broker, "t")])
    seen: list[bool] = []
    first.on_done(lambda _: seen.append("t" in broker.machine.state.topics))
    broker.turn()
    assert seen == [False]


def test_a_producer_id_that_can_not_be_kept_is_refused(broker: FakeBroker) -> None:
    fill(broker)
    ids = [broker.service.next_producer_id() for _ in range(3)]
    broker.turn()
    for answer in ids:
        assert code_of(answer) == ErrorCode.KAFKA_STORAGE_ERROR
    broker.disk.capacity = None
    taken = broker.service.next_producer_id()
    broker.turn()
    assert taken.get() >= 0


def test_more_producers_than_a_block_has_when_the_disk_fills_up(broker: FakeBroker) -> None:
    ids = [broker.service.next_producer_id() for _ in range(1500)]
    turn = broker.begin()
    assert turn is not None
    fill(broker)
    broker.end(turn)
    broker.turn()
    assert all(answer.is_done for answer in ids)
    assert [answer.get() for answer in ids[:1000]] == list(range(1000))
    assert {code_of(answer) for answer in ids[1000:]} == {ErrorCode.KAFKA_STORAGE_ERROR}


def test_nobody_waits_after_a_refusal(broker: FakeBroker) -> None:
    (partition,) = broker.create("t")
    fill(broker)
    partition.append(broker.batch(bytes(50_000)), broker.now)
    broker.turn()
    assert not broker.node.has_waiting


def test_what_is_read_from_the_metadata_leaves_when_that_is_committed(broker: FakeBroker) -> None:
    broker.create("t")
    broker.service.admin.delete_topics([("t", NIL_UUID)])
    told: list[list[str]] = []
    broker.service.answer_settled(lambda: list(broker.machine.state.topics), told.append)
    assert told == []
    broker.turn()
    assert told == [[]]


def test_what_was_read_is_read_again_if_the_disk_refused_it(broker: FakeBroker) -> None:
    broker.create("t")
    fill(broker)
    broker.service.admin.delete_topics([("t", NIL_UUID)])
    told: list[list[str]] = []
    broker.service.answer_settled(lambda: list(broker.machine.state.topics), told.append)
    broker.turn()
    assert told == [["t"]]


def test_a_broker_with_the_only_copy_of_rotten_metadata_does_not_start(broker: FakeBroker) -> None:
    broker.create("precious")
    metadata = broker.metadata.replica.log
    broker.store.request_flush(metadata)
    broker.turn()
    name = metadata.segments_list[-1].name()
    file = broker.disk.open(name)
    broker.store.close(broker.now)
    broker.disk.flip(name, file.read_at(0, file.size()).index(b"precious"))
    with pytest.raises(FatalStorageError, match=r"only copy.*fails its CRC.*backup"):
        FakeBroker(broker.disk)
