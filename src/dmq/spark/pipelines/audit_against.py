"""An audit of topics against something that should hold the same: another cluster, a landed table.

Owns these two comparisons. Content is compared by fingerprints of 64 bits; where they differ, the
records that are only on one side are named.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dmq.spark.offsets import Partition
from dmq.spark.pipelines.audit import Subject, checksum, fingerprint, subject_of
from dmq.spark.pipelines.dead_letters import places
from dmq.spark.pipelines.failures import PipelineError
from dmq.spark.pipelines.findings import SAMPLES_MAX, Report
from dmq.spark.pipelines.landing import land_columns
from dmq.spark.pipelines.tables import Landing, ParquetTable
from dmq.spark.pipelines.values import format_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_PLACE = ["partition", "offset"]


def against_cluster(spark: "SparkSession", left: Subject, right: Subject, report: Report) -> None:
    """Whether two clusters hold the same records (key and value) in their topics, in any order."""
    from pyspark.sql import functions as f

    report.checks.append(f"the records of {left.label} against those of {right.label}")

    def counted(subject: Subject, name: str) -> "DataFrame":
        if not subject.ranges():
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
    spark: "SparkSession",
    table: ParquetTable,
    subject: Subject,
    report: Report,
    compacted: frozenset[str] = frozenset(),
) -> None:
    """Whether a landed table and its dead letters hold each record of the topic once, unchanged."""
    landing = table.landing()
    if landing is None:
        raise PipelineError(
            f"{table.folder} is no table of `dmq pipeline land`",
            "Name a folder that a topic was landed in.",
            is_missing=True,
        )
    if landing.topic not in subject.topics:
        raise PipelineError(f"{table.folder} is a table of {landing.topic!r}", "Name that topic.")
    report.checks.append(f"{landing.topic} against the table {table.folder}")
    reached = _reached(table)
    # Asked after how far the landing is: it may have gone on since the audit began.
    topic = subject_of(subject.label, subject.options, [landing.topic])
    format_ = format_of(landing.declared)
    records = format_.parse(_up_to(topic.records(spark, headers=landing.headers), reached))
    expected = land_columns(records.where("is_good"), landing, format_.fields)
    _behind(topic, reached, report)
    comparison = _Comparison(topic, landing, str(table.folder), report, landing.topic in compacted)
    comparison.compare(expected, _rows(spark, table, landing, expected), reached)
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


def _rows(
    spark: "SparkSession", table: ParquetTable, landing: Landing, expected: "DataFrame"
) -> "DataFrame":
    """The table, with the types that its columns had when they were written."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StringType, StructField, StructType

    # Folders' names are texts, and only that; other columns are what their files say.
    fields = [
        StructField(each.name, StringType()) if each.name in landing.partition_by else each
        for each in expected.schema
    ]
    rows = spark.read.schema(StructType(fields)).parquet(table.folder.as_uri())
    return rows.select(*(f.col(f"`{e.name}`").cast(e.dataType) for e in expected.schema))


def _up_to(records: "DataFrame", reached: Mapping[int, int]) -> "DataFrame":
    """The records that the landing has read."""
    from pyspark.sql import functions as f

    return records.where(f.col("offset") < _of_partition(reached, f.col("partition")))


def _of_partition(numbers: Mapping[int, int], partition: "Column") -> "Column":
    """The number that a row's partition has in a map; 0 if it has none."""
    from pyspark.sql import functions as f

    if not numbers:
        return f.lit(0)
    pairs = f.create_map(*[f.lit(each) for pair in numbers.items() for each in pair])
    return f.coalesce(pairs[partition], f.lit(0))


def _behind(topic: Subject, reached: Mapping[int, int], report: Report) -> None:
    behind = sum(
        max(0, end - max(reached.get(place[1], 0), topic.starts[place]))
        for place, end in topic.ends.items()
    )
    if behind:
        [name] = topic.topics
        report.notes.append(f"The table is {behind:,} offsets behind {name}: not compared")


_NO_ROW = "records have no row"
_NO_RECORD = "rows have no record"
_SEVERAL = "records have several rows"
_OTHER = "rows differ from their records"


