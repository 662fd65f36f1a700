"""`df.write.format("dmq")` and `df.writeStream.format("dmq")`: the classes that Spark calls.

`write` runs in executors, `commit` and `abort` on the driver, each in a process of its own; options and
columns are checked when Spark makes the writer, on the driver, before any task. A stream's writer is
made anew for each batch and again for its commit, so nothing is kept here: what a commit needs comes
with the tasks' messages. A batch job's writer is pickled along, so its job has a name from the start.

The protocol is in `commits`; what it promises, and what not, in docs/SPARK_SINK.md.
"""

import contextlib
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from dmq.spark.cluster import Cluster
from dmq.spark.commits import JOB, Committer, Writing, abandon, is_over
from dmq.spark.decisions import DecisionLog
from dmq.spark.failures import SparkSourceError
from dmq.spark.identities import IDENTITIES
from dmq.spark.shipping import Shipped
from dmq.spark.sink_options import Columns, SinkOptions
from dmq.spark.transactions import Transaction
from dmq.spark.writer import OvertakenError, TaskWriter

QUERY = "sql.streaming.queryId"
BATCH = "streaming.sql.batchId"
RUN = "spark.jobGroup.id"
"""Local properties of a stream's tasks. The job group of a stream is its run's id."""


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What a task tells the driver."""

    writing: Writing
    rows: int = 0
    transaction: Transaction | None = None
    """Open, to be ended by the driver; None if the task wrote nothing, or without transactions."""


def batch_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceArrowWriter:
    """The writer of one job. Raises SparkSourceError for wrong options or columns."""
    if overwrite:
        raise SparkSourceError(
            'a topic can\'t be overwritten: use mode("append"), and delete the topic or its records'
            " (dmq topic delete) if that is what you want"
        )
    checked = SinkOptions.of(options)
    return BatchSink(checked, Columns.of(schema, checked))


def stream_writer(
    options: Mapping[str, str],
    schema: StructType,
    overwrite: bool,
) -> DataSourceStreamArrowWriter:
    """The writer of a micro-batch. Raises SparkSourceError for wrong options or columns.

    `overwrite` is output mode complete: its rows are appended each time, as Kafka's sink does.
    """
    checked = SinkOptions.of(options)
    return StreamSink(checked, Columns.of(schema, checked))


class BatchSink(Shipped, DataSourceArrowWriter):
    """A job: all of its rows become visible together, or none."""

    def __init__(self, options: SinkOptions, columns: Columns) -> None:
        self._options = options
        self._columns = columns
        self._writing = Writing(options.prefix, f"{JOB}{uuid.uuid4().hex}")

    def write(self, iterator: Iterator[Any]) -> Written:
        """The rows of one task."""
        return write_task(self._options, self._columns, self._writing, 0, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make all visible."""
        ours = _transactions(messages)
        if ours:
            with _committer(self._options, self._writing) as committer:
                committer.commit(0, ours)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """End what is open."""
        if self._options.is_exactly_once:
            with _committer(self._options, self._writing) as committer:
                committer.abort(0, _transactions(messages))


class StreamSink(Shipped, DataSourceStreamArrowWriter):
    """A micro-batch: written once, whatever dies and is run again."""

    def __init__(self, options: SinkOptions, columns: Columns) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[Any]) -> Written:
        """The rows of one task."""
        context = TaskContext.get()
        assert context is not None, "tasks have a context"
        query = context.getLocalProperty(QUERY) or ""
        batch = int(context.getLocalProperty(BATCH) or -1)
        run = context.getLocalProperty(RUN) or ""
        if not query or batch < 0:
            raise SparkSourceError("Spark does not tell which query and batch this is")
        writing = Writing(self._options.prefix, query, run, self._options.place)
        if self._options.is_exactly_once and _is_decided(self._options, writing, batch):
            _drain(iterator)
            return Written(writing)
        return write_task(self._options, self._columns, writing, batch, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Decide on the batch and carry that out."""
        writing = _writing(messages)
        if self._options.is_exactly_once and writing is not None:
            with _committer(self._options, writing) as committer:
                committer.commit(batchId, _transactions(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """End what is open. Without any message the query's name is told by its checkpoint only."""
        writing = _writing(messages)
        if not self._options.is_exactly_once:
            return
        if writing is not None:
            with _committer(self._options, writing) as committer:
                committer.abort(batchId, _transactions(messages))
        elif self._options.place:
            with contextlib.closing(Cluster(self._options.settings)) as cluster:
                abandon(cluster, self._options.prefix, self._options.place)


def write_task(
    options: SinkOptions, columns: Columns, writing: Writing, batch: int, rows: Iterator[Any]
) -> Written:
    """Write the rows of a task, in a transaction of its own unless at-least-once is enough."""
    id_ = IDENTITIES.take(writing.ids_of_run, batch) if options.is_exactly_once else None
    writer = TaskWriter(options, columns, id_, lambda cluster: is_over(cluster, writing, batch))
    try:
        writer.write(rows)
    except OvertakenError:
        _drain(rows)
        return Written(writing)
    return Written(writing, writer.rows, writer.transaction)


def _drain(rows: Iterator[Any]) -> None:
    for _ in rows:
        pass


def _is_decided(options: SinkOptions, writing: Writing, batch: int) -> bool:
    """Was this batch decided before? Then what a task writes would be aborted anyway.

    Only a run's first batch can be a replay, so a worker that has written for this run need not look.
    """
    if IDENTITIES.has_seen(writing.ids_of_run):
        return False
    cluster = Cluster(options.settings)
    try:
        decision = DecisionLog(cluster).read().get(writing.query)
    finally:
        cluster.close()
    return decision is not None and decision.batch >= batch


@contextlib.contextmanager
def _committer(options: SinkOptions, writing: Writing) -> Iterator[Committer]:
    cluster = Cluster(options.settings)
    try:
        yield Committer(cluster, writing)
    finally:
        cluster.close()


def _writing(messages: list[WriterCommitMessage | None]) -> Writing | None:
    return next((each.writing for each in messages if isinstance(each, Written)), None)


def _transactions(messages: list[WriterCommitMessage | None]) -> list[Transaction]:
    return [
        each.transaction
        for each in messages
        if isinstance(each, Written) and each.transaction is not None
    ]
