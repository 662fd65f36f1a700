"""A topic landed as a table: a stream that parses values, keeps the good and sends the others away.

Owns the stream and its batches. Where rows go is the target's business (`tables`, `postgres`). A
batch counts as done when its rows are in the table and its dead letters in their topic; if it is
repeated after a crash, rows are still there once, and dead letters may come twice (their headers name
the place, so that a reader can tell).
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from dmq.spark.pipelines import runs
from dmq.spark.pipelines.dead_letters import letters
from dmq.spark.pipelines.failures import PipelineError, first_line
from dmq.spark.pipelines.inferring import SAMPLE_MAX, schema_of
from dmq.spark.pipelines.lost import lost_offsets
from dmq.spark.pipelines.progress import Flow, Progress, put_report
from dmq.spark.pipelines.sessions import Where, classic
from dmq.spark.pipelines.tables import Landing
from dmq.spark.pipelines.values import Declared, ValueFormat, check_names, format_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from pyspark.sql.types import StructType

Watcher = Callable[[Progress, Flow | None], None]
MOMENTS = ("day", "hour")
"""What a table may be partitioned by beside its fields."""
RECORD_COLUMNS = ("_key", "_partition", "_offset", "_timestamp")
CONF = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
}
_LOOK_EACH_S = 1
_STARTS_MAX = 5
_BUSY = "Python worker failed to connect back"
_ADVICE = "To go on with what is there, set failOnDataLoss=false"
"""What the source says of offsets that are gone, to those who set its options."""


class Target(Protocol):
    """Where rows go."""

    own: Path
    checkpoint: Path
    record: Path
    log: Path

    def landing(self) -> Landing | None:
        """What is landed there already."""
        ...

    def begin(self, landing: Landing) -> None:
        """Be ready for batches."""
        ...

    def refusal(self, row: "StructType") -> "Column | None":
        """Why the struct in the column `row` can't be put, null if it can; None: all can."""
        ...

    def put(self, rows: "DataFrame", batch: int) -> None:
        """Make these rows the batch's rows, whether it was put before or not."""
        ...

    def tidy(self, before_batch: int | None) -> None:
        """A moment for housekeeping; batches below `before_batch` (None: all) are done for good."""
        ...


@dataclass(frozen=True, slots=True)
class Order:
    """What to land and how. None: as it was landed before, or as examples say."""

    topic: str
    source: Mapping[str, str]
    """How to reach the cluster: `kafka.*` options."""
    format: str | None = None
    schema: str | None = None
    message: str | None = None
    skip_bytes: int = 0
    partition_by: tuple[str, ...] | None = None
    headers: bool = False
    dead_letters: str | None = None
    group: str | None = None
    is_once: bool = False
    every_s: float = 10.0
    batch_records: int = 1_000_000
    starting: str = "earliest"
    skips_lost: bool = False
    """Go on where the topic's retention was faster, instead of ending."""
    extra: Mapping[str, str] = field(default_factory=dict)


def land(order: Order, target: Target, where: Where, watch: Watcher, new_id: str) -> Progress:
    """Land until the topic's end (`is_once`) or until told to stop, by KeyboardInterrupt."""
    runs.claim(target.record)
    desk = _Desk(order, target, where, watch)
    desk.note(now=True)
    try:
        with classic(where, f"dmq land {order.topic}", target.log, CONF) as spark:
            landing = _agreed(spark, order, target, new_id)
            target.begin(landing)
            _stream(spark, order, landing, target, desk)
    except KeyboardInterrupt:
        desk.end("stopped")
        raise
    except PipelineError as error:
        desk.end("failed", error.message)
        raise
    desk.end("completed")
    return desk.progress


def _agreed(spark: "SparkSession", order: Order, target: Target, new_id: str) -> Landing:
    """What the caller asks for, over what was landed before, over what examples say."""
    known = target.landing()
    if known is not None and known.topic != order.topic:
        raise PipelineError(
            f"Topic {known.topic!r} is landed there, not {order.topic!r}", "Choose another place."
        )
    if known is None or order.schema is not None:
        declared = _declared(spark, order)
    else:
        declared = _as_before(order, known.declared)
    partition_by = order.partition_by
    if partition_by is None:
        partition_by = ("day",) if known is None else known.partition_by
    dead = order.dead_letters or (known.dead_letters if known else f"{order.topic}-dead")
    headers = order.headers or (known is not None and known.headers)
    id_ = new_id if known is None else known.id
    return Landing(id_, order.topic, declared, partition_by, headers, dead)


def _as_before(order: Order, known: Declared) -> Declared:
    """The schema is known: examples may have changed since. What else is said must not differ."""
    return Declared(
        order.format or known.format,
        known.schema,
        order.message or known.message,
        order.skip_bytes or known.skip_bytes,
    )


