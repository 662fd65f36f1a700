"""Idempotent producers: numbered batches at the wire, built by aiokafka, sent by kafka-python.

What a client would do after a lost answer is done here by hand: the same bytes again, over the same
connection and over another. Runs unchanged against Apache Kafka with DMQ_TEST_BOOTSTRAP.
"""

from typing import Any

import pytest
from compat import batches, topics
from compat.clients.client import Client, Record
from compat.conftest import NewTopic
from compat.eventually import eventually
from compat.matrix import every
from compat.requests import fetch, produce
from compat.wire import NONE, Connection
from kafka.protocol.producer import InitProducerIdRequest

COORDINATOR_LOAD_IN_PROGRESS = 14
OUT_OF_ORDER_SEQUENCE_NUMBER = 45
INVALID_PRODUCER_EPOCH = 47
TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
TRANSACTIONAL = 0x10
# Where a batch says who made it (magic 2).
PRODUCER_ID = (43, ">q")
PRODUCER_EPOCH = (51, ">h")
BASE_SEQUENCE = (53, ">i")
WINDOW = 5


def producer_id(connection: Connection) -> int:
    request = InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
    )

    def told() -> Any:
        # A broker that has just begun has no ids yet, and asks for patience.
        answer = connection.call(request, 4)
        return None if answer.error_code == COORDINATOR_LOAD_IN_PROGRESS else answer

    answer = eventually(told, "the broker has producer ids")
    assert answer.error_code == NONE
    return int(answer.producer_id)


def numbered(
    producer: int, sequence: int, values: list[bytes | None], *, epoch: int = 0, **options: Any
) -> bytes:
    batch = batches.build(values, **options)
    batch = batches.changed(batch, PRODUCER_ID, producer)
    batch = batches.changed(batch, PRODUCER_EPOCH, epoch)
    return batches.changed(batch, BASE_SEQUENCE, sequence)


def values_of(connection: Connection, topic: str) -> list[bytes | None]:
    answer = fetch(connection, topic, offset=0)
    return [value for _, _, value in batches.records_in(answer.records)]


@pytest.mark.parametrize("version", [3, 9, 12])
@pytest.mark.parametrize("has_producer", [False, True])
def test_a_transactions_batch_needs_its_name(
    has_producer: bool, version: int, bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    with Connection(bootstrap) as connection:
        batch = batches.build([b"whose?"])
        if has_producer:
            batch = numbered(producer_id(connection), 0, [b"whose?"])
        batch = batches.changed(batch, batches.ATTRIBUTES, TRANSACTIONAL)
        answer = produce(connection, topic, batch, version=version)
        assert answer.error_code == TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert values_of(connection, topic) == []


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_the_same_batch_again_is_answered_with_its_first_offset(
    compression: str, bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    with Connection(bootstrap) as connection, Connection(bootstrap) as another:
        me = producer_id(connection)
        first = numbered(me, 0, [b"a", b"b"], compression=compression)
        second = numbered(me, 2, [b"c"], compression=compression)
        assert produce(connection, topic, first).base_offset == 0
        assert produce(connection, topic, second).base_offset == 2
        for where in (connection, another):
            for batch, offset in ((first, 0), (second, 2)):
                answer = produce(where, topic, batch)
                assert (answer.error_code, answer.base_offset) == (NONE, offset)
        assert values_of(connection, topic) == [b"a", b"b", b"c"]


def test_the_last_five_batches_are_remembered(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    with Connection(bootstrap) as connection:
        me = producer_id(connection)
        sent = [numbered(me, index, [b"%d" % index]) for index in range(WINDOW + 3)]
        for batch in sent:
            assert produce(connection, topic, batch).error_code == NONE
        for index, batch in list(enumerate(sent))[-WINDOW:]:
            answer = produce(connection, topic, batch)
            assert (answer.error_code, answer.base_offset) == (NONE, index)
        # What was forgotten is refused, not written again.
        assert produce(connection, topic, sent[0]).error_code == OUT_OF_ORDER_SEQUENCE_NUMBER
        (end,) = topics.list_offsets(connection, topic, [0], topics.LATEST)
        assert end.offset == len(sent)


def test_a_gap_is_refused_and_the_right_number_taken(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    with Connection(bootstrap) as connection:
        me = producer_id(connection)
        assert produce(connection, topic, numbered(me, 0, [b"a"])).error_code == NONE
        gap = produce(connection, topic, numbered(me, 2, [b"c"]))
        assert gap.error_code == OUT_OF_ORDER_SEQUENCE_NUMBER
        assert produce(connection, topic, numbered(me, 1, [b"b"])).base_offset == 1
        assert produce(connection, topic, numbered(me, 2, [b"c"])).base_offset == 2
        assert values_of(connection, topic) == [b"a", b"b", b"c"]


def test_a_new_epoch_begins_at_zero_and_fences_the_old(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    with Connection(bootstrap) as connection:
        me = producer_id(connection)
        assert produce(connection, topic, numbered(me, 0, [b"a"], epoch=0)).error_code == NONE
        not_zero = produce(connection, topic, numbered(me, 1, [b"b"], epoch=1))
        assert not_zero.error_code == OUT_OF_ORDER_SEQUENCE_NUMBER
        assert produce(connection, topic, numbered(me, 0, [b"b"], epoch=1)).error_code == NONE
        old = produce(connection, topic, numbered(me, 1, [b"c"], epoch=0))
        assert old.error_code == INVALID_PRODUCER_EPOCH
        assert values_of(connection, topic) == [b"a", b"b"]


def test_partitions_and_producers_are_numbered_apart(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    with Connection(bootstrap) as connection:
        for me in (producer_id(connection), producer_id(connection)):
            for partition in (0, 1):
                batch = numbered(me, 0, [b"x"])
                assert produce(connection, topic, batch, partition=partition).error_code == NONE
        ends = topics.list_offsets(connection, topic, [0, 1], topics.LATEST)
        assert [end.offset for end in ends] == [2, 2]


@every(("confluent", "aiokafka", "kafkajs", "franz", "java"))
def test_what_an_idempotent_client_wrote_carries_its_numbers(
    client: Client, bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    for values in ([b"a", b"b"], [b"c"]):
        client.produce(topic, [Record(None, value) for value in values])
    with Connection(bootstrap) as connection:
        stored = batches.batches_in(fetch(connection, topic, offset=0).records)
        assert all(batches.field_of(batch, PRODUCER_ID) >= 0 for batch in stored)
        assert values_of(connection, topic) == [b"a", b"b", b"c"]
        for batch in stored:  # Again, as if the answers had been lost.
            answer = produce(connection, topic, batches.changed(batch, batches.BASE_OFFSET, 0))
            told = (answer.error_code, answer.base_offset)
            assert told == (NONE, batches.field_of(batch, batches.BASE_OFFSET))
        assert values_of(connection, topic) == [b"a", b"b", b"c"]
