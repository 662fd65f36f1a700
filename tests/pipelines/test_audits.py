"""Audits whose broker breaks a promise, and audits of tables that outlive their records. Real Spark."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from compat.eventually import eventually
from confluent_kafka import TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from pipelines.test_gaps import Transactions
from pyspark.sql import SparkSession
from spark.feeding import QUIET, create, produce, topic_name

from dmq.broker.partition import CommittedRead, Partition
from dmq.machines.producers.aborted import AbortedTxn
from dmq.spark.pipelines import audit as job
from dmq.spark.pipelines import audit_against
from dmq.spark.pipelines.failures import PipelineError
from dmq.spark.pipelines.findings import Report
from dmq.spark.pipelines.gaps import HIDDEN
from dmq.spark.pipelines.landing import Order, land
from dmq.spark.pipelines.log_batches import LogReader
from dmq.spark.pipelines.sessions import Where
from dmq.spark.pipelines.tables import ParquetTable, new_id
from dmq.testing import Broker

pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.timeout(1200)]
PATIENCE_S = 90
"""A compaction starts a process; on a loaded machine that takes its time."""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    often = {"log.retention.check.interval.ms": 100, "log.cleaner.backoff.ms": 100}
    with Broker(often) as running:
        yield running


@pytest.fixture
def options(broker: Broker) -> dict[str, str]:
    return {"kafka.bootstrap.servers": broker.bootstrap_servers}


def found(report: Report) -> dict[str, int]:
    return {each.what: each.count for each in report.findings}


def test_an_audit_finds_a_committed_transaction_that_a_broker_hides(
    spark: SparkSession, broker: Broker, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = create(broker.bootstrap_servers, topic_name("hidden"), 2)
    writer = Transactions(broker, topic)
    writer.write(2, is_commit=True)
    writer.write(3, is_commit=True)
    writer.write(4, is_commit=False, partition=1)
    with LogReader(options, topic, 0) as log:
        producer = log.read(3).batches[0].header.producer_id

    honest = Partition.read_committed

    def broken_promise(partition: Partition, *asked: Any, **how: Any) -> CommittedRead | None:
        found = honest(partition, *asked, **how)
        if found is None or partition.high_watermark != 7:
            return found
        return found._replace(aborted=[AbortedTxn(producer, 3, 6, 7)])

    monkeypatch.setattr(Partition, "read_committed", broken_promise)
    report = Report()
    job.audit(spark, job.subject_of("here", options, [topic]), job.Checks(), report)
    assert found(report) == {HIDDEN: 3}
    assert report.findings[0].samples == [{"topic": topic, "partition": 0, "start": 3, "end": 6}]
    # A partition that has nothing for readers is counted, and its offsets are explained.
    assert [(each.records, each.gaps) for each in report.partitions] == [(2, 5), (0, 5)]
    assert "here: 4 offsets hold no record: aborted transactions" in report.notes
    assert "here: 3 offsets hold no record: transaction markers" in report.notes


FIELDS = "n INT, at DATE, is_odd BOOLEAN, word STRING, filler STRING"


def test_a_table_is_compared_with_what_the_topic_still_has(
    spark: SparkSession, broker: Broker, options: dict[str, str], tmp_path: Path
) -> None:
    bootstrap = broker.bootstrap_servers
    topic = create(bootstrap, topic_name("kept"), config={"internal.segment.bytes": "1200"})
    for number in range(12):
        row = {"n": number % 3, "at": f"2026-01-{number + 1:02}", "is_odd": bool(number % 2)}
        row |= {"word": ["", None, "é/x"][number % 3], "filler": "x" * 400}
        produce(bootstrap, topic, [(b"k", json.dumps(row).encode())], headers=[("h", b"\xff")])
    table = ParquetTable(tmp_path / "table")
    order = Order(
        topic,
        options,
        schema=FIELDS,
        partition_by=("n", "at", "is_odd", "word"),
        headers=True,
        is_once=True,
    )
    land(order, table, Where(), lambda progress, flow: None, new_id())

    def audited(compacted: frozenset[str] = frozenset()) -> Report:
        report = Report()
        subject = job.subject_of("here", options, [topic])
        audit_against.against_table(spark, table, subject, report, compacted)
        return report

    assert found(audited()) == {}
    # Retention took the first records.
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    delete_before(admin, topic, 3)
    report = audited()
    assert found(report) == {}
    assert any("3 rows are older than their topic's start" in note for note in report.notes)
    # Compaction took others: of a topic that is not compacted that would be wrong.
    compact(admin, topic)
    wait_for_compaction(options, topic, 3, 9)
    report = audited(frozenset({topic}))
    assert found(report) == {}
    assert any("rows are of records that compaction took" in note for note in report.notes)
    assert set(found(audited())) == {"rows have no record"}
    # Nothing is left, and the landing has seen it all.
    delete_before(admin, topic, 12)
    assert found(audited()) == {}
    other = create(bootstrap, topic_name("other"))
    with pytest.raises(PipelineError, match=f"is a table of '{topic}'"):
        audit_against.against_table(
            spark, table, job.subject_of("here", options, [other]), Report()
        )


def delete_before(admin: AdminClient, topic: str, offset: int) -> None:
    for future in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        future.result(30)


def compact(admin: AdminClient, topic: str) -> None:
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in (("cleanup.policy", "compact"), ("min.cleanable.dirty.ratio", "0"))
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(30)


def wait_for_compaction(options: dict[str, str], topic: str, start: int, records: int) -> None:
    """Until the log has fewer records than were written to it from `start` on."""
    with LogReader(options, topic, 0) as log:

        def left() -> int:
            return sum(batch.header.record_count for batch in log.read(start).batches)

        eventually(lambda: left() < records, "a compaction", PATIENCE_S)