def _declared(spark: "SparkSession", order: Order) -> Declared:
    format_ = order.format or "json"
    schema = order.schema
    if schema is None and format_ != "json":
        raise PipelineError(f"Values in {format_} need their schema", "Give it with --schema.")
    if schema is None:
        schema = _inferred(spark, order)
    return Declared(format_, schema, order.message, order.skip_bytes)


def _inferred(spark: "SparkSession", order: Order) -> str:
    """The schema that the topic's records have."""
    from pyspark.errors import PySparkException

    records = spark.read.format("dmq").options(**order.source).option("subscribe", order.topic)
    try:
        rows = records.load().select("value").limit(SAMPLE_MAX).collect()
    except PySparkException as error:
        raise PipelineError(f"{order.topic!r} can't be read: {first_line(error)}") from error
    schema = schema_of(None if row[0] is None else bytes(row[0]) for row in rows)
    if schema is None:
        raise PipelineError(
            f"The first {len(rows)} records of {order.topic!r} hold no JSON objects to learn from",
            "Say what they hold with --schema.",
        )
    return schema


def _stream(
    spark: "SparkSession", order: Order, landing: Landing, target: Target, desk: "_Desk"
) -> None:
    format_ = format_of(landing.declared)
    check_names(format_.fields, (*RECORD_COLUMNS, "_headers", *_moments(landing)))
    unknown = set(landing.partition_by) - {*format_.fields, *MOMENTS}
    if unknown:
        raise PipelineError(
            f"The table can't be partitioned by {', '.join(sorted(unknown))}: no such fields",
            f"Choose of {', '.join([*MOMENTS, *format_.fields])}.",
        )
    batches = _Batches(order, landing, target, format_)
    writer = (
        _records(spark, order)
        .writeStream.queryName(f"land {order.topic}")
        .option("checkpointLocation", str(target.checkpoint))
        .foreachBatch(batches.put)
    )
    if order.is_once:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{order.every_s:g} seconds")
    _follow(writer, batches, desk, target)
    target.tidy(None)


def _follow(writer: "DataStreamWriter", batches: "_Batches", desk: "_Desk", target: Target) -> None:
    """Run the query to its end. On a machine so busy that Spark gives up on its own workers (after ten
    seconds, which no setting changes) it is started again: it goes on from its checkpoint."""
    from pyspark.errors import PySparkException

    for start in range(_STARTS_MAX):
        try:
            desk.follow(writer.start(), batches)
            return
        except PySparkException as error:
            if _BUSY in str(error) and start + 1 < _STARTS_MAX:
                continue
            raise batches.failure or _failure(error, target) from error


def _records(spark: "SparkSession", order: Order) -> "DataFrame":
    options = {
        "subscribe": order.topic,
        "startingOffsets": order.starting,
        "includeHeaders": "true",
        "maxOffsetsPerTrigger": str(order.batch_records),
        **order.source,
        **order.extra,
    }
    if order.group:
        options["groupId"] = order.group
    if order.skips_lost:
        options["failOnDataLoss"] = "false"
    return spark.readStream.format("dmq").options(**options).load()


def _moments(landing: Landing) -> list[str]:
    return [each for each in landing.partition_by if each in MOMENTS]


def land_columns(good: "DataFrame", landing: Landing, fields: Sequence[str]) -> "DataFrame":
    """The table's columns, of records that parsed."""
    return good.select(*_columns(landing, fields))


def _columns(landing: Landing, fields: Sequence[str]) -> "list[Column]":
    from pyspark.sql import functions as f

    columns: list[Column] = [f.col(f"parsed.`{name}`").alias(name) for name in fields]
    columns += [
        f.col("key").cast("string").alias("_key"),
        f.col("partition").alias("_partition"),
        f.col("offset").alias("_offset"),
        f.col("timestamp").alias("_timestamp"),
    ]
    if landing.headers:
        columns.append(f.col("headers").alias("_headers"))
    patterns = {"day": "yyyy-MM-dd", "hour": "yyyy-MM-dd-HH"}
    columns += [
        f.date_format("timestamp", patterns[each]).alias(each) for each in _moments(landing)
    ]
    return columns


