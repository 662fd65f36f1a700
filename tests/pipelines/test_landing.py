"""Topics landed as tables, judged by pyarrow, and audited: a real Spark, a real cluster."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pipelines.test_values import AVRO, ORDER, descriptors, in_avro
from pyspark.sql import SparkSession
from spark.feeding import create, produce, topic_name

from demo.generator import Shop
from dmq.cli.pipeline_dead_letters import prepare
from dmq.cli.session import Session
from dmq.spark.pipelines import audit as job
from dmq.spark.pipelines import audit_against, protobuf_values, runs
from dmq.spark.pipelines.failures import PipelineError
from dmq.spark.pipelines.findings import Report
from dmq.spark.pipelines.landing import Order, land
from dmq.spark.pipelines.sessions import Where
from dmq.spark.pipelines.tables import ParquetTable
from dmq.testing import Cluster

pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.timeout(1200)]

SCHEMA = "n BIGINT NOT NULL, word STRING, at TIMESTAMP"
Land = Callable[..., Any]


@pytest.fixture
def landed(cluster: Cluster) -> Land:
    """Lands a topic once; returns the progress."""

    def once(topic: str, table: ParquetTable, **settings: Any) -> Any:
        source = {"kafka.bootstrap.servers": cluster.bootstrap}
        order = Order(topic, source, is_once=True, **settings)
        return land(order, table, Where(), lambda progress, flow: None, "0a1b2c3d")

    return once


def rows(table: ParquetTable) -> list[dict[str, Any]]:
    """As any reader of Parquet folders finds them."""
    found = ds.dataset(table.folder, format="parquet", partitioning="hive").to_table().to_pylist()
    return sorted(found, key=lambda row: (row["_partition"], row["_offset"]))


def letters(cluster: Cluster, topic: str, count: int) -> list[dict[str, Any]]:
    """Dead letters: value and headers."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "judge",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    found = []
    while len(found) < count:
        for message in consumer.consume(100, timeout=30):
            assert message.error() is None
            headers = {name: value.decode() for name, value in message.headers() or []}
            found.append(headers | {"value": message.value()})
    consumer.close()
    return found


def audited(spark: SparkSession, cluster: Cluster, table: ParquetTable, topic: str) -> Report:
    report = Report()
    options = {"kafka.bootstrap.servers": cluster.bootstrap}
    subject = job.subject_of("here", options, [topic])
    audit_against.against_table(spark, table, subject, report)
    return report


def test_every_order_is_a_row_or_a_dead_letter_once(
    spark: SparkSession, cluster: Cluster, shop: Shop, landed: Land, tmp_path: Path
) -> None:
    table = ParquetTable(tmp_path / "orders")
    own = create(cluster.bootstrap, topic_name("landed-dead"), 1)  # Projects have the usual one.
    progress = landed("orders", table, batch_records=250, dead_letters=own)
    assert progress.rows == shop.sent["orders"]
    assert progress.dead_letters == shop.broken["orders"] > 0
    assert progress.flows["orders"].lag == 0
    found = rows(table)
    assert len(found) == shop.sent["orders"] - shop.broken["orders"]
    assert len({(row["_partition"], row["_offset"]) for row in found}) == len(found)
    assert all(row["day"] == row["_timestamp"].strftime("%Y-%m-%d") for row in found)
    assert pq.read_schema(next(table.files())).field("at").type == pa.timestamp("us", "UTC")
    assert len(list(table.files())) < 4, "small files were merged"
    dead = letters(cluster, own, shop.broken["orders"])
    assert all(each["dmq.dead.topic"] == "orders" for each in dead)
    reasons = " | ".join(each["dmq.dead.reason"] for each in dead)
    for words in ("not JSON: ", "field at: ", "not UTF-8: ", "a JSON array, not an object"):
        assert words in reasons
    assert audited(spark, cluster, table, "orders").findings == []
    record = runs.read(table.record)
    assert record is not None
    assert record.state == "completed"