class _Comparison:
    """The rows that a topic should have become, and those that are there."""

    def __init__(
        self, topic: Subject, landing: Landing, where: str, report: Report, is_compacted: bool
    ) -> None:
        self._topic = topic
        self._landing = landing
        self._where = where
        self._report = report
        self._is_compacted = is_compacted

    def compare(self, expected: "DataFrame", rows: "DataFrame", reached: Mapping[int, int]) -> None:
        """Tell what is wrong with rows of records that the topic has and the landing has finished."""
        from pyspark.sql import functions as f

        begins = _of_partition(_by_partition(self._topic.starts), f.col("_partition"))
        ends = _of_partition(reached, f.col("_partition"))
        self._note(rows.where(f.col("_offset") < begins).count(), "older than their topic's start")
        self._note(rows.where(f.col("_offset") >= ends).count(), "of a batch that is not finished")
        comparable = rows.where((f.col("_offset") >= begins) & (f.col("_offset") < ends))
        wanted, there = self._hashed(expected), self._hashed(comparable)
        if self._has_same_sums(wanted, there):
            return
        by_place = there.groupBy(*_PLACE).agg(
            f.count("*").alias("times"), f.max("hash").alias("hash_there")
        )
        kind = f.expr(
            f"CASE WHEN times IS NULL THEN '{_NO_ROW}' WHEN hash IS NULL THEN '{_NO_RECORD}'"
            f" WHEN times > 1 THEN '{_SEVERAL}' WHEN hash <> hash_there THEN '{_OTHER}' END"
        )
        wrong = wanted.join(by_place, _PLACE, "full").select(*_PLACE, kind.alias("kind"))
        kept = wrong.where("kind IS NOT NULL").persist()
        try:
            self._tell(kept)
        finally:
            kept.unpersist()

    def _hashed(self, frame: "DataFrame") -> "DataFrame":
        from pyspark.sql import functions as f

        texts = []
        for field in frame.schema:
            if field.name in ("_partition", "_offset"):
                continue
            column = f.col(f"`{field.name}`")
            if field.name in self._landing.partition_by and field.dataType.typeName() == "string":
                column = f.nullif(column, f.lit(""))  # They share a folder.
            texts.append(f.to_json(f.struct(column.alias(field.name))))
        return frame.select(
            f.col("_partition").alias("partition"),
            f.col("_offset").alias("offset"),
            fingerprint(*texts).alias("hash"),
        )

    def _has_same_sums(self, wanted: "DataFrame", there: "DataFrame") -> bool:
        from pyspark.sql import functions as f

        # With the places in the sum, a row that is there twice instead of another shows too.
        placed = f.xxhash64(*_PLACE, "hash")
        sums = [
            frame.agg(f.count("*"), checksum(f.col("hash")), checksum(placed)).first()
            for frame in (wanted, there)
        ]
        assert sums[0] is not None
        assert sums[1] is not None
        self._report.notes.append(
            f"{self._where}: {sums[1][0]:,} rows, checksum {str(sums[1][1]).lower()};"
            f" expected {sums[0][0]:,}, {str(sums[0][1]).lower()}"
        )
        return tuple(sums[0]) == tuple(sums[1])

    def _tell(self, wrong: "DataFrame") -> None:
        from pyspark.sql import functions as f

        counts = {row["kind"]: row["count"] for row in wrong.groupBy("kind").count().collect()}
        lost = wrong.where(f.col("kind") == _NO_RECORD)
        if counts.get(_NO_RECORD):
            lost = self._without_explained(lost)
            counts[_NO_RECORD] = lost.count()
        for kind in (_NO_ROW, _NO_RECORD, _SEVERAL, _OTHER):
            mine = lost if kind == _NO_RECORD else wrong.where(f.col("kind") == kind)
            found = counts.get(kind, 0)
            rows = (
                mine.select(*_PLACE).orderBy(*_PLACE).limit(SAMPLES_MAX).collect() if found else []
            )
            self._report.find("table", self._where, found, kind, [row.asDict() for row in rows])

    def _without_explained(self, lost: "DataFrame") -> "DataFrame":
        """Rows without a record, save those whose record retention or compaction took."""
        from pyspark.sql import functions as f

        now = subject_of(self._topic.label, self._topic.options, [self._landing.topic])
        is_deleted = f.col("offset") < _of_partition(_by_partition(now.starts), f.col("partition"))
        self._note(lost.where(is_deleted).count(), "of records that were deleted meanwhile")
        left = lost.where(~is_deleted)
        if not self._is_compacted:
            return left
        is_compacted = f.col("offset") < _of_partition(
            _by_partition(self._topic.ends), f.col("partition")
        )
        self._note(left.where(is_compacted).count(), "of records that compaction took")
        return left.where(~is_compacted)

    def _note(self, count: int, what: str) -> None:
        if count:
            self._report.notes.append(f"{self._where}: {count:,} rows are {what}: not compared")


def _by_partition(offsets: Mapping[Partition, int]) -> dict[int, int]:
    """Of one topic."""
    return {partition: offset for (_, partition), offset in offsets.items()}


def _buried(
    spark: "SparkSession", subject: Subject, landing: Landing, bad: "DataFrame", report: Report
) -> None:
    """Each record that does not parse is among the dead letters."""
    count = bad.count()
    if not count:
        return
    dead = subject_of(landing.dead_letters, subject.options, [landing.dead_letters])
    report.notes.append(f"{count:,} records of {landing.topic} do not parse")
    if not dead.ranges():
        report.find("dead letters", landing.dead_letters, count, "records are nowhere", [])
        return
    found = places(dead.records(spark, headers=True)).select("topic", *_PLACE).distinct()
    lost = bad.join(found, ["topic", *_PLACE], "left_anti")
    missing = lost.count()
    samples = lost.limit(SAMPLES_MAX).collect() if missing else []
    told: list[dict[str, Any]] = [row.asDict() for row in samples]
    report.find("dead letters", landing.dead_letters, missing, "records are nowhere", told)


def table_at(place: str) -> ParquetTable:
    """The table in a folder. Raises PipelineError if that is no folder."""
    if "://" in place and not place.startswith("file://"):
        raise PipelineError(
            f"{place.partition('://')[0]}://… is no folder: only tables of files can be audited yet",
            "Name the folder that the topic was landed in.",
        )
    folder = Path(place.removeprefix("file://")).expanduser()
    if not folder.is_dir():
        raise PipelineError(f"There is no folder {folder}", is_missing=True)
    return ParquetTable(folder)
