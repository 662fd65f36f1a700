"""A partition: acknowledgement, high watermark, waiting, trimming, restarts."""

import dataclasses

import pytest
from fakes.broker import STORE, FakeBroker
from fakes.disk import FakeDisk

from dmq.broker.admin import ConfigChange
from dmq.broker.multiraft.waiting import ParkedAppend
from dmq.broker.partition import Partition
from dmq.config.definitions import ResourceType
from dmq.errors import ErrorCode, KafkaError, StorageError
from dmq.machines.producers.refusals import BEHIND_MAX
from dmq.records import BatchError, Record, build_batch, iterate, read_header, scan
from dmq.types import NIL_UUID


@pytest.fixture
def broker() -> FakeBroker:
    return FakeBroker()


def watch(append: ParkedAppend) -> list[ErrorCode]:
    seen: list[ErrorCode] = []
    append.on_done = seen.append
    return seen


def values_of(partition: Partition, offset: int = 0) -> list[bytes | None]:
    values: list[bytes | None] = []
    for piece in partition.read(offset, 1 << 20, whole_first_batch=True):
        data = piece.pread()
        for position, header in scan(data):
            values += [r.value for r in iterate(data, position, header) if r.offset >= offset]
    return values


def test_nothing_is_promised_or_shown_before_the_sync(broker: FakeBroker) -> None:
    (partition,) = broker.create("t")
    seen = watch(partition.append(broker.batch(b"a", b"b"), broker.now))
    turn = broker.begin()
    assert turn is not None
    assert turn.needs_sync
    assert (seen, partition.high_watermark, values_of(partition)) == ([], 0, [])
    broker.end(turn)
    assert (seen, partition.high_watermark) == ([ErrorCode.NONE], 2)
    assert values_of(partition) == [b"a", b"b"]


def test_an_async_topic_answers_without_a_sync(broker: FakeBroker) -> None:
    (partition,) = broker.create("t", durability="async")
    seen = watch(partition.append(broker.batch(b"a"), broker.now))
    turn = broker.begin()
    assert turn is not None
    assert not turn.needs_sync
    broker.end(turn)
    assert seen == [ErrorCode.NONE]


def test_offsets_are_dense_and_stamped(broker: FakeBroker) -> None:
    (partition,) = broker.create("t")
    appends = [partition.append(broker.batch(b"x", b"y"), broker.now) for _ in range(3)]
    broker.turn()
    assert [append.base_offset for append in appends] == [0, 2, 4]
    data = partition.read(0, 1 << 20, whole_first_batch=True)[0].pread()
    headers = [header for _, header in scan(data)]
    assert [header.base_offset for header in headers] == [0, 2, 4]
    assert {header.leader_epoch for header in headers} == {partition.leader_epoch}


def test_what_arrives_during_a_sync_goes_with_the_next_turn(broker: FakeBroker) -> None:
    (partition,) = broker.create("t")
    first = watch(partition.append(broker.batch(b"1"), broker.now))
    turn = broker.begin()
    assert turn is not None
    second = watch(partition.append(broker.batch(b"2"), broker.now))
    assert broker.begin() is None, "one turn at a time"
    broker.end(turn)
    assert (first, second) == ([ErrorCode.NONE], [])
    assert broker.turn() == 1
    assert second == [ErrorCode.NONE]


def test_one_turn_serves_all_partitions(broker: FakeBroker) -> None:
    partitions = broker.create("t", 20)
    seen = [watch(p.append(broker.batch(b"v"), broker.now)) for p in partitions]
    assert broker.turn() == 1
    assert seen == [[ErrorCode.NONE]] * 20


def test_a_refused_batch_changes_nothing(broker: FakeBroker) -> None:
    (partition,) = broker.create("t", max_message_bytes="100")
    with pytest.raises(BatchError) as caught:
        partition.append(broker.batch(bytes(200)), broker.now)
    assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE
    assert partition.append(broker.batch(b"ok"), broker.now).base_offset == 0


