"""Spark's own Kafka connector as the judge: the same rows and the same steps, on the same brokers.

And as a writer: what its jobs and streams bring to our brokers is there, for both to read.
"""

import struct
from collections.abc import Iterator
from typing import Any

import pytest
from compat.eventually import eventually
from confluent_kafka import Producer
from pyspark.sql import SparkSession
from spark.feeding import (
    available,
    batch,
    create,
    numbered,
    produce,
    progress,
    rows,
    stream,
    topic_name,
)

from bench.connector import Connector
from dmq.testing import Cluster

SETTINGS = {"log.cleaner.backoff.ms": 100}
COMMITTED = {"kafka_isolation_level": "read_committed"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3, SETTINGS, network="direct") as running:
        yield running


@pytest.fixture(autouse=True)
def judge(kafka_connector: Connector | None) -> Connector:
    if kafka_connector is None:
        pytest.skip("Spark's Kafka connector is out of reach: no Maven Central")
    return kafka_connector


def both(spark: SparkSession, cluster: Cluster, **options: Any) -> list[tuple[Any, ...]]:
    """The rows, which are the same for both."""
    ours = rows(batch(spark, cluster.bootstrap, "dmq", **options))
    theirs = rows(batch(spark, cluster.bootstrap, "kafka", **options))
    assert ours == theirs
    return ours


