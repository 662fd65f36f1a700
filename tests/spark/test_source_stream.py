"""`spark.readStream.format("dmq")`: micro-batches, limits, new partitions and topics, lag, restarts."""

import json
from pathlib import Path

import pytest
from compat.eventually import eventually
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.streaming.query import StreamingQuery
from spark.feeding import (
    available,
    create,
    numbered,
    produce,
    progress,
    rows,
    stream,
    topic_name,
)

from dmq.spark.failures import SparkSourceError
from dmq.spark.lag import lag
from dmq.spark.options import SourceOptions
from dmq.spark.schema import source_schema
from dmq.spark.stream import StreamReader
from dmq.testing import Broker


def table() -> str:
    """A name for a memory table that no other test has."""
    return topic_name("t").replace("-", "_")


@pytest.fixture
def topic(broker: Broker) -> str:
    """Two partitions with a hundred records each."""
    name = create(broker.bootstrap_servers, topic_name("events"), 2)
    for partition in range(2):
        produce(broker.bootstrap_servers, name, numbered(100), partition=partition)
    return name


def committed(broker: Broker, group: str, topic: str, partitions: int) -> list[int]:
    """The offsets of a consumer group, as every Kafka tool sees them."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    asked = [TopicPartition(topic, n) for n in range(partitions)]
    answer = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group, asked)])
    return [one.offset for one in answer[group].result(20).topic_partitions]


def test_a_limited_stream_shares_each_batch_between_partitions_and_shows_its_lag(
    spark: SparkSession, broker: Broker, topic: str, checkpoint: str, tmp_path: Path
) -> None:
    """And starts again where it was, from its checkpoint."""
    bootstrap, group, folder = broker.bootstrap_servers, topic_name("lag"), str(tmp_path / "out")
    options = {"subscribe": topic, "startingOffsets": "earliest", "groupId": group}
    limited = stream(spark, bootstrap, maxOffsetsPerTrigger=80, **options)
    steps = progress(available(limited, checkpoint, table(), folder=folder))
    assert [step["numInputRows"] for step in steps if step["numInputRows"]] == [80, 80, 40]
    assert lag(steps[0]) == {topic: {"0": 60, "1": 60}}
    assert lag(steps[-1]) == {topic: {"0": 0, "1": 0}}
    assert spark.read.parquet(folder).count() == 200
    assert committed(broker, group, topic, 2) == [100, 100]

    produce(bootstrap, topic, numbered(30, 500), partition=1)
    again = available(stream(spark, bootstrap, **options), checkpoint, table(), folder=folder)
    assert [step["numInputRows"] for step in progress(again) if step["numInputRows"]] == [30]
    assert committed(broker, group, topic, 2) == [100, 130]


def test_a_group_that_others_use_does_not_stop_the_query(
    spark: SparkSession, broker: Broker, topic: str, checkpoint: str
) -> None:
    group, memory = topic_name("busy"), table()
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": group, "log_level": 0}
    )
    consumer.subscribe([topic])
    eventually(lambda: consumer.poll(0.1) or consumer.assignment(), "it is a member")
    options = {"subscribe": topic, "startingOffsets": "earliest", "groupId": group}
    available(stream(spark, broker.bootstrap_servers, **options), checkpoint, memory)
    consumer.close()
    assert spark.table(memory).count() == 200


def test_bytes_limit_a_batch(spark: SparkSession, broker: Broker, checkpoint: str) -> None:
    name = create(broker.bootstrap_servers, topic_name("wide"))
    produce(broker.bootstrap_servers, name, [(None, bytes(1000))] * 400, batch_size=10_000)
    memory = table()
    df = stream(
        spark,
        broker.bootstrap_servers,
        subscribe=name,
        startingOffsets="earliest",
        maxBytesPerTrigger="150k",
    )
    steps = progress(available(df, checkpoint, memory))
    counts = [step["numInputRows"] for step in steps if step["numInputRows"]]
    assert sum(counts) == 400
    assert max(counts) <= 155
    assert len(counts) == 3


def seen(query: StreamingQuery, topic: str) -> dict[str, int]:
    """The end of the topic in the query's last progress."""
    steps = progress(query)
    return (steps[-1]["sources"][0]["latestOffset"] or {}).get(topic, {}) if steps else {}


def test_too_few_records_wait_until_there_are_enough(
    spark: SparkSession, broker: Broker, topic: str, checkpoint: str
) -> None:
    """And the first batch does not wait, as in the Kafka source."""
    bootstrap, memory = broker.bootstrap_servers, table()
    df = stream(
        spark,
        bootstrap,
        subscribe=topic,
        startingOffsets="earliest",
        minOffsetsPerTrigger=50,
        maxTriggerDelay="1h",
    )
    query = (
        df.writeStream.format("memory")
        .queryName(memory)
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime="100 milliseconds")
        .start()
    )
    try:
        eventually(lambda: spark.table(memory).count() == 200, "the first batch")
        produce(bootstrap, topic, numbered(49), partition=0)
        eventually(lambda: seen(query, topic) == {"0": 149, "1": 100}, "it has seen them")
        assert spark.table(memory).count() == 200
        produce(bootstrap, topic, numbered(1), partition=1)
        eventually(lambda: spark.table(memory).count() == 250, "the second batch")
    finally:
        query.stop()