def test_landing_goes_on_where_it_ended_and_a_repeated_batch_changes_nothing(
    spark: SparkSession, cluster: Cluster, landed: Land, tmp_path: Path
) -> None:
    topic = create(cluster.bootstrap, topic_name("numbers"), 2, {"max.message.bytes": "50000"})
    prepare(Session(cluster.bootstrap, {}), topic, f"{topic}-dead")
    table = ParquetTable(tmp_path / "numbers")
    send(cluster, topic, range(100))
    # The largest that the topic takes: one that can't be compressed, and one because it was.
    large = random.Random(1).randbytes(49_900)
    produce(cluster.bootstrap, topic, [(b"k", large)], partition=1)
    produce(
        cluster.bootstrap, topic, [(b"k", b"{" * 500_000)], partition=1, compression_type="zstd"
    )
    progress = landed(topic, table, schema=SCHEMA, partition_by=("word",))
    assert (progress.rows, progress.dead_letters) == (102, 2)
    send(cluster, topic, range(100, 150))
    # The schema was said once: examples would tell of other fields.
    landed(topic, table, format="json")
    assert sorted(row["n"] for row in rows(table)) == list(range(150))
    # As after a crash between the batch's rows and its end: Spark repeats what has no commit.
    last = max((table.checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    (table.checkpoint / "commits" / f".{last.name}.crc").unlink(missing_ok=True)
    send(cluster, topic, range(150, 160))
    landed(topic, table)
    assert sorted(row["n"] for row in rows(table)) == list(range(160))
    assert audited(spark, cluster, table, topic).findings == []
    gone = delete_what_comes(cluster, topic)
    with pytest.raises(PipelineError, match=r"the log starts at \d+ now") as lost:
        landed(topic, table)
    assert "failOnDataLoss" not in lost.value.message
    assert "--skip-lost" in lost.value.hint
    assert landed(topic, table, skips_lost=True).skipped == gone
    assert sorted(row["n"] for row in rows(table)) == [*range(160), 200]


def delete_what_comes(cluster: Cluster, topic: str) -> int:
    """As if retention were faster: records of partition 0 that nobody has read; how many."""
    where = TopicPartition(topic, 0)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "judge"})
    _, before = consumer.get_watermark_offsets(where, timeout=30)
    produce(cluster.bootstrap, topic, [(b"k", b'{"n": 170}')] * 3, partition=0)
    end = TopicPartition(topic, 0, before + 3)
    admin.delete_records([end])[where].result(30)
    produce(cluster.bootstrap, topic, [(b"k", b'{"n": 200}')], partition=0)
    consumer.close()
    return 3


def test_an_audit_finds_what_is_wrong_with_a_table(
    spark: SparkSession, cluster: Cluster, landed: Land, tmp_path: Path
) -> None:
    topic = create(cluster.bootstrap, topic_name("spoilt"), 1)
    create(cluster.bootstrap, f"{topic}-dead", 1)
    table = ParquetTable(tmp_path / "spoilt")
    send(cluster, topic, range(20))
    landed(topic, table, schema=SCHEMA, partition_by=())
    [path] = table.files()
    good = pq.read_table(path)
    numbers = good["n"].to_pylist()
    spoilt = good.set_column(0, good.schema.field(0), [[*numbers[:5], -1, *numbers[6:]]])
    twice = spoilt.slice(0, 2)
    pq.write_table(spoilt.slice(0, 18), path)
    pq.write_table(twice, path.with_name("part-0a1b2c3d-99999999-0.parquet"))
    found = {each.what: each.count for each in audited(spark, cluster, table, topic).findings}
    assert found == {
        "records have no row": 2,
        "records have several rows": 2,
        "rows differ from their records": 1,
    }


def test_a_wrong_schema_and_a_wrong_partition_are_sentences(
    cluster: Cluster, shop: Shop, landed: Land, tmp_path: Path
) -> None:
    with pytest.raises(PipelineError, match="The schema does not hold"):
        landed("orders", ParquetTable(tmp_path / "a"), schema="id OF COURSE")
    with pytest.raises(PipelineError, match="partitioned by colour: no such field"):
        landed("orders", ParquetTable(tmp_path / "b"), partition_by=("colour",))
    with pytest.raises(PipelineError, match="as columns of the table are"):
        landed("orders", ParquetTable(tmp_path / "c"), schema="day STRING")
    record = runs.read(ParquetTable(tmp_path / "c").record)
    assert record is not None
    assert record.state == "failed"


def test_an_audit_of_topics_finds_duplicates_holes_and_disorder(
    spark: SparkSession, cluster: Cluster
) -> None:
    topic = create(cluster.bootstrap, topic_name("versions"), 2)
    good = [(b"a", 1), (b"a", 2), (b"b", 1), (b"a", 3), (b"b", 2)]
    pairs = [(key, json.dumps({"v": v, "id": f"{key.decode()}{v}"}).encode()) for key, v in good]
    produce(cluster.bootstrap, topic, pairs, partition=0)
    options = {"kafka.bootstrap.servers": cluster.bootstrap}
    report = looked_at(spark, options, topic)
    assert report.findings == []
    assert [(each.records, each.gaps) for each in report.partitions] == [(5, 0)]
    bad = [(b"a", b'{"v": 2, "id": "a2"}'), (b"b", b'{"v": 5, "id": "b5"}')]
    produce(cluster.bootstrap, topic, bad, partition=0)
    produce(cluster.bootstrap, topic, [(b"b", b'{"v": 6, "id": "b6"}')], partition=1)
    found = {each.what: each.count for each in looked_at(spark, options, topic).findings}
    assert found == {
        "records more than one per $.id (1 ids)": 1,
        "keys are in several partitions: their records have no order": 1,
        "times $.v of a key went back": 1,
        "times $.v of a key left something out": 1,
    }


