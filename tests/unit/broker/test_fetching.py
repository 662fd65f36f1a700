"""Fetches: what they read, when they wait, when they are answered."""

import pytest
from fakes.broker import FakeBroker

from dmq.broker.fetching import Fetcher, FetchResult, FetchSpec, How
from dmq.broker.markers import write_marker
from dmq.broker.multiraft.newest import Reads
from dmq.broker.timers import Timers
from dmq.errors import ErrorCode
from dmq.machines.transactions.commands import TxnMarker
from dmq.records import TRANSACTIONAL, Record, build_batch, scan
from dmq.types import NIL_UUID


@pytest.fixture
def broker() -> FakeBroker:
    return FakeBroker()


def spec(topic: str = "t", index: int = 0, offset: int = 0, **more: int) -> FetchSpec:
    return FetchSpec(topic, NIL_UUID, index, offset, more.pop("bytes_max", 1 << 20), **more)


class Reader:
    """Collects the answers of fetches."""

    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.answers: list[list[FetchResult]] = []

    def fetch(
        self, *specs: FetchSpec, bytes_min: int = 1, bytes_max: int = 1 << 20, wait: int = 500
    ):
        deadline = self.broker.now + wait if wait else None
        return self.broker.fetcher.fetch(
            list(specs),
            bytes_min=bytes_min,
            bytes_max=bytes_max,
            deadline=deadline,
            on_done=self.answers.append,
        )

    def sizes(self) -> list[int]:
        (results,) = self.answers
        return [0 if r.records is None else len(r.records) for r in results]


def fill(broker: FakeBroker, topic: str, index: int = 0, count: int = 1, size: int = 100) -> int:
    """Append batches; bytes of one."""
    partition = broker.find(topic, index)
    for _ in range(count):
        partition.append(broker.batch(bytes(size)), broker.now)
    broker.turn()
    return len(broker.batch(bytes(size)))


def test_what_is_there_is_answered_at_once(broker: FakeBroker) -> None:
    broker.create("t")
    one = fill(broker, "t", count=3)
    reader = Reader(broker)
    reader.fetch(spec())
    assert reader.sizes() == [3 * one]
    assert reader.answers[0][0].high_watermark == 3


def test_an_empty_fetch_waits_for_bytes_and_not_longer(broker: FakeBroker) -> None:
    broker.create("t")
    reader = Reader(broker)
    reader.fetch(spec())
    assert reader.answers == []
    assert broker.fetcher.parked_count == 1
    one = fill(broker, "t")
    assert reader.sizes() == [one]
    assert broker.fetcher.parked_count == 0
    broker.pass_time(1000)
    assert len(reader.answers) == 1, "answered once"


def test_it_waits_for_enough_bytes(broker: FakeBroker) -> None:
    broker.create("t", 2)
    one = len(broker.batch(bytes(100)))
    reader = Reader(broker)
    reader.fetch(spec(), spec(index=1), bytes_min=2 * one)
    fill(broker, "t", 0)
    assert reader.answers == []
    fill(broker, "t", 1)
    assert reader.sizes() == [one, one]


def test_patience_ends_with_what_there_is(broker: FakeBroker) -> None:
    broker.create("t")
    one = fill(broker, "t")
    reader = Reader(broker)
    reader.fetch(spec(), bytes_min=10_000)
    broker.pass_time(499)
    assert reader.answers == []
    broker.pass_time(1)
    assert reader.sizes() == [one]


def test_no_patience_at_all(broker: FakeBroker) -> None:
    broker.create("t")
    reader = Reader(broker)
    reader.fetch(spec(), wait=0)
    assert reader.sizes() == [0]


def test_an_error_is_told_at_once(broker: FakeBroker) -> None:
    broker.create("t")
    reader = Reader(broker)
    reader.fetch(spec(), spec("nowhere"), spec(offset=9), bytes_min=1000)
    (results,) = reader.answers
    codes = [result.code for result in results]
    assert codes[0] == ErrorCode.NONE
    assert codes[1:] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OFFSET_OUT_OF_RANGE]


def test_an_out_of_range_offset_is_told_at_once_alone(broker: FakeBroker) -> None:
    broker.create("t")
    reader = Reader(broker)
    reader.fetch(spec(offset=9), bytes_min=1000)
    assert [result.code for result in reader.answers[0]] == [ErrorCode.OFFSET_OUT_OF_RANGE]


def test_the_first_batch_is_whole_even_if_it_is_too_large(broker: FakeBroker) -> None:
    broker.create("t", 2)
    one = fill(broker, "t", 0, size=5000)
    fill(broker, "t", 1, size=5000)
    reader = Reader(broker)
    reader.fetch(spec(bytes_max=10), spec(index=1, bytes_max=10), bytes_max=10)
    assert reader.sizes() == [one, 0]


def test_the_bytes_of_all_partitions_are_bounded(broker: FakeBroker) -> None:
    broker.create("t", 3)
    one, *_ = [fill(broker, "t", n, count=10) for n in range(3)]
    reader = Reader(broker)
    reader.fetch(*[spec(index=n) for n in range(3)], bytes_max=15 * one)
    assert reader.sizes() == [10 * one, 5 * one, 0]


