"""Topics with records in them, and reads of them by Spark, for the tests beside."""

import json
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

Pair = tuple[bytes | None, bytes | None]

QUIET = {"log_level": 0}  # A client may outlive its broker.


def topic_name(word: str = "topic") -> str:
    """A name that no other test has."""
    return f"{word}-{uuid.uuid4().hex[:8]}"


def create(
    bootstrap: str, name: str, partitions: int = 1, config: Mapping[str, str] | None = None
) -> str:
    """A new topic; returns its name when it is there."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    admin.create_topics([NewTopic(name, partitions, config=dict(config or {}))])[name].result(30)
    return name


def produce(
    bootstrap: str,
    topic: str,
    pairs: Iterable[Pair],
    *,
    partition: int = -1,
    headers: list[tuple[str, bytes | None]] | None = None,
    timestamps: Iterable[int] | None = None,
    **settings: Any,
) -> None:
    """Write the pairs; returns when all are acknowledged. Settings have `_` for `.`."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **QUIET, **named})
    times = iter(timestamps) if timestamps is not None else None
    for key, value in pairs:
        at = {} if times is None else {"timestamp": next(times)}
        producer.produce(topic, value, key, partition, headers=headers, **at)
        producer.poll(0)
    assert producer.flush(60) == 0


def numbered(count: int, first: int = 0) -> list[Pair]:
    """Pairs with keys and values that can be told apart."""
    return [(b"key-%d" % n, b"value-%d" % n) for n in range(first, first + count)]


def batch(spark: SparkSession, bootstrap: str, format_: str = "dmq", **options: Any) -> DataFrame:
    """`spark.read` with options by name; `kafka_x_y` is `kafka.x.y`."""
    reader = spark.read.format(format_).option("kafka.bootstrap.servers", bootstrap)
    return reader.options(**_named(options)).load()


def stream(spark: SparkSession, bootstrap: str, format_: str = "dmq", **options: Any) -> DataFrame:
    """`spark.readStream`, likewise."""
    reader = spark.readStream.format(format_).option("kafka.bootstrap.servers", bootstrap)
    return reader.options(**_named(options)).load()


def _named(options: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name.replace("_", ".") if name.startswith("kafka_") else name: (
            json.dumps(value) if isinstance(value, dict) else value
        )
        for name, value in options.items()
    }


def available(
    df: DataFrame, checkpoint: str, table: str, *, folder: str | None = None, patience_s: int = 400
) -> StreamingQuery:
    """Run a stream over what is there now, into a memory table; returns when it has ended.

    With `folder`, into Parquet files there: a memory table can't go on from a checkpoint.
    """
    writer = df.writeStream.queryName(table).option("checkpointLocation", checkpoint)
    if folder is None:
        writer = writer.format("memory")
    else:
        writer = writer.format("parquet").option("path", folder)
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(patience_s), f"still running: {query.status}"
    finally:
        query.stop()
    return query


def progress(query: StreamingQuery) -> list[dict[str, Any]]:
    """The query's progress, batch by batch, as plain values."""
    return [json.loads(one.json) for one in query.recentProgress]


def rows(df: DataFrame) -> list[tuple[Any, ...]]:
    """All rows in the order of topic, partition and offset, comparable."""
    found = [tuple(_plain(value) for value in row) for row in df.collect()]
    return sorted(found, key=lambda row: (row[2], row[3], row[4]))


def _plain(value: Any) -> Any:
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, list):
        return tuple((item["key"], _plain(item["value"])) for item in value)
    return value
