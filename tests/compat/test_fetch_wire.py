"""Fetch at the wire: every version, mid-batch offsets, limits in bytes, waiting, refusals."""

import threading
import time
import uuid

import pytest
from compat import batches
from compat.clients.client import Client, Record
from compat.conftest import NewTopic
from compat.requests import FETCH_BY_ID, UNLIMITED, fetch, fetch_request, fetch_topic, produce
from compat.wire import (
    FENCED_LEADER_EPOCH,
    NONE,
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_LEADER_EPOCH,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    Connection,
    only,
    topic_id,
)
from confluent_kafka import Consumer, TopicPartition


@pytest.fixture(scope="module")
def three_batches(bootstrap: str, new_topic: NewTopic) -> str:
    """A topic with records 0-9, 10-19 and 20-29, in three batches."""
    topic = new_topic()
    with Connection(bootstrap) as connection:
        for first in (0, 10, 20):
            values: list[bytes | None] = [b"record %d" % i for i in range(first, first + 10)]
            assert produce(connection, topic, batches.build(values)).base_offset == first
    return topic


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_reads_from_the_batch_that_has_the_offset(
    version: int, bootstrap: str, three_batches: str
) -> None:
    with Connection(bootstrap) as connection:
        by_id = {"topic_id": topic_id(connection, three_batches)}
        answer = fetch(
            connection,
            three_batches if version < FETCH_BY_ID else "",
            offset=15,
            version=version,
            partition_options=by_id if version >= FETCH_BY_ID else {},
        )
    assert (answer.partition_index, answer.error_code) == (0, NONE)
    assert (answer.high_watermark, answer.last_stable_offset) == (30, 30)
    assert version < 5 or answer.log_start_offset == 0
    assert version < 11 or answer.preferred_read_replica == -1
    found = batches.records_in(answer.records)
    assert [offset for offset, _, _ in found] == list(range(10, 30))
    assert found[5][2] == b"record 15"


@pytest.mark.parametrize("isolation_level", [0, 1])
def test_without_transactions_both_isolation_levels_read_the_same(
    isolation_level: int, bootstrap: str, three_batches: str
) -> None:
    with Connection(bootstrap) as connection:
        answer = fetch(connection, three_batches, offset=0, isolation_level=isolation_level)
    assert len(batches.records_in(answer.records)) == 30
    # Read uncommitted says null, read committed a list.
    assert answer.aborted_transactions == (None if isolation_level == 0 else [])


def test_the_end_of_the_log_is_empty_and_no_error(bootstrap: str, three_batches: str) -> None:
    with Connection(bootstrap) as connection:
        answer = fetch(connection, three_batches, offset=30)
    assert (answer.error_code, answer.high_watermark, bytes(answer.records)) == (NONE, 30, b"")


@pytest.mark.parametrize("offset", [31, 1 << 40, -5])
def test_offsets_outside_the_log_are_out_of_range(
    offset: int, bootstrap: str, three_batches: str
) -> None:
    with Connection(bootstrap) as connection:
        answer = fetch(connection, three_batches, offset=offset)
    assert answer.error_code == OFFSET_OUT_OF_RANGE
    assert answer.high_watermark == -1


@pytest.mark.parametrize(("name", "partition"), [("no-such-topic", 0), (None, 7)])
def test_what_is_not_there_is_unknown(
    name: str | None, partition: int, bootstrap: str, three_batches: str
) -> None:
    with Connection(bootstrap) as connection:
        answer = fetch(connection, name or three_batches, offset=0, partition=partition)
    assert answer.error_code == UNKNOWN_TOPIC_OR_PARTITION


def test_an_unknown_topic_id_is_said_to_be_one(bootstrap: str) -> None:
    with Connection(bootstrap) as connection:
        wanted = fetch_topic("", {0: 0}, topic_id=uuid.uuid4())
        answer = connection.call(fetch_request([wanted]), FETCH_BY_ID)
    assert answer.error_code == NONE
    assert only(only(answer.responses).partitions).error_code == UNKNOWN_TOPIC_ID


@pytest.mark.parametrize(("ahead", "code"), [(1, UNKNOWN_LEADER_EPOCH), (-1, FENCED_LEADER_EPOCH)])
def test_an_epoch_that_is_not_the_leaders_is_fenced(
    ahead: int, code: int, bootstrap: str, three_batches: str
) -> None:
    with Connection(bootstrap) as connection:
        kept = batches.batches_in(fetch(connection, three_batches, offset=0).records)
        epoch = batches.field_of(kept[0], batches.LEADER_EPOCH)
        if epoch + ahead < 0:
            pytest.skip("the first epoch has none before it")
        options = {"current_leader_epoch": epoch + ahead}
        answer = fetch(connection, three_batches, offset=0, partition_options=options)
    assert answer.error_code == code


def test_the_first_batch_comes_whole_however_small_the_limits(
    bootstrap: str, three_batches: str
) -> None:
    """Else a consumer whose limits are below one batch could never go on (KIP-74)."""
    with Connection(bootstrap) as connection:
        limits = {"partition_max_bytes": 1}
        answer = fetch(connection, three_batches, offset=12, partition_options=limits, max_bytes=1)
    offsets = [offset for offset, _, _ in batches.records_in(answer.records)]
    assert offsets == list(range(10, 20))


