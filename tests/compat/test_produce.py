"""Producing as clients do it: acknowledgements, order, keys, limits and times."""

from collections.abc import Callable
from typing import Any

import pytest
from compat.clients.client import Acks, Client, ClientError, Record
from compat.conftest import NewTopic
from compat.matrix import CONSUMERS, PRODUCERS, every, now_ms
from compat.wire import INVALID_TIMESTAMP, MESSAGE_TOO_LARGE

MANY = 10_000
# kcat is told of failures in words only, so the wire's code is not to be had from it.
SPEAKING = tuple(name for name in PRODUCERS if name != "kcat")


@pytest.mark.parametrize("acks", ["all", "1", "0"])
@every(PRODUCERS)
def test_every_kind_of_acknowledgement(
    client: Client, acks: Acks, confluent: Any, new_topic: NewTopic
) -> None:
    topic = new_topic()
    records = [Record(b"k", b"%d" % index) for index in range(20)]
    places = client.produce(topic, records, acks=acks)
    if acks != "0":
        assert [place.offset for place in places] == list(range(20))
    found = confluent.consume(topic, count=20)
    assert [stored.record.value for stored in found] == [b"%d" % index for index in range(20)]


@every(PRODUCERS)
def test_ten_thousand_small_records_keep_their_order(
    client: Client, confluent: Any, new_topic: NewTopic
) -> None:
    topic = new_topic()
    values = [b"record %d" % index for index in range(MANY)]
    places = client.produce(topic, [Record(None, value) for value in values], compression="gzip")
    assert [place.offset for place in places] == list(range(MANY))
    reader = client if client.name in CONSUMERS else confluent
    found = reader.consume(topic, count=MANY)
    assert [stored.offset for stored in found] == list(range(MANY))
    assert [stored.record.value for stored in found] == values


# Each of these hashes keys as the Java client does; librdkafka has a partitioner of its own.
@every(("kafka-python", "aiokafka", "kafkajs", "franz"))
@pytest.mark.foreign("java")
def test_a_key_stays_on_its_partition(
    client: Client, clients: Callable[[str], Client], confluent: Any, new_topic: NewTopic
) -> None:
    topic = new_topic(partitions=7)
    keys = [b"key %d" % index for index in range(40)]
    records = [Record(key, b"x") for key in keys]
    java = clients("java").produce(topic, records, partition=None)
    client.produce(topic, records, partition=None)
    expected: dict[int, list[bytes]] = {}
    for key, place in zip(keys, java, strict=True):
        expected.setdefault(place.partition, []).append(key)
    assert len(expected) > 1
    for partition, kept in expected.items():
        found = confluent.consume(topic, partition=partition, count=2 * len(kept))
        assert sorted(stored.record.key for stored in found) == sorted(kept * 2)


@every(SPEAKING)
def test_a_record_above_the_limit_is_too_large(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic(max_message_bytes=10_000)
    with pytest.raises(ClientError) as refused:
        client.produce(topic, [Record(None, b"x" * 20_000)])
    assert refused.value.code == MESSAGE_TOO_LARGE
    assert client.produce(topic, [Record(None, b"x" * 5_000)])[0].offset == 0


@every(SPEAKING)
def test_a_time_too_far_away_is_refused(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic(message_timestamp_before_max_ms=3_600_000)
    old = Record(None, b"old", (), now_ms() - 2 * 3_600_000)
    with pytest.raises(ClientError) as refused:
        client.produce(topic, [old])
    assert refused.value.code == INVALID_TIMESTAMP
    assert client.produce(topic, [Record(None, b"new", (), now_ms())])[0].offset == 0


@every(CONSUMERS)
def test_log_append_time_is_seen_by_every_client(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic(message_timestamp_type="LogAppendTime")
    before_ms = now_ms()
    long_ago = before_ms - 86_400_000
    stamp = None if client.name == "kcat" else long_ago
    client.produce(topic, [Record(None, b"a", (), stamp)], compression="gzip")
    (found,) = client.consume(topic, count=1)
    assert found.record.timestamp_ms is not None
    assert before_ms <= found.record.timestamp_ms <= now_ms()
    # kcat prints a time, not whose it is.
    assert found.timestamp_type == ("create" if client.name == "kcat" else "append")
