"""`format("dmq")` as a sink: what is written is what is read, by others' clients too."""

import collections
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from compat.eventually import eventually
from confluent_kafka import Consumer, KafkaError, TopicPartition
from pyspark.sql import DataFrame, SparkSession

from dmq.spark.cluster import Cluster, Settings
from dmq.spark.transactions import Transactions
from dmq.testing import Broker
from tests.spark.feeding import create, numbered, produce, topic_name


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker({"num.partitions": 3}, in_process=False) as broker:
        yield broker.bootstrap_servers


def write(rows: DataFrame, servers: str, topic: str | None, **options: Any) -> None:
    writer = rows.write.format("dmq").option("kafka.bootstrap.servers", servers).mode("append")
    if topic is not None:
        writer = writer.option("topic", topic)
    for name, value in options.items():
        writer = writer.option(name.replace("_", "."), value)
    writer.save()


def read(servers: str, topic: str, isolation: str = "read_committed") -> list[Any]:
    """All messages up to the end."""
    consumer = Consumer({
        "bootstrap.servers": servers, "group.id": "reader", "enable.auto.commit": False,
        "isolation.level": isolation, "enable.partition.eof": True,
    })  # fmt: skip
    partitions = list(consumer.list_topics(topic, 10).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, each, 0) for each in partitions])
    found, ends = [], set()
    while len(ends) < len(partitions):
        message = consumer.poll(20)
        assert message is not None
        if message.error():
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            ends.add(message.partition())
        else:
            found.append(message)
    consumer.close()
    return found


def numbers(spark: SparkSession, count: int, parts: int = 2) -> DataFrame:
    keys = "CAST(id AS STRING) AS key", "CONCAT('value-', id) AS value"
    return spark.range(0, count, 1, parts).selectExpr(*keys)


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_a_job_writes_all_rows(spark: SparkSession, servers: str, delivery: str) -> None:
    topic = topic_name("job")
    write(numbers(spark, 20_000), servers, topic, delivery=delivery)
    found = collections.Counter((m.key(), m.value()) for m in read(servers, topic))
    assert found == collections.Counter((b"%d" % n, b"value-%d" % n) for n in range(20_000))


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_rows_are_compressed(spark: SparkSession, servers: str, codec: str) -> None:
    topic = topic_name(codec)
    write(numbers(spark, 3000), servers, topic, compression=codec)
    assert sorted(m.value() for m in read(servers, topic)) == sorted(
        b"value-%d" % n for n in range(3000)
    )


def test_every_column_is_written(spark: SparkSession, servers: str) -> None:
    one, two = create(servers, topic_name("one"), 2), create(servers, topic_name("two"), 5)
    rows = [
        (one, 1, bytearray(b"k1"), "text", [("h", bytearray(b"1")), ("h", None)], "ignored"),
        (two, 4, None, "äöü", [], "ignored"),
        (two, None, bytearray(b"k2"), None, None, "ignored"),
    ]
    schema = (
        "topic STRING, partition INT, key BINARY, value STRING,"
        " headers ARRAY<STRUCT<key: STRING, value: BINARY>>, more STRING"
    )
    write(spark.createDataFrame(rows, schema), servers, None)
    (first,) = read(servers, one)
    assert (first.partition(), first.key(), first.value()) == (1, b"k1", b"text")
    assert first.headers() == [("h", b"1"), ("h", None)]
    by_value = {m.value(): m for m in read(servers, two)}
    assert by_value["äöü".encode()].partition() == 4
    assert by_value["äöü".encode()].key() is None
    assert by_value[None].key() == b"k2"


def test_the_option_topic_goes_before_the_column(spark: SparkSession, servers: str) -> None:
    topic = topic_name("option")
    rows = spark.createDataFrame([("other", "a")], "topic STRING, value STRING")
    write(rows, servers, topic)
    assert [m.value() for m in read(servers, topic)] == [b"a"]


