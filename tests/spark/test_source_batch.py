"""`spark.read.format("dmq")` on a real broker: what is read, from where to where, in which pieces."""

import datetime as dt
import json
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from spark.feeding import batch, create, numbered, produce, rows, topic_name

from dmq.testing import Broker

NOW = 1_700_000_000_000


@pytest.fixture(scope="module")
def orders(broker: Broker) -> str:
    """Three partitions; 100 records in each, one every ten seconds from NOW on."""
    config = {"retention.ms": "-1"}  # They are from 2023.
    topic = create(broker.bootstrap_servers, topic_name("orders"), 3, config)
    for partition in range(3):
        produce(
            broker.bootstrap_servers,
            topic,
            numbered(100, 1000 * partition),
            partition=partition,
            timestamps=[NOW + 10_000 * n for n in range(100)],
        )
    return topic


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[None]:
    """Filters are pushed down into Python sources, which Spark has off by default."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_all_columns_of_the_kafka_source_are_there(
    spark: SparkSession, broker: Broker, orders: str
) -> None:
    df = batch(spark, broker.bootstrap_servers, subscribe=orders)
    assert df.columns == [
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType",
    ]  # fmt: skip
    found = rows(df)
    assert len(found) == 300
    key, value, topic, partition, offset, timestamp, kind = found[105]
    assert (key, value, topic, partition, offset) == (b"key-1005", b"value-1005", orders, 1, 5)
    assert timestamp.timestamp() * 1000 == NOW + 50_000
    assert kind == 0


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read(spark: SparkSession, broker: Broker, codec: str) -> None:
    topic = create(broker.bootstrap_servers, topic_name(codec))
    pairs = [(None, b"x" * 500), (b"k", None), (b"", b""), *numbered(2000)]
    produce(broker.bootstrap_servers, topic, pairs, compression_type=codec, linger_ms=50)
    found = rows(batch(spark, broker.bootstrap_servers, subscribe=topic))
    assert [row[:2] for row in found] == pairs


def test_headers_come_when_asked_for_and_are_null_where_there_are_none(
    spark: SparkSession, broker: Broker
) -> None:
    topic = create(broker.bootstrap_servers, topic_name("headers"))
    produce(broker.bootstrap_servers, topic, numbered(1), headers=[("trace", b"1"), ("ü", None)])
    produce(broker.bootstrap_servers, topic, numbered(1))
    found = rows(batch(spark, broker.bootstrap_servers, subscribe=topic, includeHeaders="true"))
    assert [row[7] for row in found] == [(("trace", b"1"), ("ü", None)), None]


def test_the_brokers_time_is_read_from_topics_that_have_it(
    spark: SparkSession, broker: Broker
) -> None:
    config = {"message.timestamp.type": "LogAppendTime"}
    topic = create(broker.bootstrap_servers, topic_name("append"), config=config)
    before = dt.datetime.now()
    produce(broker.bootstrap_servers, topic, numbered(50), timestamps=[NOW] * 50)
    for row in rows(batch(spark, broker.bootstrap_servers, subscribe=topic)):
        assert row[6] == 1
        assert row[5] >= before - dt.timedelta(seconds=1)


def test_offsets_by_json_with_earliest_and_latest(
    spark: SparkSession, broker: Broker, orders: str
) -> None:
    df = batch(
        spark,
        broker.bootstrap_servers,
        subscribe=orders,
        startingOffsets={orders: {"0": 90, "1": -2, "2": 10}},
        endingOffsets={orders: {"0": -1, "1": 5, "2": 10}},
    )
    found = [(row[3], row[4]) for row in rows(df)]
    assert found == [(0, n) for n in range(90, 100)] + [(1, n) for n in range(5)]


def test_partitions_one_by_one_and_topics_by_pattern(
    spark: SparkSession, broker: Broker, orders: str
) -> None:
    some = batch(spark, broker.bootstrap_servers, assign={orders: [0, 2]})
    assert sorted(row[0] for row in some.select("partition").distinct().collect()) == [0, 2]
    like = batch(spark, broker.bootstrap_servers, subscribePattern=f"{orders[:-1]}.")
    assert like.count() == 300
    assert batch(spark, broker.bootstrap_servers, subscribePattern="no-such-.*").count() == 0


def test_timestamps_say_where_to_begin_and_end(
    spark: SparkSession, broker: Broker, orders: str
) -> None:
    df = batch(
        spark,
        broker.bootstrap_servers,
        subscribe=orders,
        startingTimestamp=NOW + 495_000,  # Between two records.
        endingOffsetsByTimestamp={
            orders: {"0": NOW + 600_000, "1": NOW + 9_999_999, "2": NOW + 500_000}
        },
    )
    spans = df.groupBy("partition").agg(sf.min("offset"), sf.max("offset")).collect()
    assert sorted(tuple(row) for row in spans) == [(0, 50, 59), (1, 50, 99)]


def test_a_starting_timestamp_behind_the_last_record_is_told_or_taken_as_the_end(
    spark: SparkSession, broker: Broker, orders: str
) -> None:
    late = {"subscribe": orders, "startingTimestamp": NOW + 10**9}
    with pytest.raises(Exception, match="startingOffsetsByTimestampStrategy=latest"):
        batch(spark, broker.bootstrap_servers, **late).count()
    strategy = {"startingOffsetsByTimestampStrategy": "latest"}
    assert batch(spark, broker.bootstrap_servers, **late, **strategy).count() == 0


def test_ranges_are_split_into_as_many_tasks_as_asked_for(
    spark: SparkSession, broker: Broker, orders: str
) -> None:
    def tasks(**options: int) -> int:
        df = batch(spark, broker.bootstrap_servers, subscribe=orders, **options)
        assert df.count() == 300
        return df.rdd.getNumPartitions()

    assert tasks() == 3
    assert tasks(minPartitions=2) == 3
    assert tasks(minPartitions=9) == 9
    assert tasks(maxRecordsPerPartition=40) == 9


def test_an_empty_topic_has_no_rows(spark: SparkSession, broker: Broker) -> None:
    topic = create(broker.bootstrap_servers, topic_name("empty"), 2)
    assert rows(batch(spark, broker.bootstrap_servers, subscribe=topic)) == []


def test_small_fetches_read_the_same(spark: SparkSession, broker: Broker, orders: str) -> None:
    whole = rows(batch(spark, broker.bootstrap_servers, subscribe=orders))
    small = batch(spark, broker.bootstrap_servers, subscribe=orders, fetchBytes=1)
    assert rows(small) == whole


@pytest.mark.usefixtures("pushing")
@pytest.mark.parametrize(
    "condition",
    [
        "partition IN (0, 2) AND offset >= 95",
        "partition > 0 AND offset < 3 AND key IS NOT NULL AND length(value) > 3",
        "timestamp > timestamp_millis(1700000900000) AND timestamp <= timestamp_millis(1700000950000)",
        "timestamp = timestamp_micros(1700000900000001)",
        "topic = 'another'",
        "value = X'76616C75652D35' OR offset = 1",
    ],
)
def test_conditions_that_are_pushed_down_change_nothing_but_the_work(
    spark: SparkSession, broker: Broker, orders: str, condition: str
) -> None:
    pushed = rows(batch(spark, broker.bootstrap_servers, subscribe=orders).where(condition))
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    plain = rows(batch(spark, broker.bootstrap_servers, subscribe=orders).where(condition))
    assert pushed == plain


@pytest.mark.usefixtures("pushing")
def test_a_condition_on_the_partition_leaves_one_task(
    spark: SparkSession, broker: Broker, orders: str
) -> None:
    df = batch(spark, broker.bootstrap_servers, subscribe=orders).where(
        "partition = 1 AND offset >= 20 AND timestamp >= timestamp_millis(1700000300000)"
    )
    assert df.rdd.getNumPartitions() == 1
    assert df.agg(sf.min("offset")).collect()[0][0] == 30


def test_rows_are_right_at_any_session_time_zone(
    spark: SparkSession, broker: Broker, orders: str
) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        df = batch(spark, broker.bootstrap_servers, subscribe=orders, startingTimestamp=NOW)
        first = df.select(sf.min(sf.unix_millis("timestamp"))).collect()[0][0]
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert first == NOW


def test_it_is_found_in_sql_without_registration(
    spark: SparkSession, broker: Broker, orders: str
) -> None:
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW orders_view USING dmq OPTIONS ("
        f"'kafka.bootstrap.servers' '{broker.bootstrap_servers}', 'subscribe' '{orders}')"
    )
    assert spark.sql("SELECT count(*) FROM orders_view").collect()[0][0] == 300
    spark.catalog.dropTempView("orders_view")


def test_offsets_json_is_that_of_the_kafka_source() -> None:
    from dmq.spark.offsets import from_json, to_json

    text = '{"a": {"0": 5, "1": 7}, "b": {"10": 1}}'
    assert json.dumps(to_json(from_json(json.loads(text)))) == text