def test_a_full_disk_refuses_and_recovers(broker: FakeBroker) -> None:
    (partition,) = broker.create("t")
    partition.append(broker.batch(b"before"), broker.now)
    broker.turn()
    broker.disk.capacity = sum(len(inode.now) for inode in broker.disk.inodes())
    seen = watch(partition.append(broker.batch(bytes(50_000)), broker.now))
    broker.turn()
    assert seen == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert partition.log_end_offset == 1
    broker.disk.capacity = None
    again = partition.append(broker.batch(b"after"), broker.now)
    done = watch(again)
    broker.turn()
    assert (again.base_offset, done) == (1, [ErrorCode.NONE])
    assert values_of(partition) == [b"before", b"after"]


def test_below_the_reserve_only_deleting_goes_on() -> None:
    reserve = 20_000
    broker = FakeBroker(store=dataclasses.replace(STORE, reserve_bytes=reserve))
    (partition,) = broker.create("t")
    partition.append(broker.batch(bytes(10_000)), broker.now)
    broker.turn()
    used = sum(len(inode.now) for inode in broker.disk.inodes())
    broker.disk.capacity = used + reserve - 1
    broker.pass_time(1000)
    broker.store.maintain(broker.now)
    with pytest.raises(StorageError) as caught:
        partition.append(broker.batch(b"x"), broker.now)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert len(values_of(partition)) == 1, "reading goes on"
    deleted = broker.service.admin.delete_topics([("t", NIL_UUID)])
    broker.turn()
    assert deleted.get()[0].error is None
    assert broker.service.topic("t") is None


def test_a_producers_patience_ends_but_the_append_goes_on(broker: FakeBroker) -> None:
    (partition,) = broker.create("t")
    append = partition.append(broker.batch(b"slow"), broker.now)
    seen = watch(append)
    append.deadline = broker.now + 500
    turn = broker.begin()
    assert turn is not None
    broker.pass_time(499)
    assert seen == []
    broker.pass_time(broker.node.settings.sweep_ms)
    assert seen == [ErrorCode.REQUEST_TIMED_OUT]
    broker.end(turn)
    assert seen == [ErrorCode.REQUEST_TIMED_OUT]
    assert values_of(partition) == [b"slow"]


def test_every_start_is_a_new_epoch_and_keeps_the_records(broker: FakeBroker) -> None:
    (partition,) = broker.create("t")
    epochs = [partition.leader_epoch]
    for n in range(3):
        partition.append(broker.batch(b"%d" % n), broker.now)
        broker.turn()
        crash = None if n == 1 else FakeDisk.power_cut
        broker = broker.restart(crash=crash)
        partition = broker.find("t")
        epochs.append(partition.leader_epoch)
    assert epochs == [1, 2, 3, 4]
    assert values_of(partition) == [b"0", b"1", b"2"]
    assert [partition.end_of_epoch(e)[1] for e in (1, 2, 3, 4)] == [1, 2, 3, 3]
    assert partition.end_of_epoch(9) == (4, 3)
    assert [partition.epoch_at(offset) for offset in (0, 1, 2)] == [1, 2, 3]


def test_trimming_moves_the_start_once_it_is_committed(broker: FakeBroker) -> None:
    (partition,) = broker.create("t")
    for n in range(5):
        partition.append(broker.batch(b"%d" % n), broker.now)
    broker.turn()
    answer = partition.trim(3)
    assert not answer.is_done
    assert partition.log_start_offset == 0
    broker.turn()
    assert answer.get() == 3
    with pytest.raises(KafkaError) as caught:
        partition.read(2, 100, whole_first_batch=True)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert values_of(partition, 3) == [b"3", b"4"]
    assert partition.trim(1).get() == 3, "it never goes back"
    after = broker.restart(crash=FakeDisk.power_cut).find("t")
    assert (after.log_start_offset, after.log_end_offset) == (3, 5)


def test_fencing_by_leader_epoch(broker: FakeBroker) -> None:
    (partition,) = broker.create("t")
    partition.check_epoch(-1)
    partition.check_epoch(partition.leader_epoch)
    for epoch, code in ((0, ErrorCode.FENCED_LEADER_EPOCH), (7, ErrorCode.UNKNOWN_LEADER_EPOCH)):
        with pytest.raises(KafkaError) as caught:
            partition.check_epoch(epoch)
        assert caught.value.code == code