def test_keys_go_where_other_clients_send_them(spark: SparkSession, servers: str) -> None:
    ours, theirs = create(servers, topic_name("ours"), 7), create(servers, topic_name("theirs"), 7)
    pairs = numbered(500)
    for name in ("murmur2_random", "consistent_random"):
        produce(servers, theirs, pairs, partitioner=name)
        rows = spark.createDataFrame([(k, v) for k, v in pairs], "key BINARY, value BINARY")
        write(rows, servers, ours, partitioner=name)
        expected = {(m.key(), m.partition()) for m in read(servers, theirs)}
        assert {(m.key(), m.partition()) for m in read(servers, ours)} == expected


def test_keyless_rows_spread_over_partitions(spark: SparkSession, servers: str) -> None:
    topic = topic_name("keyless")
    rows = spark.range(0, 60_000, 1, 2).selectExpr("REPEAT('x', 100) AS value")
    write(rows, servers, topic)
    counts = collections.Counter(m.partition() for m in read(servers, topic))
    assert set(counts) == {0, 1, 2}


def test_large_values_are_written_in_batches_that_the_topic_takes(
    spark: SparkSession, servers: str
) -> None:
    topic = create(servers, topic_name("narrow"), 1, {"max.message.bytes": "20000"})
    rows = spark.range(0, 200, 1, 1).selectExpr("REPEAT('x', 3000) AS value")
    write(rows, servers, topic)
    assert len(read(servers, topic)) == 200
    wide = spark.range(0, 1, 1, 1).selectExpr("REPEAT('x', 30000) AS value")
    with pytest.raises(Exception, match=r"max\.message\.bytes"):
        write(wide, servers, topic)


def test_a_failed_job_leaves_nothing_to_see_and_nothing_open(
    spark: SparkSession, servers: str
) -> None:
    topic = create(servers, topic_name("failed"), 3)
    rows = spark.range(0, 40_000, 1, 4).selectExpr(
        "CAST(IF(id = 35000, RAISE_ERROR('on purpose'), id) AS STRING) AS value"
    )
    with pytest.raises(Exception, match="on purpose"):
        write(rows, servers, topic)
    cluster = Cluster(Settings.of({"kafka.bootstrap.servers": servers}))
    transactions = Transactions(cluster)
    eventually(lambda: not transactions.open_ids("dmq-spark.job-"), "all are aborted", 20)
    cluster.close()
    assert read(servers, topic) == []


