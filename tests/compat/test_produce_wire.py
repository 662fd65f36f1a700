"""Produce at the wire: every version, and what is refused with which code."""

import uuid

import pytest
from compat import batches
from compat.conftest import NewTopic
from compat.matrix import now_ms
from compat.requests import PRODUCE_BY_ID, fetch, produce, produce_request
from compat.wire import (
    CORRUPT_MESSAGE,
    INVALID_RECORD,
    INVALID_REQUIRED_ACKS,
    INVALID_TIMESTAMP,
    MESSAGE_TOO_LARGE,
    NONE,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSUPPORTED_COMPRESSION_TYPE,
    Connection,
    EndOfConnectionError,
    only,
    topic_id,
)
from kafka.protocol.metadata import ApiVersionsRequest

GOOD = batches.build([b"first", b"second"])


@pytest.mark.parametrize("version", range(3, 14))
def test_every_version_appends_and_says_where(
    version: int, bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    with Connection(bootstrap) as connection:
        name = topic if version < PRODUCE_BY_ID else ""
        identity = topic_id(connection, topic)
        for base_offset in (0, 2):
            answer = produce(connection, name, GOOD, version=version, topic_id=identity)
            assert (answer.index, answer.error_code) == (0, NONE)
            assert answer.base_offset == base_offset
            assert answer.log_append_time_ms == -1
            assert version < 5 or answer.log_start_offset == 0
            assert version < 8 or (answer.record_errors, answer.error_message) == ([], None)
        found = batches.records_in(fetch(connection, topic, offset=0).records)
        assert [value for _, _, value in found] == [b"first", b"second"] * 2


@pytest.mark.parametrize("version", range(3))
def test_versions_without_batches_end_the_connection(
    version: int, bootstrap: str, new_topic: NewTopic
) -> None:
    """They are advertised, for old clients' sake, but not served (KAFKA-18659)."""
    topic = new_topic()
    with Connection(bootstrap) as connection, pytest.raises(EndOfConnectionError):
        produce(connection, topic, GOOD, version=version)


def test_the_batch_is_kept_but_for_its_offset_and_epoch(
    bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    odd = batches.changed(GOOD, batches.LEADER_EPOCH, 77)
    with Connection(bootstrap) as connection:
        for _ in range(2):
            assert produce(connection, topic, odd).error_code == NONE
        kept = batches.batches_in(fetch(connection, topic, offset=0).records)
    assert [batches.field_of(batch, batches.BASE_OFFSET) for batch in kept] == [0, 2]
    assert {batches.field_of(batch, batches.LEADER_EPOCH) for batch in kept} != {77}
    assert [batch[16:] for batch in kept] == [GOOD[16:]] * 2


def test_several_partitions_each_have_their_own_answer(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=3)
    bad = batches.changed(GOOD, batches.CRC, 1, is_sealed=False)
    with Connection(bootstrap) as connection:
        request = produce_request(topic, {0: GOOD, 1: bad, 9: GOOD, 2: GOOD})
        answers = only(connection.call(request, 9).responses).partition_responses
    codes = {answer.index: answer.error_code for answer in answers}
    expected = {0: NONE, 1: CORRUPT_MESSAGE, 2: NONE, 9: UNKNOWN_TOPIC_OR_PARTITION}
    assert codes == expected


REFUSED = {
    "wrong checksum": (batches.changed(GOOD, batches.CRC, 1, is_sealed=False), CORRUPT_MESSAGE),
    "message format 0": (batches.build_old(0), INVALID_RECORD),
    "message format 1": (batches.build_old(1), INVALID_RECORD),
    "message format 1, its time where a batch says zstd": (
        batches.build_old(1, timestamp_ms=4 << 24),
        INVALID_RECORD,
    ),
    "message format 3": (batches.changed(GOOD, batches.MAGIC, 3), CORRUPT_MESSAGE),
    "count above last delta": (batches.changed(GOOD, batches.COUNT, 3), INVALID_RECORD),
    "count below last delta": (
        batches.changed(GOOD, batches.LAST_OFFSET_DELTA, 5),
        INVALID_RECORD,
    ),
    "count of zero": (batches.changed(GOOD, batches.COUNT, 0), INVALID_RECORD),
    "negative count": (batches.changed(GOOD, batches.COUNT, -1), INVALID_RECORD),
    "two batches": (GOOD + GOOD, INVALID_RECORD),
    "base offset not zero": (batches.changed(GOOD, batches.BASE_OFFSET, 7), INVALID_RECORD),
    "length beyond the end": (
        batches.changed(GOOD, batches.LENGTH, len(GOOD), is_sealed=False),
        INVALID_RECORD,
    ),
    "length too small": (
        batches.changed(GOOD, batches.LENGTH, 10, is_sealed=False),
        CORRUPT_MESSAGE,
    ),
    "negative length": (
        batches.changed(GOOD, batches.LENGTH, -1, is_sealed=False),
        CORRUPT_MESSAGE,
    ),
    "nothing": (b"", INVALID_RECORD),
    "control batch": (batches.changed(GOOD, batches.ATTRIBUTES, 0x20), INVALID_RECORD),
    "from tomorrow": (
        batches.build([b"x"], timestamp_ms=now_ms() + 86_400_000),
        INVALID_TIMESTAMP,
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_bad_batch_is_refused_and_changes_nothing(
    what: str, bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    records, code = REFUSED[what]
    with Connection(bootstrap) as connection:
        for version in (3, 9):
            answer = produce(connection, topic, records, version=version)
            assert (answer.error_code, answer.base_offset) == (code, -1)
        assert produce(connection, topic, GOOD).base_offset == 0


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_refused(codec: int, bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    records = batches.changed(GOOD, batches.ATTRIBUTES, codec)
    with Connection(bootstrap) as connection:
        assert produce(connection, topic, records).error_code != NONE
        assert produce(connection, topic, GOOD).base_offset == 0


def test_zstd_needs_version_7(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    records = batches.build([b"x" * 100], compression="zstd")
    with Connection(bootstrap) as connection:
        refused = produce(connection, topic, records, version=6)
        assert refused.error_code == UNSUPPORTED_COMPRESSION_TYPE
        assert produce(connection, topic, records, version=7).base_offset == 0


@pytest.mark.parametrize("acks", [2, -2])
def test_acks_are_all_one_or_none(acks: int, bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    with Connection(bootstrap) as connection:
        assert produce(connection, topic, GOOD, acks=acks).error_code == INVALID_REQUIRED_ACKS
        assert produce(connection, topic, GOOD).base_offset == 0


def test_without_acks_there_is_no_answer(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    with Connection(bootstrap) as connection:
        connection.send(produce_request(topic, {0: GOOD}, acks=0), 9)
        next_one = connection.send(ApiVersionsRequest(), 0)
        assert connection.receive(next_one).error_code == NONE
        assert produce(connection, topic, GOOD).base_offset == 2


def test_without_acks_an_error_ends_the_connection(bootstrap: str, new_topic: NewTopic) -> None:
    """There is no answer that could carry it, and the client has to notice."""
    topic = new_topic()
    with Connection(bootstrap) as connection:
        connection.send(produce_request(topic, {9: GOOD}, acks=0), 9)
        assert connection.is_closed_by_peer()


@pytest.mark.parametrize(("name", "partition"), [("no-such-topic", 0), (None, 9), (None, -1)])
def test_produce_creates_nothing(
    name: str | None, partition: int, bootstrap: str, new_topic: NewTopic
) -> None:
    topic = name or new_topic()
    with Connection(bootstrap) as connection:
        answer = produce(connection, topic, GOOD, partition=partition)
    assert answer.error_code == UNKNOWN_TOPIC_OR_PARTITION


def test_an_unknown_topic_id_is_said_to_be_one(bootstrap: str) -> None:
    with Connection(bootstrap) as connection:
        answer = produce(connection, "", GOOD, version=PRODUCE_BY_ID, topic_id=uuid.uuid4())
    assert answer.error_code == UNKNOWN_TOPIC_ID


def test_a_batch_above_the_limit_is_too_large(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(max_message_bytes=1000)
    with Connection(bootstrap) as connection:
        room = 1000 - len(batches.build([b""])) - 2
        large, exact = batches.build([b"x" * (room + 1)]), batches.build([b"x" * room])
        assert (len(large), len(exact)) == (1001, 1000)
        assert produce(connection, topic, large).error_code == MESSAGE_TOO_LARGE
        assert produce(connection, topic, exact).base_offset == 0


def test_log_append_time_is_the_brokers(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(message_timestamp_type="LogAppendTime")
    long_ago = batches.build([b"a", b"b"], timestamp_ms=1000)
    with Connection(bootstrap) as connection:
        before_ms = now_ms()
        answer = produce(connection, topic, long_ago)
        after_ms = now_ms()
        assert answer.error_code == NONE
        assert before_ms <= answer.log_append_time_ms <= after_ms
        (kept,) = batches.batches_in(fetch(connection, topic, offset=0).records)
    assert batches.field_of(kept, batches.ATTRIBUTES) & 0x08
    assert batches.field_of(kept, batches.MAX_TIMESTAMP) == answer.log_append_time_ms
    stamps = [timestamp_ms for _, timestamp_ms, _ in batches.records_in(kept)]
    assert stamps == [answer.log_append_time_ms] * 2


@pytest.mark.parametrize(
    ("config", "distance_ms"),
    [("message_timestamp_before_max_ms", -60_000), ("message_timestamp_after_max_ms", 60_000)],
)
def test_timestamps_too_far_away_are_refused(
    config: str, distance_ms: int, bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic(**{config: 10_000})
    with Connection(bootstrap) as connection:
        far = batches.build([b"x"], timestamp_ms=now_ms() + distance_ms)
        answer = produce(connection, topic, far)
        assert answer.error_code == INVALID_TIMESTAMP
        assert answer.error_message
        assert produce(connection, topic, batches.build([b"x"])).base_offset == 0