class _Batches:
    """What is done with each batch; called by Spark, from a thread of its own."""

    def __init__(
        self, order: Order, landing: Landing, target: Target, format_: ValueFormat
    ) -> None:
        self._order = order
        self._landing = landing
        self._target = target
        self._format = format_
        self.failure: PipelineError | None = None
        self.dead = 0
        """Dead letters of this run."""
        self.skipped: dict[int, int] = {}
        """Batch → offsets that were gone before this run read them."""
        self.records: dict[int, int] = {}
        """Batch → records: Spark's own count has those twice that are read again for dead letters."""

    def put(self, records: "DataFrame", batch: int) -> None:
        """Land one batch."""
        try:
            self._target.tidy(batch)
            if self._order.skips_lost:
                checkpoint, order = self._target.checkpoint, self._order
                if lost := lost_offsets(checkpoint, batch, order.topic, order.source):
                    self.skipped[batch] = lost
            self._put(records, batch)
        except PipelineError as error:
            self.failure = error
            raise

    def _put(self, records: "DataFrame", batch: int) -> None:
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        parsed = self._judged(self._format.parse(records))
        count = Observation()
        bad_ones = f.count_if(~f.col("is_good")).alias("bad")
        watched = parsed.observe(count, f.count(f.lit(1)).alias("all"), bad_ones)
        good = watched.where("is_good")
        self._target.put(land_columns(good, self._landing, self._format.fields), batch)
        bad = int(count.get["bad"] or 0)
        self.records[batch] = int(count.get["all"] or 0)
        if bad:
            self._bury(parsed)
            self.dead += bad

    def _judged(self, parsed: "DataFrame") -> "DataFrame":
        """The records, with `refused`: of what parsed, the target can't take all."""
        from pyspark.sql import functions as f

        told = parsed.withColumn("row", f.struct(*_columns(self._landing, self._format.fields)))
        refusal = self._target.refusal(told.select("row.*").schema)
        if refusal is None:
            return parsed.withColumn("refused", f.lit(None).cast("string"))
        told = told.withColumn("refused", f.when(f.col("is_good"), refusal)).drop("row")
        return told.withColumn("is_good", f.col("is_good") & f.col("refused").isNull())

    def _bury(self, parsed: "DataFrame") -> None:
        """Send what does not parse, or is refused, to the dead-letter topic."""
        from pyspark.sql import functions as f

        bad = self._format.reasons(parsed.where("NOT is_good"))
        bad = bad.withColumn("reason", f.coalesce("refused", "reason"))
        writer = letters(bad).write.format("dmq").options(**self._order.source)
        if "kafka.compression.type" not in self._order.source:
            # A record may have been small enough for its topic only because it was compressed.
            writer = writer.option("compression", "zstd")
        writer.option("topic", self._landing.dead_letters).mode("append").save()


class _Desk:
    """Where the stream's reports become a progress, told to the watcher and to the record."""

    def __init__(self, order: Order, target: Target, where: Where, watch: Watcher) -> None:
        self.progress = Progress()
        self._target = target
        self._where = where
        self._watch = watch
        self._flow = self.progress.flow(order.topic)
        self._flow.state = "starting"
        self._began_at = time.time()

    def follow(self, query: "StreamingQuery", batches: _Batches) -> None:
        """Tell of each batch until the query ends, or an interrupt ends it."""
        self.progress.state = self._flow.state = "running"
        self.note(now=True)
        last = -1
        try:
            is_over = False
            while not is_over:
                is_over = bool(query.awaitTermination(_LOOK_EACH_S))
                fresh = [each for each in query.recentProgress if each.batchId > last]
                for report in fresh:
                    last = report.batchId
                    put_report(self._flow, _facts(report, batches.records.pop(last, 0)))
                    self.progress.dead_letters = batches.dead
                    self.progress.skipped = sum(batches.skipped.values())
                if fresh:
                    self.note()
        finally:
            query.stop()

    def end(self, state: str, error: str | None = None) -> None:
        """The landing is over."""
        self.progress.state = self._flow.state = state
        self.progress.error = self._flow.error = error
        self.note(now=True)

    def note(self, *, now: bool = False) -> None:
        """Tell the watcher and write the record."""
        self._watch(self.progress, None if now else self._flow)
        facts = {
            "name": self._flow.name,
            "spark": str(self._where),
            "began_at": self._began_at,
            "rows": self._flow.rows,
            "dead_letters": self.progress.dead_letters,
            "skipped": self.progress.skipped,
            **self.progress.as_json(),
        }
        runs.write(self._target.record, facts)


def _facts(report: Any, records: int) -> dict[str, Any]:
    """A report with the records of its batch counted once."""
    facts: dict[str, Any] = json.loads(report.json)
    seconds = max(1, int(facts.get("batchDuration") or 0)) / 1000
    return facts | {"numInputRows": records, "processedRowsPerSecond": records / seconds}


def _failure(error: BaseException, target: Target) -> PipelineError:
    reason = _reason(error)
    what, is_lost, _ = reason.partition(_ADVICE)
    if is_lost:
        hint = "Go on with what is there with --skip-lost, or land anew in another place."
        return PipelineError(what.strip(), hint)
    return PipelineError(reason, f"See {target.log}.")


def _reason(error: BaseException) -> str:
    """What a failed stream says, without the Java around it."""
    text = str(error)
    for mark in ("SparkSourceError: ", "PipelineError: "):
        if mark in text:
            return text.rpartition(mark)[2].splitlines()[0]
    return first_line(error)