def test_a_stream_writes_each_batch_once(
    spark: SparkSession, servers: str, checkpoint: str
) -> None:
    source, sink = create(servers, topic_name("in"), 2), create(servers, topic_name("out"), 3)
    options = {"kafka.bootstrap.servers": servers, "topic": sink, "checkpointLocation": checkpoint}
    for round_ in range(2):
        produce(servers, source, numbered(2000, 2000 * round_))
        rows = (
            spark.readStream.format("dmq")
            .option("kafka.bootstrap.servers", servers)
            .option("subscribe", source)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", 700)
            .load()
        )
        query = (
            rows.select("key", "value")
            .writeStream.format("dmq")
            .options(**options)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(100)
        assert query.exception() is None

    def complete() -> bool:
        found = collections.Counter((m.key(), m.value()) for m in read(servers, sink))
        return found == collections.Counter(numbered(4000))

    eventually(complete, "every row is there once", 10)


def test_a_stream_that_is_stopped_in_mid_batch_leaves_nothing_open(
    spark: SparkSession, servers: str, checkpoint: str
) -> None:
    source, sink = create(servers, topic_name("in")), create(servers, topic_name("out"))
    produce(servers, source, numbered(1))
    options = {"kafka.bootstrap.servers": servers, "topic": sink, "checkpointLocation": checkpoint}
    rows = spark.readStream.format("dmq").option("kafka.bootstrap.servers", servers)
    rows = rows.option("subscribe", source).option("startingOffsets", "earliest").load()

    def without_an_end(batches: Iterator[Any]) -> Iterator[Any]:
        """More than the sink keeps before it writes, and then nothing for ever."""
        for _ in batches:
            for _ in range(3):
                yield pa.record_batch([pa.array(["x" * 1000] * 10_000)], names=["value"])
            threading.Event().wait()

    endless = rows.mapInArrow(without_an_end, "value STRING")
    cluster = Cluster(Settings.of({"kafka.bootstrap.servers": servers}))
    transactions = Transactions(cluster)

    def is_left_open() -> bool:
        query = endless.writeStream.format("dmq").options(**options).start()
        ids = f"dmq-spark.{query.id}."
        eventually(lambda: transactions.open_ids(ids), "a task has written", 200)
        query.stop()
        return bool(transactions.open_ids(ids))

    try:
        # Spark cancels the job of a query that stops, then interrupts its thread: that breaks the call
        # of `abort` off, if the job has failed by then. The next stop ends what that has left.
        assert not all(is_left_open() for _ in range(4))
    finally:
        cluster.close()
    produce(servers, sink, [(None, b"after")])
    assert [message.value() for message in read(servers, sink)] == [b"after"]


@pytest.mark.parametrize(
    ("sql", "options", "message"),
    [
        ("id AS value", {}, "column 'value' is of type bigint.*to_json"),
        ("'a' AS text", {}, "no column 'value'"),
        ("'a' AS value, id AS key", {}, "column 'key' is of type bigint"),
        ("'a' AS value, id AS partition", {}, "column 'partition'.*AS INT"),
        ("'a' AS value, ARRAY('h') AS headers", {}, "ARRAY<STRUCT<key"),
        ("'a' AS value", {"delivery": "maybe"}, "choose one of exactly-once, at-least-once"),
        ("'a' AS value", {"partitioner": "mine"}, "partitioner='mine'"),
        ("'a' AS value", {"compression": "zip"}, "compression='zip'"),
        ("'a' AS value", {"delivry": "exactly-once"}, "did you mean 'delivery'"),
        (
            "'a' AS value",
            {"kafka.transaction.timeout": "60000"},
            "did you mean 'kafka.transaction.timeout.ms'",
        ),
        ("'a' AS value", {"kafka.acks": "1"}, "kafka.acks"),
        ("'a' AS value", {"kafka.transactional.id": "x"}, "transactionalIdPrefix"),
        ("'a' AS value", {"kafka.transaction.timeout.ms": "2000000000"}, "transaction.max.timeout"),
        ("'a' AS value, 9 AS partition", {}, "partition 9 of topic"),
    ],
)
def test_wrong_options_and_columns_say_what_to_do(
    spark: SparkSession, servers: str, sql: str, options: dict[str, str], message: str
) -> None:
    rows = spark.range(1).selectExpr(*sql.split(", ") if "ARRAY" not in sql else sql.split(", ", 1))
    writer = rows.write.format("dmq").mode("append").option("topic", "wrong")
    with pytest.raises(Exception, match=f"(?s){message}"):
        writer.option("kafka.bootstrap.servers", servers).options(**options).save()


def test_a_topic_must_be_named_and_is_never_overwritten(spark: SparkSession, servers: str) -> None:
    rows = spark.range(1).selectExpr("'a' AS value")
    with pytest.raises(Exception, match="where to write"):
        write(rows, servers, None)
    writer = rows.write.format("dmq").option("topic", "x").mode("overwrite")
    with pytest.raises(Exception, match=r"mode\(\"append\"\)"):
        writer.option("kafka.bootstrap.servers", servers).save()


def test_brokers_that_make_no_topics_are_told_about(spark: SparkSession) -> None:
    rows = spark.range(1).selectExpr("'a' AS value")
    with (
        Broker({"auto.create.topics.enable": False}, in_process=False) as broker,
        pytest.raises(Exception, match="dmq topic create"),
    ):
        write(rows, broker.bootstrap_servers, "absent")
