"""ListOffsets at the wire, every version, and offsets as each client asks for them."""

import time

import pytest
from compat import batches
from compat.clients.client import Client, Record
from compat.conftest import NewTopic
from compat.matrix import CONSUMERS, PRODUCERS, every, now_ms
from compat.requests import produce
from compat.topics import EARLIEST, LATEST, MAX_TIMESTAMP, list_offsets
from compat.wire import (
    NONE,
    UNKNOWN_LEADER_EPOCH,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSUPPORTED_VERSION,
    Connection,
    only,
)
from kafka.protocol.consumer import ListOffsetsRequest, OffsetForLeaderEpochRequest

STEP_MS = 1000
INVALID_REQUEST = 42


@pytest.fixture(scope="module")
def timed(bootstrap: str, new_topic: NewTopic) -> tuple[str, int]:
    """A topic of 30 records in three batches, a second apart, and the time of the first."""
    topic = new_topic()
    first_ms = now_ms() - 600_000
    with Connection(bootstrap) as connection:
        for start in (0, 10, 20):
            batch = batches.build_spread(first_ms + start * STEP_MS, STEP_MS, 10)
            assert produce(connection, topic, batch).base_offset == start
    return topic, first_ms


@pytest.mark.parametrize("version", range(1, 12))
def test_every_version_finds_the_ends_and_times(
    version: int, bootstrap: str, timed: tuple[str, int]
) -> None:
    topic, first_ms = timed
    with Connection(bootstrap) as connection:

        def ask(timestamp_ms: int) -> tuple[int, int]:
            answer = only(list_offsets(connection, topic, [0], timestamp_ms, version))
            assert (answer.partition_index, answer.error_code) == (0, NONE)
            return answer.offset, answer.timestamp

        assert ask(EARLIEST) == (0, -1)
        assert ask(LATEST) == (30, -1)
        assert ask(first_ms) == (0, first_ms)
        assert ask(first_ms - 60_000) == (0, first_ms)
        # Inside a batch: the record, not the batch.
        assert ask(first_ms + 14 * STEP_MS - 1) == (14, first_ms + 14 * STEP_MS)
        assert ask(first_ms + 14 * STEP_MS) == (14, first_ms + 14 * STEP_MS)
        assert ask(first_ms + 14 * STEP_MS + 1) == (15, first_ms + 15 * STEP_MS)
        assert ask(first_ms + 29 * STEP_MS + 1) == (-1, -1)
        if version >= 7:
            assert ask(MAX_TIMESTAMP) == (29, first_ms + 29 * STEP_MS)