def test_deleting_a_topic_answers_those_who_wait(broker: FakeBroker) -> None:
    (partition,) = broker.create("t")
    append = partition.append(broker.batch(b"x"), broker.now)
    seen = watch(append)
    broker.replicas.remove(partition.topic_id)
    assert seen == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_an_answered_trim_survives_a_crash_right_after_the_answer(broker: FakeBroker) -> None:
    (partition,) = broker.create("t")
    for n in range(5):
        partition.append(broker.batch(b"%d" % n), broker.now)
    broker.turn()
    answer = partition.trim(3)
    turn = broker.begin()
    assert turn is not None
    broker.end(turn)
    assert answer.get() == 3
    after = broker.restart(crash=FakeDisk.power_cut).find("t")
    assert after.log_start_offset == 3
    assert values_of(after, 3) == [b"3", b"4"]


def test_trims_under_way_never_take_the_start_back(broker: FakeBroker) -> None:
    (partition,) = broker.create("t")
    for n in range(5):
        partition.append(broker.batch(b"%d" % n), broker.now)
    broker.turn()
    answers = [partition.trim(offset) for offset in (4, 2)]
    assert partition.log.marks.last.log_start == 4
    broker.turn()
    assert [answer.get() for answer in answers] == [4, 4]
    assert partition.log.marks.last.log_start == 4


def configure(broker: FakeBroker, durability: str) -> None:
    change = ConfigChange(ResourceType.TOPIC, "t", (("durability", 0, durability),))
    broker.service.admin.alter_configs([change], replace=False, validate_only=False)


def run_jobs(broker: FakeBroker) -> None:
    for job in broker.store.maintain(broker.now):
        job.run()
        broker.store.done(job)


def test_a_change_to_sync_waits_for_a_flush_without_busy_turns(broker: FakeBroker) -> None:
    (partition,) = broker.create("t", durability="async")
    partition.append(broker.batch(b"before"), broker.now)
    broker.turn()
    configure(broker, "sync")
    broker.turn()
    seen = watch(partition.append(broker.batch(b"after"), broker.now))
    assert broker.turn() <= 1, "there is nothing to do before the flush"
    assert seen == []
    run_jobs(broker)
    turn = broker.begin()
    assert turn is not None
    assert turn.needs_sync
    broker.end(turn)
    broker.turn()
    assert seen == [ErrorCode.NONE]
    assert not partition.log.is_async


@pytest.mark.parametrize("first", ["sync", "async"])
def test_the_last_word_on_durability_counts(broker: FakeBroker, first: str) -> None:
    other = {"sync": "async", "async": "sync"}
    (partition,) = broker.create("t", durability=first)
    partition.append(broker.batch(b"v"), broker.now)
    broker.turn()
    mode = first
    for flips in (2, 3, 4):
        for _ in range(flips):  # All before a turn has heard of the first.
            mode = other[mode]
            configure(broker, mode)
        for _ in range(3):
            broker.turn()
            run_jobs(broker)
        broker.turn()
        assert partition.log.is_async == (mode == "async")
        seen = watch(partition.append(broker.batch(b"v"), broker.now))
        broker.turn()
        assert seen == [ErrorCode.NONE]
    after = broker.restart(crash=FakeDisk.kill).find("t")
    assert after.log_end_offset == 4


@pytest.mark.parametrize("is_known", [True, False])
def test_those_behind_a_refused_batch_that_never_comes_again_are_not_put_off_for_ever(
    broker: FakeBroker, is_known: bool
) -> None:
    (partition,) = broker.create("t")
    assert partition.book is not None
    if is_known:
        partition.append(idempotent(3), broker.now)
        broker.turn()
    partition.book.refused(read_header(idempotent(4)), ErrorCode.NOT_LEADER_OR_FOLLOWER)
    told = []
    for _ in range(BEHIND_MAX + 1):
        try:
            partition.append(idempotent(5), broker.now)
        except KafkaError as error:
            told.append(error.code)
    truth = [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER] if is_known else []
    assert told == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * BEHIND_MAX + truth


def idempotent(sequence: int) -> memoryview:
    records = [Record(0, 1_700_000_000_000, None, b"v")]
    batch = build_batch(records, producer_id=7, producer_epoch=0, base_sequence=sequence)
    return memoryview(batch)
