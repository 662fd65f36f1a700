"""An audit of topics as a Spark job: counts, gaps, duplicates, order, checksums.

Owns the jobs over one cluster's topics; what is compared with them is in `audit_against`. Topics are
read from the beginning to their ends as they are at the start, so that all checks see the same
records while producers go on. Spark does the reading and the counting; nothing is held in memory.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dmq.spark.cluster import Cluster
from dmq.spark.failures import SparkSourceError
from dmq.spark.offsets import OffsetFinder, Partition, to_json, wait_for_brokers
from dmq.spark.options import EARLIEST, SourceOptions
from dmq.spark.pipelines.failures import PipelineError
from dmq.spark.pipelines.findings import SAMPLES_MAX, PartitionCount, Report
from dmq.spark.pipelines.gaps import EXPLAINED, FINDINGS, TALLY, explainer
from dmq.spark.planning import Range, ranges_between

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_PATH = re.compile(r"\$(\.[A-Za-z_][\w-]*|\[\d+\])+")


@dataclass(frozen=True, slots=True)
class Subject:
    """Topics on a cluster, with ends that stand still."""

    label: str
    options: Mapping[str, str]
    starts: Mapping[Partition, int]
    """Where the logs began when they were asked."""
    ends: Mapping[Partition, int]
    """Where readers come to their end: with read_committed, the last stable offset."""

    @property
    def topics(self) -> set[str]:
        return {topic for topic, _ in self.ends}

    def ranges(self) -> list[Range]:
        """The partitions with offsets to read, in order."""
        return ranges_between(self.starts, self.ends)

    def records(self, spark: "SparkSession", *, headers: bool = False) -> "DataFrame":
        """The records, as `format("dmq")` has them."""
        from dmq.spark.schema import source_schema

        ranges = self.ranges()
        if not ranges:
            return spark.createDataFrame([], source_schema(headers))
        assign: dict[str, list[int]] = {}
        for each in ranges:
            assign.setdefault(each.topic, []).append(each.partition)
        # What is deleted meanwhile is left out, and the read goes on.
        starts = to_json({(each.topic, each.partition): EARLIEST for each in ranges})
        ends = to_json({(each.topic, each.partition): each.end for each in ranges})
        reader = spark.read.format("dmq").options(**self.options)
        reader = reader.option("assign", json.dumps(assign)).option(
            "startingOffsets", json.dumps(starts)
        )
        return (
            reader.option("endingOffsets", json.dumps(ends))
            .option("includeHeaders", str(headers).lower())
            .load()
        )


@dataclass(frozen=True, slots=True)
class Checks:
    """What to look at beside counts, gaps and checksums. Expressions: `key`, `value`, `$.a.b`."""

    id: str | None = None
    sequence: str | None = None


def subject_of(label: str, options: Mapping[str, str], topics: Sequence[str]) -> Subject:
    """Topics with their ends as they are now. Raises PipelineError if one is not there."""
    try:
        source = SourceOptions.of({**options, "subscribe": ",".join(topics)})
        cluster = Cluster(source.settings)
        try:
            wait_for_brokers(cluster)
            finder = OffsetFinder(cluster, source)
            partitions = finder.partitions()
            starts, ends = finder.earliest(partitions), finder.latest(partitions)
        finally:
            cluster.close()
    except SparkSourceError as error:
        raise PipelineError(str(error)) from error
    return Subject(label, options, starts, ends)


def audit(
    spark: "SparkSession",
    subject: Subject,
    checks: Checks,
    report: Report,
    compacted: frozenset[str] = frozenset(),
) -> None:
    """Look at the topics of one cluster."""
    if not subject.ranges():
        report.notes.append(f"{subject.label}: the topics hold no records")
        return
    _counts(spark, subject, report)
    _gaps(spark, subject, report, compacted)
    if checks.id is not None:
        _duplicates(spark, subject, checks.id, report)
    _order(spark, subject, checks.sequence, report)


def fingerprint(*columns: "Column") -> "Column":
    """64 bits of these columns; a null is not an empty text."""
    from pyspark.sql import functions as f

    parts = [part for column in columns for part in (column.isNull(), column)]
    return f.xxhash64(*parts)


def checksum(hashes: "Column") -> "Column":
    """One text for many fingerprints, whatever their order."""
    from pyspark.sql import functions as f

    total = f.sum(hashes.cast("decimal(38,0)"))
    whole = f.lit(str(2**64)).cast("decimal(38,0)")
    return f.conv(f.pmod(total, whole).cast("string"), 10, 16)


def check_expression(text: str) -> None:
    """Raise PipelineError if a text is not `key`, `value` or `$.field.of.the.value`."""
    if text not in ("key", "value") and not _PATH.fullmatch(text):
        raise PipelineError(
            f"{text!r} says nothing about a record", "Write key, value, or a JSON path: $.order_id."
        )


def expression(text: str) -> "Column":
    """What a checked text says of a record, as text."""
    from pyspark.sql import functions as f

    if text in ("key", "value"):
        return f.col(text).cast("string")
    return f.get_json_object(f.col("value").cast("string"), text)


def _counts(spark: "SparkSession", subject: Subject, report: Report) -> None:
    from pyspark.sql import functions as f

    report.checks.append("counts and checksums")
    counted = (
        subject.records(spark)
        .withColumn("hash", fingerprint(f.col("key"), f.col("value")))
        .groupBy("topic", "partition")
        .agg(
            f.min("offset").alias("first"),
            f.max("offset").alias("last"),
            f.count("*").alias("records"),
            checksum(f.col("hash")).alias("checksum"),
        )
    )
    found = {(row["topic"], row["partition"]): row for row in counted.collect()}
    for each in subject.ranges():
        row = found.get((each.topic, each.partition))
        records = 0 if row is None else row["records"]
        report.partitions.append(
            PartitionCount(
                cluster=subject.label,
                topic=each.topic,
                partition=each.partition,
                first=None if row is None else row["first"],
                last=None if row is None else row["last"],
                records=records,
                gaps=each.size - records,
                checksum="0" if row is None else str(row["checksum"]).lower(),
            )
        )


def _gaps(
    spark: "SparkSession", subject: Subject, report: Report, compacted: frozenset[str]
) -> None:
    """Offsets that were read twice, and offsets that nothing explains, from start to end."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    report.checks.append("gaps")
    edges = [
        (each.topic, each.partition, at)
        for each in subject.ranges()
        for at in (each.start - 1, each.end)
    ]
    offsets = (
        subject.records(spark)
        .select("topic", "partition", "offset")
        .union(spark.createDataFrame(edges, "topic string, partition int, offset long"))
    )
    by_offset = Window.partitionBy("topic", "partition").orderBy("offset")
    steps = (
        offsets.withColumn("before", f.lag("offset").over(by_offset))
        .where("offset - before <> 1")
        .sortWithinPartitions("topic", "partition", "offset")
    )
    rows = steps.mapInArrow(explainer(subject.options, compacted), TALLY).collect()
    for reason in EXPLAINED + FINDINGS:
        mine = [row for row in rows if row["reason"] == reason]
        count = sum(row["offsets"] for row in mine)
        if reason in FINDINGS:
            samples = [sample.asDict() for row in mine for sample in row["samples"]]
            report.find("gaps", subject.label, count, reason, samples)
        elif count:
            report.notes.append(f"{subject.label}: {count:,} offsets hold no record: {reason}")