@pytest.mark.parametrize("compression", batches.CODECS)
def test_a_time_is_found_inside_compressed_batches(
    compression: str, bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    first_ms = now_ms() - 600_000
    with Connection(bootstrap) as connection:
        batch = batches.build_spread(first_ms, STEP_MS, 10, compression=compression)
        assert produce(connection, topic, batch).error_code == NONE
        found = only(list_offsets(connection, topic, [0], first_ms + 3 * STEP_MS))
    assert (found.offset, found.timestamp) == (3, first_ms + 3 * STEP_MS)


def test_times_out_of_order_find_the_first_record_that_is_late_enough(
    bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    base_ms = now_ms() - 600_000
    with Connection(bootstrap) as connection:
        for distance in (5000, 1000, 9000, 3000):
            batch = batches.build([b"x"], timestamp_ms=base_ms + distance)
            assert produce(connection, topic, batch).error_code == NONE
        found = {
            distance: only(list_offsets(connection, topic, [0], base_ms + distance)).offset
            for distance in (0, 1001, 5000, 5001, 9000, 9001)
        }
        latest = only(list_offsets(connection, topic, [0], MAX_TIMESTAMP))
    assert found == {0: 0, 1001: 0, 5000: 0, 5001: 2, 9000: 2, 9001: -1}
    assert (latest.offset, latest.timestamp) == (2, base_ms + 9000)


def test_an_empty_partition_has_ends_but_no_times(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    with Connection(bootstrap) as connection:
        for timestamp_ms, offset in ((EARLIEST, 0), (LATEST, 0), (MAX_TIMESTAMP, -1), (0, -1)):
            found = only(list_offsets(connection, topic, [0], timestamp_ms))
            assert (found.error_code, found.offset) == (NONE, offset)


@pytest.mark.parametrize(
    ("name", "version"), [(MAX_TIMESTAMP, 6), (-4, 7), (-5, 8), (-6, 10), (-7, 11)]
)
def test_a_name_of_a_later_version_is_refused(
    name: int, version: int, bootstrap: str, timed: tuple[str, int]
) -> None:
    topic, _ = timed
    with Connection(bootstrap) as connection:
        for asked in (topic, "not-there"):
            answer = only(list_offsets(connection, asked, [0], name, version))
            assert (answer.error_code, answer.offset) == (UNSUPPORTED_VERSION, -1)


def test_a_partition_asked_for_twice_is_refused_once(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    with Connection(bootstrap) as connection:
        answers = list_offsets(connection, topic, [0, 1, 0], LATEST, 7)
    found = {answer.partition_index: answer.error_code for answer in answers}
    assert (len(answers), found) == (2, {0: INVALID_REQUEST, 1: NONE})


def test_what_is_not_there_is_unknown(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    with Connection(bootstrap) as connection:
        assert _code(connection, topic, 5) == UNKNOWN_TOPIC_OR_PARTITION
        assert _code(connection, f"{topic}-not", 0) == UNKNOWN_TOPIC_OR_PARTITION
        assert _code(connection, topic, 0, epoch=1 << 20) == UNKNOWN_LEADER_EPOCH


def _code(connection: Connection, topic: str, partition: int, epoch: int = -1) -> int:
    kind = ListOffsetsRequest.ListOffsetsTopic
    wanted = kind.ListOffsetsPartition(
        partition_index=partition, current_leader_epoch=epoch, timestamp=LATEST
    )
    request = ListOffsetsRequest(replica_id=-1, topics=[kind(name=topic, partitions=[wanted])])
    answer = only(only(connection.call(request, 7).topics).partitions)
    return int(answer.error_code)


@pytest.mark.parametrize("version", range(2, 5))
def test_the_end_of_an_epoch_is_told(version: int, bootstrap: str, timed: tuple[str, int]) -> None:
    topic, _ = timed
    kind = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    with Connection(bootstrap) as connection:
        current = only(list_offsets(connection, topic, [0], LATEST)).leader_epoch
        wanted = kind.OffsetForLeaderPartition(
            partition=0, current_leader_epoch=current, leader_epoch=current
        )
        request = OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[kind(topic=topic, partitions=[wanted])]
        )
        answer = only(only(connection.call(request, version).topics).partitions)
    assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (NONE, current, 30)


@every(tuple(name for name in PRODUCERS if name not in CONSUMERS) + CONSUMERS)
def test_every_client_finds_the_ends_and_a_time(client: Client, timed: tuple[str, int]) -> None:
    topic, first_ms = timed
    middle_ms = first_ms + 14 * STEP_MS
    assert client.offsets(topic, timestamp_ms=middle_ms) == (0, 30, 14)
    assert client.offsets(topic, timestamp_ms=middle_ms + 1) == (0, 30, 15)
    beginning, end, late = client.offsets(topic, timestamp_ms=int(time.time() * 1000))
    # kafkajs and librdkafka say the end where the others say none.
    assert (beginning, end) == (0, 30)
    assert late in (None, 30)


@every(CONSUMERS)
def test_a_client_starts_in_the_middle_of_a_batch(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic()
    records = [Record(None, b"record %d" % index) for index in range(100)]
    client.produce(topic, records, compression="gzip")
    found = client.consume(topic, offset=37, count=63)
    assert [stored.offset for stored in found] == list(range(37, 100))
    assert found[0].record.value == b"record 37"