def test_new_partitions_and_new_topics_are_picked_up_from_their_first_record(
    spark: SparkSession, broker: Broker, checkpoint: str
) -> None:
    bootstrap, memory = broker.bootstrap_servers, table()
    first = create(bootstrap, topic_name("grow"), 1)
    produce(bootstrap, first, numbered(10))
    df = stream(
        spark, bootstrap, subscribePattern=f"{first}.*", startingOffsets="latest"
    )  # Latest is only for what is there at the start.
    query = (
        df.writeStream.format("memory")
        .queryName(memory)
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime="100 milliseconds")
        .start()
    )
    try:
        eventually(lambda: query.recentProgress, "it runs")
        produce(bootstrap, first, numbered(1))
        eventually(lambda: spark.table(memory).count() == 1, "one new record")
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_partitions([NewPartitions(first, 2)])[first].result(20)
        second = create(bootstrap, f"{first}-too", 1)
        produce(bootstrap, second, numbered(5))
        produce(bootstrap, first, numbered(7), partition=1)
        eventually(lambda: spark.table(memory).count() == 13, "all of the new ones")
    finally:
        query.stop()
    found = {(row[2], row[3], row[4]) for row in rows(spark.table(memory))}
    assert {(first, 1, n) for n in range(7)} | {(second, 0, n) for n in range(5)} <= found


def reader(broker: Broker, **options: str) -> StreamReader:
    """As Spark makes it in a driver's process."""
    servers = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    return StreamReader(SourceOptions.of({**servers, **options}), source_schema(False))


def test_a_first_batch_that_failed_is_run_again_by_the_next_driver(
    broker: Broker, topic: str
) -> None:
    first = reader(broker, subscribe=topic)
    end = first.latestOffset(first.initialOffset(), ReadAllAvailable())
    produce(broker.bootstrap_servers, topic, numbered(5), partition=0)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(20)
    second = reader(broker, subscribe=topic)
    assert second.partitions(second.initialOffset(), end) == [], "the log ended here then"
    next_end = second.latestOffset(end, ReadAllAvailable())
    assert [str(task) for task in second.partitions(end, next_end)] == [
        f"RangePartition({topic}-0 [100, 105))"
    ]
    for each in (first, second):
        each.stop()


def test_a_topic_that_was_deleted_since_its_batch_was_planned_is_told_or_left_out(
    broker: Broker,
) -> None:
    bootstrap, pattern = broker.bootstrap_servers, topic_name("gone")
    there, gone = create(bootstrap, f"{pattern}-a"), create(bootstrap, f"{pattern}-b")
    for name in (there, gone):
        produce(bootstrap, name, numbered(5))
    end = {there: {"0": 5}, gone: {"0": 5}}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([gone])[gone].result(20)
    options = {"subscribePattern": f"{pattern}-.*", "kafka.default.api.timeout.ms": "1000"}
    strict, lax = reader(broker, **options), reader(broker, failOnDataLoss="false", **options)
    eventually(lambda: gone not in admin.list_topics(timeout=20).topics, "it is deleted")
    with pytest.raises(SparkSourceError, match="is gone: was the topic deleted"):
        strict.partitions({there: {"0": 0}}, end)
    assert len(lax.partitions({there: {"0": 0}}, end)) == 1
    tasks = lax.partitions({there: {"0": 0}, gone: {"0": 0}}, end)
    found = [batch.num_rows for task in tasks for batch in lax.read(task)]
    assert found == [5], "a task that was planned before skips it, too"
    with pytest.raises(SparkSourceError, match="it is gone"):
        list(strict.read(tasks[-1]))
    for each in (strict, lax):
        each.stop()


def test_a_checkpoint_of_the_kafka_source_goes_on_with_this_one(
    spark: SparkSession,
    broker: Broker,
    topic: str,
    checkpoint: str,
    kafka_connector: object | None,
    tmp_path: Path,
) -> None:
    if kafka_connector is None:
        pytest.skip("Spark's Kafka connector is out of reach: no Maven Central")
    bootstrap, folder = broker.bootstrap_servers, str(tmp_path / "out")
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    kafka = stream(spark, bootstrap, "kafka", **options)
    before = available(kafka, checkpoint, table(), folder=folder)
    assert sum(step["numInputRows"] for step in progress(before)) == 200
    produce(bootstrap, topic, numbered(3), partition=0)
    after = available(stream(spark, bootstrap, **options), checkpoint, table(), folder=folder)
    assert sum(step["numInputRows"] for step in progress(after)) == 3
    found = [(row[3], row[4]) for row in rows(spark.read.parquet(folder))]
    assert found == [(0, n) for n in range(103)] + [(1, n) for n in range(100)]


def test_offsets_in_the_checkpoint_are_those_of_the_kafka_source(
    spark: SparkSession, broker: Broker, topic: str, checkpoint: str
) -> None:
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    available(stream(spark, broker.bootstrap_servers, **options), checkpoint, table())
    lines = (Path(checkpoint) / "offsets" / "0").read_text().splitlines()
    assert json.loads(lines[-1]) == {topic: {"0": 100, "1": 100}}
