"""`maxBytesPerTrigger`: what the offsets that come next weigh, wherever in the log they are."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql.streaming.datasource import ReadMaxRows
from spark.feeding import create, produce, topic_name

from dmq.spark.cluster import Cluster, Settings
from dmq.spark.failures import SparkSourceError
from dmq.spark.offsets import OffsetFinder
from dmq.spark.options import SourceOptions
from dmq.spark.schema import source_schema
from dmq.spark.stream import StreamReader
from dmq.spark.weights import Weight, look_ahead
from dmq.testing import Broker

COUNT = 1000


@pytest.fixture
def topic(broker: Broker) -> str:
    """A topic with few large batches."""
    name = create(broker.bootstrap_servers, topic_name("heavy"))
    pairs = [(None, b"x" * 100)] * COUNT
    produce(broker.bootstrap_servers, name, pairs, linger_ms=1000, batch_num_messages=COUNT)
    return name


def options(broker: Broker, topic: str, **more: str) -> SourceOptions:
    servers = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic}
    return SourceOptions.of({**servers, "maxBytesPerTrigger": "20k", **more})


@pytest.fixture
def cluster(broker: Broker) -> Iterator[Cluster]:
    found = Cluster(Settings.of({"kafka.bootstrap.servers": broker.bootstrap_servers}))
    yield found
    found.close()


def delete_before(broker: Broker, topic: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    where = TopicPartition(topic, 0, offset)
    admin.delete_records([where])[TopicPartition(topic, 0)].result(20)


@pytest.mark.parametrize("start", [0, COUNT // 2, COUNT - 1])
def test_an_offset_in_the_middle_of_a_batch_weighs_what_the_others_do(
    start: int, broker: Broker, cluster: Cluster, topic: str
) -> None:
    finder = OffsetFinder(cluster, options(broker, topic))
    weight = look_ahead(cluster, finder, {(topic, 0): start})[topic, 0]
    assert weight.first == start
    assert 100 < weight.bytes_per_offset < 200


def test_offsets_that_are_gone_weigh_nothing(broker: Broker, cluster: Cluster, topic: str) -> None:
    finder = OffsetFinder(cluster, options(broker, topic))
    delete_before(broker, topic, 400)
    weight = look_ahead(cluster, finder, {(topic, 0): 10})[topic, 0]
    assert weight.first == 400
    assert 100 < weight.bytes_per_offset < 200
    behind = look_ahead(cluster, finder, {(topic, 0): COUNT + 1})
    assert behind == {(topic, 0): Weight(COUNT + 1, 1.0)}


def read(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    """The offsets of a micro-batch."""
    return [
        offset
        for task in reader.partitions(start, end)
        for batch in reader.read(task)
        for offset in batch.column("offset").to_pylist()
    ]


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_batch_limited_by_bytes_loses_offsets_as_it_is_told_to(
    fails: str, broker: Broker, topic: str
) -> None:
    delete_before(broker, topic, 400)
    told = options(broker, topic, failOnDataLoss=fails)
    reader = StreamReader(told, source_schema(False))
    start: dict[str, Any] = {topic: {"0": 10}}
    try:
        end = reader.latestOffset(start, ReadMaxRows(COUNT))
        assert 500 < end[topic]["0"] < 600, "what is gone does not count"
        if fails == "false":
            assert read(reader, start, end) == list(range(400, end[topic]["0"]))
            return
        with pytest.raises(SparkSourceError, match=r"the log starts at 400 now.*failOnDataLoss"):
            read(reader, start, end)
    finally:
        reader.stop()