def test_cancelling_leaves_nothing_behind(broker: FakeBroker) -> None:
    broker.create("t")
    reader = Reader(broker)
    cancel = reader.fetch(spec())
    assert cancel is not None
    cancel()
    assert broker.fetcher.parked_count == 0
    fill(broker, "t")
    broker.pass_time(1000)
    assert reader.answers == []


def test_a_deleted_topic_wakes_its_readers(broker: FakeBroker) -> None:
    broker.create("t")
    reader = Reader(broker)
    reader.fetch(spec())
    broker.service.admin.delete_topics([("t", NIL_UUID)])
    broker.turn()
    assert [result.code for result in reader.answers[0]] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_reader_of_another_history_is_told_where_it_parts(broker: FakeBroker) -> None:
    broker.create("t")
    fill(broker, "t", count=2)
    broker = broker.restart()
    fill(broker, "t", count=3)
    reader = Reader(broker)
    reader.fetch(spec(offset=4, last_fetched_epoch=1))
    assert reader.answers[0][0].diverging == (1, 2)


def test_too_many_waiting_fetches_are_answered_at_once() -> None:
    broker = FakeBroker(**{"waiters.max": 10})
    broker.create("t")
    reader = Reader(broker)
    for _ in range(11):
        reader.fetch(spec())
    assert broker.fetcher.parked_count == 10
    assert len(reader.answers) == 1


def test_a_reader_in_a_rack_is_sent_there_whatever_it_reads(broker: FakeBroker) -> None:
    broker.create("t")
    fill(broker, "t", count=3)
    partition = broker.find("t", 0)
    write_transaction(broker, 7)
    fetcher = Fetcher(broker.replicas.find, Timers(), 0, lambda partition, rack, offset: 3)
    for is_committed, stable in ((False, None), (True, 3)):
        results, size, is_final = fetcher.read([spec(offset=1)], 1000, How("far", is_committed))
        assert (results[0].preferred, size, is_final) == (3, 0, True)
        assert (results[0].high_watermark, results[0].last_stable_offset) == (4, stable)
    answer = partition.trim(2)
    broker.turn()
    assert answer.get() == 2
    for is_committed in (False, True):
        (result,), _, _ = fetcher.read([spec(offset=1)], 1000, How("far", is_committed))
        assert result.code == ErrorCode.OFFSET_OUT_OF_RANGE, "nobody has it: the leader says so"
        assert result.preferred == -1


def write_transaction(broker: FakeBroker, producer: int) -> None:
    """The first batch of a transaction, which stays open."""
    partition = broker.find("t", 0)
    book = partition.book
    assert book is not None
    book.guards.vouch(producer, book.guards.ask(producer, 0, 0, broker.now), 1)
    batch = build_batch(
        [Record(0, broker.now, None, bytes(2000))],
        attributes=TRANSACTIONAL,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0,
    )
    partition.append(memoryview(batch), broker.now)
    broker.turn()


def test_a_reader_far_behind_is_told_of_what_was_aborted_in_its_answer_only(
    broker: FakeBroker,
) -> None:
    broker.create("t")
    partition = broker.find("t", 0)
    count = 40
    for producer in range(count):
        write_transaction(broker, producer)
        write_marker(partition, TxnMarker("t", 0, producer, 0, False, 0, 1), broker.now, broker.now)
        broker.turn()
    assert partition.last_stable_offset() == 2 * count
    read, offset = 0, 0
    told: set[int] = set()
    while offset < 2 * count:
        results, _, _ = broker.fetcher.read(
            [spec(offset=offset, bytes_max=9000)], 9000, How(None, True)
        )
        (result,) = results
        assert result.records is not None
        assert result.aborted is not None
        data = b"".join(each.pread() for each in result.records.slices)
        whole = [header for _, header in scan(data)]
        writers = {header.producer_id for header in whole if not header.is_control}
        assert writers <= {each.producer_id for each in result.aborted}
        assert len(result.aborted) < count // 3
        told |= writers
        read, offset = read + 1, whole[-1].base_offset + 1
    assert told == set(range(count))
    assert read > count // 10


def test_beyond_the_end_of_a_leader_that_is_not_sure_to_be_the_newest_a_fetch_waits(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An heir was told to stand and did not: until the next epoch there is no lease, only rounds."""
    broker.create("t")
    fill(broker, "t")
    rounds = [0]
    monkeypatch.setattr(Reads, "is_newest", lambda self, replica, asked_at: asked_at <= rounds[0])
    reader = Reader(broker)
    reader.fetch(spec(offset=7))
    assert reader.answers == []
    rounds[0] = broker.now + 100  # Answered by a majority.
    broker.pass_time(500)
    assert [result.code for result in reader.answers[0]] == [ErrorCode.OFFSET_OUT_OF_RANGE]
    reader.answers.clear()
    reader.fetch(spec(offset=7))
    broker.pass_time(500)
    assert [result.code for result in reader.answers[0]] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    reader.answers.clear()
    reader.fetch(spec(offset=7), wait=0)
    assert [result.code for result in reader.answers[0]] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