def transact(bootstrap: str, topic: str, pieces: list[tuple[int, bool]]) -> None:
    """Transactions of so many records, committed or aborted."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": topic_name("judge"),
            "linger.ms": 0,
            "log_level": 0,
        }
    )
    producer.init_transactions(60)
    for number, (count, commits) in enumerate(pieces):
        producer.begin_transaction()
        for n in range(count):
            producer.produce(topic, b"%d-%d" % (number, n), b"%d" % commits)
        producer.flush(30)
        if commits:
            producer.commit_transaction(60)
        else:
            producer.abort_transaction(60)


def test_records_of_all_kinds_are_the_same_rows(spark: SparkSession, cluster: Cluster) -> None:
    topic = create(cluster.bootstrap, topic_name("kinds"), 3)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        pairs = [
            (None, b"x"),
            (b"k", None),
            (b"", b""),
            (b"n", struct.pack(">q", -1)),
            *numbered(300),
        ]
        headers = [("a", b"1"), ("a", None), ("ü", b"")]
        produce(cluster.bootstrap, topic, pairs, headers=headers, compression_type=codec)
        produce(cluster.bootstrap, topic, numbered(50), compression_type=codec)
    append = {"message.timestamp.type": "LogAppendTime"}
    other = create(cluster.bootstrap, topic_name("kinds-append"), 2, append)
    produce(cluster.bootstrap, other, numbered(200))
    found = both(spark, cluster, subscribe=f"{topic},{other}", includeHeaders="true")
    assert len(found) == 5 * 354 + 200


def test_aborted_transactions_are_left_out_alike(spark: SparkSession, cluster: Cluster) -> None:
    topic = create(cluster.bootstrap, topic_name("aborted"), 2)
    transact(cluster.bootstrap, topic, [(30, True), (20, False), (1, True), (50, False), (9, True)])
    produce(cluster.bootstrap, topic, numbered(5))
    assert len(both(spark, cluster, subscribe=topic, **COMMITTED)) == 45
    dirty = {"kafka_isolation_level": "read_uncommitted"}
    assert len(both(spark, cluster, subscribe=topic, **dirty)) == 115
    # Our own default is read_committed.
    assert batch(spark, cluster.bootstrap, subscribe=topic).count() == 45


def test_a_compacted_log_with_holes_is_the_same_rows(spark: SparkSession, cluster: Cluster) -> None:
    config = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.0",
        "internal.segment.bytes": "20000",
        "min.compaction.lag.ms": "0",
    }
    topic = create(cluster.bootstrap, topic_name("compacted"), 1, config)
    for turn in range(6):  # Every third key is new: batches keep some of their records.
        keys = [b"%d-%d" % (turn, n) if n % 3 == 0 else b"same-%d" % (n % 7) for n in range(200)]
        produce(cluster.bootstrap, topic, [(key, b"v" * 90) for key in keys], linger_ms=20)

    def count() -> int:
        return batch(spark, cluster.bootstrap, subscribe=topic).count()

    eventually(lambda: count() < 900, "it is compacted")
    ours = rows(batch(spark, cluster.bootstrap, "dmq", subscribe=topic))
    theirs = rows(batch(spark, cluster.bootstrap, "kafka", subscribe=topic))
    # Compaction may go on between the two; what the later one still sees must be in both.
    assert set(theirs) <= set(ours)
    assert {row[0] for row in theirs} == {row[0] for row in ours}
    offsets = [row[4] for row in ours]
    assert offsets == sorted(set(offsets))


@pytest.mark.parametrize(
    "options",
    [
        {
            "startingOffsets": {"0": 10, "1": -2, "2": 50},
            "endingOffsets": {"0": -1, "1": 20, "2": 50},
        },
        {"startingTimestamp": 1_700_000_000_500},
        {"endingTimestamp": 1_700_000_000_500, "minPartitions": 7},
    ],
)
def test_bounds_mean_the_same(
    spark: SparkSession, cluster: Cluster, options: dict[str, Any]
) -> None:
    topic = create(cluster.bootstrap, topic_name("bounds"), 3, {"retention.ms": "-1"})
    for partition in range(3):
        times = [1_700_000_000_000 + 10 * n for n in range(100)]
        produce(cluster.bootstrap, topic, numbered(100), partition=partition, timestamps=times)
    named = {k: {topic: v} if isinstance(v, dict) else v for k, v in options.items()}
    assert both(spark, cluster, subscribe=topic, **named)


def test_a_limited_stream_takes_the_same_steps(
    spark: SparkSession, cluster: Cluster, tmp_path: Any
) -> None:
    topic = create(cluster.bootstrap, topic_name("steps"), 3)
    for partition, count in enumerate((1000, 10, 333)):
        produce(cluster.bootstrap, topic, numbered(count), partition=partition)
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 250}
    ends, read = [], []
    for format_ in ("dmq", "kafka"):
        memory = topic_name("steps").replace("-", "_")
        df = stream(spark, cluster.bootstrap, format_, **options)
        steps = progress(available(df, str(tmp_path / format_), memory))
        ends.append([s["sources"][0]["endOffset"] for s in steps if s["numInputRows"]])
        read.append(rows(spark.table(memory)))
    assert ends[0] == ends[1]
    assert read[0] == read[1]
    assert len(read[0]) == 1343


def test_what_the_connector_writes_is_read_by_both(
    spark: SparkSession, cluster: Cluster, tmp_path: Any
) -> None:
    first, second = (create(cluster.bootstrap, topic_name("theirs"), 3) for _ in range(2))
    header = "STRUCT('h' AS key, CAST(CAST(id AS STRING) AS BINARY) AS value)"
    theirs = spark.range(0, 2000, 1, 4).selectExpr(
        "IF(id % 7 = 0, NULL, CONCAT('key-', id)) AS key",
        "CONCAT('value-', id) AS value",
        "IF(id % 5 = 0, 2, NULL) AS partition",
        f"ARRAY({header}) AS headers",
    )
    to = {"kafka.bootstrap.servers": cluster.bootstrap, "kafka.compression.type": "lz4"}
    theirs.write.format("kafka").options(**to, topic=first).option("includeHeaders", "true").save()
    written = both(spark, cluster, subscribe=first, includeHeaders="true")
    assert sorted(row[1] for row in written) == sorted(b"value-%d" % n for n in range(2000))
    assert {row[3] for row in written if int(row[1].split(b"-")[1]) % 5 == 0} == {2}

    source = stream(
        spark, cluster.bootstrap, "kafka", subscribe=first, startingOffsets="earliest",
        maxOffsetsPerTrigger=1000, includeHeaders="true",
    )  # fmt: skip
    query = (
        source.select("key", "value", "headers")
        .writeStream.format("kafka")
        .options(**to, topic=second, checkpointLocation=str(tmp_path / "theirs"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(400), f"still running: {query.status}"
    finally:
        query.stop()
    copied = both(spark, cluster, subscribe=second, includeHeaders="true")
    assert sorted(map(_matter, copied)) == sorted(map(_matter, written))


def _matter(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Key, value and headers, comparable."""
    return row[0] or b"", row[1], row[-1]