def _duplicates(spark: "SparkSession", subject: Subject, id_: str, report: Report) -> None:
    from pyspark.sql import functions as f

    report.checks.append(f"duplicates by {id_}")
    same = (
        subject.records(spark)
        .withColumn("id", expression(id_))
        .groupBy("topic", "id")
        .agg(
            f.count("*").alias("times"),
            f.min(f.struct("partition", "offset")).alias("first"),
            f.max(f.struct("partition", "offset")).alias("last"),
        )
    )
    without = same.where("id IS NULL").agg(f.sum("times")).first()
    if without is not None and without[0]:
        report.notes.append(f"{subject.label}: {without[0]:,} records have no {id_}")
    often = same.where("id IS NOT NULL AND times > 1")
    total = often.agg(f.count("*"), f.sum(f.col("times") - 1)).first()
    assert total is not None
    if total[0]:
        samples = [_plain(row.asDict(True)) for row in often.limit(SAMPLES_MAX).collect()]
        what = f"records more than one per {id_} ({total[0]:,} ids)"
        report.find("duplicates", subject.label, int(total[1]), what, samples)


def _order(spark: "SparkSession", subject: Subject, sequence: str | None, report: Report) -> None:
    """Keys that are in several partitions; with a sequence, whether it rises by one in each key."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    report.checks.append("keys in one partition")
    keyed = subject.records(spark).where("key IS NOT NULL")
    spread = (
        keyed.groupBy("topic", "key")
        .agg(f.collect_set("partition").alias("partitions"))
        .where("size(partitions) > 1")
    )
    count = spread.count()
    if count:
        rows = spread.limit(SAMPLES_MAX).collect()
        what = "keys are in several partitions: their records have no order"
        samples = [_plain(row.asDict(True)) for row in rows]
        report.find("order", subject.label, count, what, samples)
    if sequence is None:
        return
    report.checks.append(f"order of {sequence} in each key")
    along = Window.partitionBy("topic", "key").orderBy("partition", "offset")
    number = expression(sequence).cast("long")
    steps = (
        keyed.withColumn("number", number)
        .where("number IS NOT NULL")
        .withColumn("before", f.lag("number").over(along))
        .where("before IS NOT NULL AND number - before <> 1")
        .select("topic", "partition", "offset", "key", "before", "number")
    )
    kinds = {
        "went back": "number < before",
        "came twice": "number = before",
        "left something out": "number > before + 1",
    }
    for words, condition in kinds.items():
        wrong = steps.where(condition)
        found = wrong.count()
        samples = [_plain(r.asDict()) for r in wrong.limit(SAMPLES_MAX).collect()] if found else []
        report.find("order", subject.label, found, f"times {sequence} of a key {words}", samples)


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Bytes as text, for people and for JSON."""
    return {
        name: bytes(value).decode(errors="replace")
        if isinstance(value, bytes | bytearray)
        else value
        for name, value in row.items()
    }