def test_an_audit_explains_what_transactions_leave_in_the_offsets(
    spark: SparkSession, cluster: Cluster
) -> None:
    topic = create(cluster.bootstrap, topic_name("transfers"), 1)
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "transactional.id": topic_name("audit")}
    )
    producer.init_transactions()
    for is_kept in (True, False, True):
        producer.begin_transaction()
        for number in range(3):
            producer.produce(topic, f"{is_kept} {number}", "k")
        if is_kept:
            producer.commit_transaction()
        else:
            producer.flush()
            producer.abort_transaction()
    report = looked_at(spark, {"kafka.bootstrap.servers": cluster.bootstrap}, topic, None, None)
    assert report.findings == []
    assert report.records == 6
    # Offsets: 3 records, marker, 3 aborted, marker, 3 records, marker.
    assert [each.gaps for each in report.partitions] == [6]
    notes = " ".join(report.notes)
    assert "3 offsets hold no record: transaction markers" in notes
    assert "3 offsets hold no record: aborted transactions" in notes


def test_clusters_are_compared_record_by_record(spark: SparkSession, cluster: Cluster) -> None:
    """Two topics of one cluster stand for two clusters: each side is read with its own options."""
    topic = create(cluster.bootstrap, topic_name("mirrored"), 2)
    send(cluster, topic, range(50))
    options = {"kafka.bootstrap.servers": cluster.bootstrap}
    left = job.subject_of("left", options, [topic])
    report = Report()
    audit_against.against_cluster(spark, left, job.subject_of("right", options, [topic]), report)
    assert report.findings == []
    send(cluster, topic, [7, 900])
    audit_against.against_cluster(spark, left, job.subject_of("right", options, [topic]), report)
    assert [(each.where, each.count) for each in report.findings] == [("right, not left", 2)]


def test_an_audit_of_what_is_not_there_is_a_sentence(cluster: Cluster, tmp_path: Path) -> None:
    options = {"kafka.bootstrap.servers": cluster.bootstrap}
    with pytest.raises(PipelineError, match="nowhere"):
        job.subject_of("here", options, ["nowhere"])
    with pytest.raises(PipelineError, match="says nothing about a record"):
        job.check_expression("drop table")
    with pytest.raises(PipelineError, match="There is no folder"):
        audit_against.table_at(str(tmp_path / "none"))
    with pytest.raises(PipelineError, match="only tables of files can be audited") as refused:
        audit_against.table_at("postgresql://ada:secret@db/shop")
    assert "secret" not in refused.value.message


def looked_at(
    spark: SparkSession,
    options: dict[str, str],
    topic: str,
    id_: str | None = "$.id",
    sequence: str | None = "$.v",
) -> Report:
    report = Report()
    job.audit(spark, job.subject_of("here", options, [topic]), job.Checks(id_, sequence), report)
    return report


def send(cluster: Cluster, topic: str, numbers: Any) -> None:
    pairs = [
        (str(n).encode(), json.dumps({"n": n, "word": "odd" if n % 2 else "even"}).encode())
        for n in numbers
    ]
    produce(cluster.bootstrap, topic, pairs)


def beyond_its_price(order: bytes) -> bytes:
    """The same order, with a price of more digits than were declared."""
    price = (1250).to_bytes(2)
    assert order.count(b"\x04" + price) == 1
    return order.replace(b"\x04" + price, b"\x0a" + b"\x00\xff\xfb" + price)


def test_avro_and_protobuf_are_landed_and_audited_too(
    spark: SparkSession, cluster: Cluster, landed: Land, tmp_path: Path
) -> None:
    order = protobuf_values._class_of(descriptors(), "shop.Order")
    good = {
        "avro": (in_avro(ORDER), {"schema": json.dumps(AVRO)}),
        "protobuf": (
            order(id="a", n=5, lines=[{"product": "tea"}]).SerializeToString(),
            {"schema": descriptors(), "message": "shop.Order"},
        ),
    }
    for format_, (value, settings) in good.items():
        topic = create(cluster.bootstrap, topic_name(format_), 1)
        create(cluster.bootstrap, f"{topic}-dead", 1)
        bad = [b"\x0a\xff", beyond_its_price(value)] if format_ == "avro" else [b"\x0a\xff"]
        produce(cluster.bootstrap, topic, [(b"k", each) for each in (value, *bad, value)])
        table = ParquetTable(tmp_path / format_)
        progress = landed(topic, table, format=format_, partition_by=(), **settings)
        assert (progress.rows, progress.dead_letters) == (2 + len(bad), len(bad))
        found = rows(table)
        assert [row["_offset"] for row in found] == [0, 1 + len(bad)]
        dead = letters(cluster, f"{topic}-dead", len(bad))
        reasons = {each["dmq.dead.offset"]: each["dmq.dead.reason"] for each in dead}
        assert reasons["1"].startswith(f"not {format_.capitalize()} of")
        if format_ == "avro":
            assert reasons["2"] == "field price: 42946408.7 is no decimal(9,2)"
            assert {name: found[0][name] for name in ORDER} == ORDER | {"more": [("y", 1.5)]}
        else:
            assert (found[0]["id"], found[0]["lines"]) == ("a", [{"product": "tea"}])
        assert audited(spark, cluster, table, topic).findings == []
