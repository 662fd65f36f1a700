"""What any client produced, in any compression, every client reads back byte for byte.

One topic per producing client, one partition per compression type; every reading client reads all
of them, from the beginning, by assignment.
"""

from collections.abc import Callable

import pytest
from compat.clients.client import COMPRESSIONS, Client, Compression, Record
from compat.clients.kcat import printed
from compat.conftest import NewTopic
from compat.matrix import CONSUMERS, PRODUCERS, param, varied_records

Filled = tuple[str, dict[Compression, list[Record]]]


@pytest.fixture(scope="session")
def filled(clients: Callable[[str], Client], new_topic: NewTopic) -> Callable[[str], Filled]:
    """The topic that a client filled, once per session, and what it put there."""
    done: dict[str, Filled] = {}

    def fill(name: str) -> Filled:
        if name not in done:
            producer = clients(name)
            topic = new_topic(partitions=len(COMPRESSIONS), max_message_bytes=4 << 20)
            sent = {}
            for compression in producer.compressions:
                sent[compression] = varied_records(topic, name, compression)
                partition = COMPRESSIONS.index(compression)
                places = producer.produce(
                    topic, sent[compression], partition=partition, compression=compression
                )
                assert [place.offset for place in places] == list(range(len(sent[compression])))
                assert {place.partition for place in places} == {partition}
            done[name] = (topic, sent)
        return done[name]

    return fill


@pytest.mark.parametrize("reader", [param(name) for name in CONSUMERS])
@pytest.mark.parametrize("writer", [param(name) for name in PRODUCERS])
def test_what_one_client_wrote_another_reads(
    writer: str,
    reader: str,
    clients: Callable[[str], Client],
    filled: Callable[[str], Filled],
) -> None:
    consumer = clients(reader)
    topic, sent = filled(writer)
    compressions = [name for name in sent if name in consumer.reads]
    assert compressions
    for compression in compressions:
        expected = sent[compression]
        partition = COMPRESSIONS.index(compression)
        found = consumer.consume(topic, partition=partition, count=len(expected))
        assert [stored.offset for stored in found] == list(range(len(expected)))
        assert [stored.timestamp_type for stored in found] == ["create"] * len(expected)
        for stored, record in zip(found, expected, strict=True):
            as_read = printed(record.headers) if reader == "kcat" else record.headers
            timestamp_ms = record.timestamp_ms or stored.record.timestamp_ms
            assert stored.record == Record(record.key, record.value, as_read, timestamp_ms)
