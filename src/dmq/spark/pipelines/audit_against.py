"""An audit of topics against something that should hold the same: another cluster, a landed table.

Owns these two comparisons. Content is compared by fingerprints of 64 bits; where they differ, the
records that are only on one side are named.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dmq.spark.pipelines.audit import Subject, checksum, fingerprint, subject_of
from dmq.spark.pipelines.dead_letters import places
from dmq.spark.pipelines.failures import PipelineError
from dmq.spark.pipelines.findings import SAMPLES_MAX, Report
from dmq.spark.pipelines.landing import land_columns
from dmq.spark.pipelines.tables import Landing, ParquetTable
from dmq.spark.pipelines.values import format_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PLACE = ["partition", "offset"]


def against_cluster(spark: "SparkSession", left: Subject, right: Subject, report: Report) -> None:
    """Whether two clusters hold the same records (key and value) in their topics, in any order."""
    from pyspark.sql import functions as f

    report.checks.append(f"the records of {left.label} against those of {right.label}")

    def counted(subject: Subject, name: str) -> "DataFrame":
        if not subject.ends:
            return spark.createDataFrame([], f"topic string, hash long, {name} long, place string")
        return (
            subject.records(spark)
            .withColumn("hash", fingerprint(f.col("key"), f.col("value")))
            .groupBy("topic", "hash")
            .agg(
                f.count("*").alias(name),
                f.min(f.struct("partition", "offset", f.col("key").cast("string")))
                .cast("string")
                .alias("place"),
            )
        )

    both = counted(left, "here").join(
        counted(right, "there").withColumnRenamed("place", "place_there"), ["topic", "hash"], "full"
    )
    unequal = both.select(
        "topic",
        f.coalesce("here", f.lit(0)).alias("here"),
        f.coalesce("there", f.lit(0)).alias("there"),
        f.coalesce("place", "place_there").alias("place"),
    ).where("here <> there")
    for condition, more, where in (
        ("here > there", "here - there", f"{left.label}, not {right.label}"),
        ("there > here", "there - here", f"{right.label}, not {left.label}"),
    ):
        total = unequal.where(condition).agg(f.sum(f.expr(more))).first()
        count = int(total[0] or 0) if total is not None else 0
        rows = unequal.where(condition).limit(SAMPLES_MAX).collect() if count else []
        report.find("clusters", where, count, "records are only there", [r.asDict() for r in rows])


def against_table(
    spark: "SparkSession", table: ParquetTable, subject: Subject, report: Report
) -> None:
    """Whether a landed table and its dead letters hold each record of the topic once, unchanged."""
    landing = table.landing()
    if landing is None:
        raise PipelineError(
            f"{table.folder} is no table of `dmq pipeline land`",
            "Name a folder that a topic was landed in.",
            is_missing=True,
        )
    if landing.topic not in subject.ends and landing.topic:
        report.notes.append(f"{landing.topic} holds no records")
    report.checks.append(f"{landing.topic} against the table {table.folder}")
    reached = _reached(table)
    format_ = format_of(landing.declared)
    records = format_.parse(_up_to(subject.records(spark), landing.topic, reached))
    expected = land_columns(records.where("is_good"), landing, format_.fields)
    rows = spark.read.parquet(table.folder.as_uri())
    _behind(subject, landing, reached, report)
    _same_rows(expected, rows, report, str(table.folder))
    bad = records.where("NOT is_good").select("topic", *_PLACE)
    _buried(spark, subject, landing, bad, report)


def _reached(table: ParquetTable) -> dict[int, int]:
    """Up to where the landing has finished its batches: partition → offset, from its checkpoint."""
    done = sorted(int(p.name) for p in (table.checkpoint / "commits").glob("[0-9]*"))
    if not done:
        return {}
    lines = (table.checkpoint / "offsets" / str(done[-1])).read_text().splitlines()
    offsets: dict[str, dict[str, int]] = json.loads(lines[2])
    return {int(p): end for of in offsets.values() for p, end in of.items()}


def _up_to(records: "DataFrame", topic: str, reached: dict[int, int]) -> "DataFrame":
    """The records that the landing has read."""
    from pyspark.sql import functions as f

    limits = f.create_map(*[f.lit(each) for pair in reached.items() for each in pair])
    mine = records.where(f.col("topic") == topic)
    if not reached:
        return mine.where("false")
    return mine.where(f.col("offset") < f.coalesce(limits[f.col("partition")], f.lit(0)))


def _behind(subject: Subject, landing: Landing, reached: dict[int, int], report: Report) -> None:
    ends = subject.ends.get(landing.topic, {})
    behind = sum(max(0, end - reached.get(partition, 0)) for partition, end in ends.items())
    if behind:
        report.notes.append(f"The table is {behind:,} offsets behind {landing.topic}: not compared")


def _same_rows(expected: "DataFrame", rows: "DataFrame", report: Report, where: str) -> None:
    from pyspark.sql import functions as f

    names = [name for name in expected.columns if name not in ("_partition", "_offset")]

    def hashed(frame: "DataFrame") -> "DataFrame":
        # Columns that are folders come back as text; their texts are what is compared.
        texts = [f.to_json(f.struct(f.col(f"`{name}`"))) for name in names]
        return frame.select(
            f.col("_partition").alias("partition"),
            f.col("_offset").alias("offset"),
            fingerprint(*texts).alias("hash"),
        )

    wanted = hashed(expected)
    there = (
        hashed(rows)
        .groupBy(*_PLACE)
        .agg(f.count("*").alias("times"), f.max("hash").alias("hash_there"))
    )
    sums = wanted.agg(f.count("*"), checksum(f.col("hash"))).first()
    has = hashed(rows).agg(f.count("*"), checksum(f.col("hash"))).first()
    assert sums is not None
    assert has is not None
    report.notes.append(
        f"{where}: {has[0]:,} rows, checksum {str(has[1]).lower()};"
        f" expected {sums[0]:,}, {str(sums[1]).lower()}"
    )
    if tuple(sums) == tuple(has) and not there.where("times > 1").head(1):
        return
    both = wanted.join(there, _PLACE, "full")
    for words, condition in (
        ("records have no row", "times IS NULL"),
        ("rows have no record", "hash IS NULL"),
        ("records have several rows", "times > 1"),
        ("rows differ from their records", "times = 1 AND hash <> hash_there"),
    ):
        wrong = both.where(condition)
        count = wrong.count()
        samples = (
            wrong.select(*_PLACE).orderBy(*_PLACE).limit(SAMPLES_MAX).collect() if count else []
        )
        report.find("table", where, count, words, [row.asDict() for row in samples])


def _buried(
    spark: "SparkSession", subject: Subject, landing: Landing, bad: "DataFrame", report: Report
) -> None:
    """Each record that does not parse is among the dead letters."""
    count = bad.count()
    if not count:
        return
    dead = subject_of(landing.dead_letters, subject.options, [landing.dead_letters])
    report.notes.append(f"{count:,} records of {landing.topic} do not parse")
    if not dead.ends:
        report.find("dead letters", landing.dead_letters, count, "records are nowhere", [])
        return
    found = places(dead.records(spark, headers=True)).select("topic", *_PLACE).distinct()
    lost = bad.join(found, ["topic", *_PLACE], "left_anti")
    missing = lost.count()
    samples = lost.limit(SAMPLES_MAX).collect() if missing else []
    told: list[dict[str, Any]] = [row.asDict() for row in samples]
    report.find("dead letters", landing.dead_letters, missing, "records are nowhere", told)


def table_at(place: str) -> ParquetTable:
    """The table in a folder."""
    folder = Path(place.removeprefix("file://")).expanduser()
    if not folder.is_dir():
        raise PipelineError(f"There is no folder {folder}", is_missing=True)
    return ParquetTable(folder)