def test_a_partition_gives_no_more_than_its_limit(bootstrap: str, three_batches: str) -> None:
    with Connection(bootstrap) as connection:
        whole = bytes(fetch(connection, three_batches, offset=0).records)
        one = len(batches.batches_in(whole)[0])
        limits = {"partition_max_bytes": one + one // 2}
        part = bytes(fetch(connection, three_batches, offset=0, partition_options=limits).records)
    # What is cut off in the middle of a batch may come along; a client skips it.
    assert one <= len(part) <= one + one // 2
    assert part == whole[: len(part)]


def test_the_whole_answer_keeps_to_its_limit(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=4)
    batch = batches.build([b"x" * 100_000])
    with Connection(bootstrap) as connection:
        for partition in range(4):
            assert produce(connection, topic, batch, partition=partition).error_code == NONE
        wanted = fetch_topic(topic, dict.fromkeys(range(4), 0))
        answer = connection.call(fetch_request([wanted], max_bytes=250_000), 12)
    sizes = [len(part.records) for part in only(answer.responses).partitions]
    assert sizes[0] == len(batch)
    assert len(batch) <= sum(sizes) <= 250_000


def test_absurd_limits_are_as_good_as_any(bootstrap: str, three_batches: str) -> None:
    with Connection(bootstrap) as connection:
        limits = {"partition_max_bytes": UNLIMITED}
        answer = fetch(
            connection, three_batches, offset=0, partition_options=limits, max_bytes=UNLIMITED
        )
    assert len(batches.records_in(answer.records)) == 30


def test_a_waiting_fetch_is_answered_when_a_record_comes(
    bootstrap: str, new_topic: NewTopic
) -> None:
    """By the event, not by its time: the fetch may wait a minute, the connection waits for less."""
    topic = new_topic()
    with Connection(bootstrap) as waiting, Connection(bootstrap) as other:
        request = fetch_request([fetch_topic(topic, {0: 0})], max_wait_ms=60_000, min_bytes=1)
        ticket = waiting.send(request, 12)
        assert produce(other, topic, batches.build([b"at last"])).error_code == NONE
        part = only(only(waiting.receive(ticket).responses).partitions)
    assert [value for _, _, value in batches.records_in(part.records)] == [b"at last"]


def test_a_waiting_fetch_wants_all_its_bytes(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    batch = batches.build([b"x" * 1000])
    with Connection(bootstrap) as waiting, Connection(bootstrap) as other:
        wanted = fetch_topic(topic, {0: 0, 1: 0})
        request = fetch_request([wanted], max_wait_ms=60_000, min_bytes=len(batch) + 1)
        ticket = waiting.send(request, 12)
        assert produce(other, topic, batch).error_code == NONE
        waiting.socket.settimeout(0.3)
        with pytest.raises(TimeoutError):
            waiting.socket.recv(1)
        waiting.socket.settimeout(15)
        assert produce(other, topic, batch, partition=1).error_code == NONE
        parts = only(waiting.receive(ticket).responses).partitions
    assert sorted(len(part.records) for part in parts) == [len(batch)] * 2


def test_a_waiting_fetch_ends_when_its_time_is_over(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    with Connection(bootstrap) as connection:
        started = time.monotonic()
        answer = fetch(connection, topic, offset=0, max_wait_ms=400, min_bytes=1)
        waited_s = time.monotonic() - started
    assert bytes(answer.records) == b""
    assert 0.35 <= waited_s < 10


def test_a_fetch_does_not_wait_for_more_than_it_may_have(
    bootstrap: str, three_batches: str
) -> None:
    with Connection(bootstrap) as connection:
        started = time.monotonic()
        answer = fetch(
            connection, three_batches, offset=0, max_wait_ms=60_000, min_bytes=1 << 20, max_bytes=10
        )
        assert time.monotonic() - started < 10
    assert len(batches.batches_in(answer.records)) == 1


def test_of_a_partition_asked_for_twice_the_last_word_counts(
    bootstrap: str, three_batches: str
) -> None:
    wanted = [fetch_topic(three_batches, {0: offset}) for offset in (0, 20)]
    with Connection(bootstrap) as connection:
        answer = connection.call(fetch_request(wanted), 12)
    part = only(only(answer.responses).partitions)
    assert batches.records_in(part.records)[0][0] == 20


def test_an_error_does_not_wait(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    with Connection(bootstrap) as connection:
        started = time.monotonic()
        answer = fetch(connection, topic, offset=99, max_wait_ms=60_000, min_bytes=1)
        assert time.monotonic() - started < 10
    assert answer.error_code == OFFSET_OUT_OF_RANGE


def test_a_consumer_that_waits_sees_the_record_at_once(
    confluent: Client, bootstrap: str, new_topic: NewTopic
) -> None:
    """Seen through a client whose fetches wait for up to thirty seconds."""
    topic = new_topic()
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 30_000,
            "socket.timeout.ms": 60_000,
        }
    )
    arrived: list[float] = []
    consumer.assign([TopicPartition(topic, 0, 0)])
    # The first record shows that the consumer fetches; the second one finds a parked fetch.
    confluent.produce(topic, [Record(None, b"first")])
    assert consumer.poll(30) is not None

    def wait() -> None:
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        arrived.append(time.monotonic())

    thread = threading.Thread(target=wait)
    thread.start()
    confluent.produce(topic, [Record(None, b"second")])
    produced = time.monotonic()
    thread.join()
    consumer.close()
    assert arrived[0] - produced < 20
