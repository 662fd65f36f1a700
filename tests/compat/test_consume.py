"""Consuming as clients do it: many small fetches, large records, and what is not there."""

from collections.abc import Callable

import pytest
from compat.clients.client import Client, ClientError, Record
from compat.conftest import NewTopic
from compat.matrix import CONSUMERS, every
from compat.wire import OFFSET_OUT_OF_RANGE

SMALL_BYTES = 2000


@pytest.fixture(scope="module")
def thousand(clients: Callable[[str], Client], new_topic: NewTopic) -> str:
    """A topic with 1000 records of 200 bytes, in many batches of several compression types."""
    topic = new_topic()
    for index, compression in enumerate(("none", "gzip", "snappy", "lz4", "zstd") * 4):
        first = index * 50
        records = [Record(None, b"%03d" % (first + i) + b"x" * 197) for i in range(50)]
        clients("confluent").produce(topic, records, compression=compression)
    return topic


@every(CONSUMERS)
def test_small_fetches_lose_nothing(client: Client, thousand: str) -> None:
    count = 1000
    if set(client.reads) != {"none", "gzip", "snappy", "lz4", "zstd"}:
        count = 100  # The first two batches are plain and gzip.
    found = client.consume(thousand, count=count, max_bytes=SMALL_BYTES)
    assert [stored.offset for stored in found] == list(range(count))
    numbers = [int((stored.record.value or b"")[:3]) for stored in found]
    assert numbers == list(range(count))


@every(CONSUMERS)
def test_a_record_larger_than_the_fetch_limit_still_comes(
    client: Client, confluent: Client, new_topic: NewTopic
) -> None:
    topic = new_topic(max_message_bytes=4 << 20)
    value = bytes(range(256)) * (4 << 10)
    confluent.produce(topic, [Record(None, value), Record(None, b"after")])
    found = client.consume(topic, count=2, max_bytes=SMALL_BYTES)
    assert [stored.record.value for stored in found] == [value, b"after"]


@every(("confluent", "kafka-python", "java"))
def test_without_a_policy_an_offset_out_of_range_is_an_error(
    client: Client, new_topic: NewTopic
) -> None:
    topic = new_topic()
    client.produce(topic, [Record(None, b"x")])
    with pytest.raises(ClientError) as refused:
        client.consume(topic, offset=77, count=1)
    # librdkafka and the Java client say it in a code of their own.
    assert refused.value.code in (OFFSET_OUT_OF_RANGE, -140, -1)
