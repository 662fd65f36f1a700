"""A client of Spark Connect: one job, in a process without Java.

Run as a script, so what is defined here goes to the server and to the executors by value: they have
dmq, and not these tests.
"""

import argparse
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceStreamWriter
from pyspark.sql.types import StructType

from dmq.spark.datasource import DmqDataSource
from dmq.spark.sending import Sender
from dmq.spark.sink import BatchSink, StreamSink, Written
from dmq.spark.writer import TaskWriter

WAIT_S = 100.0
PATIENCE_S = 250


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("job", choices=JOBS)
    parser.add_argument("url")
    for name in ("servers", "source", "sink"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    return parser.parse_args()


# --- what goes wrong, in executors


def kill_own_executor() -> None:
    """kill -9 of the Java process over this Python worker; it is the parent of the worker's daemon."""
    os.kill(psutil.Process(os.getppid()).ppid(), signal.SIGKILL)


def wait_for(flag: Path) -> None:
    """Until another process has made this file."""
    pause = threading.Event()
    for _ in range(int(WAIT_S / 0.01)):
        if flag.exists():
            return
        pause.wait(0.01)
    raise TimeoutError(f"nobody has made {flag}")


def arm_kill(folder: Path) -> None:
    """The rows of this task are on their way to the brokers when its executor dies; they arrive."""
    flush = Sender.flush

    def flush_and_kill(self: Sender) -> None:
        Sender.flush = flush  # type: ignore[method-assign]
        (folder / "killed").write_text("")
        kill_own_executor()
        flush(self)

    Sender.flush = flush_and_kill  # type: ignore[method-assign]


def arm_late(folder: Path, owner: type, name: str) -> None:
    """This task stands still before it calls that, until the batch has been committed without it."""
    method: Callable[..., Any] = getattr(owner, name)

    def late(*arguments: Any) -> Any:
        setattr(owner, name, method)
        (folder / "slow").write_text("")
        wait_for(folder / "committed")
        (folder / "went-on").write_text("")
        return method(*arguments)

    setattr(owner, name, late)


def arm(fault: str, folder: Path) -> None:
    """In the first attempt of the first task of all."""
    context = TaskContext.get()
    assert context is not None
    if context.partitionId() or context.attemptNumber() or (folder / fault).exists():
        return
    (folder / fault).write_text("")
    if fault == "kill":
        arm_kill(folder)
    elif fault == "late-begin":
        arm_late(folder, TaskWriter, "_begin")
    else:
        arm_late(folder, Sender, "flush")


class FaultyStreamSink(StreamSink):
    fault = ""
    folder = Path()

    def write(self, iterator: Iterator[Any]) -> Written:
        arm(self.fault, self.folder)
        return super().write(iterator)

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        super().commit(messages, batchId)
        (self.folder / "committed").write_text("")


class FaultyBatchSink(BatchSink):
    fault = ""
    folder = Path()

    def write(self, iterator: Iterator[Any]) -> Written:
        arm(self.fault, self.folder)
        return super().write(iterator)

    def commit(self, messages: list[Any]) -> None:
        super().commit(messages)
        (self.folder / "committed").write_text("")


class Faulty(DmqDataSource):
    """`format("dmq_faulty")`: the sink, with the options `fault` and `folder`."""

    @classmethod
    def name(cls) -> str:
        return "dmq_faulty"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return self._faulty(super().streamWriter(schema, overwrite), FaultyStreamSink)

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        return self._faulty(super().writer(schema, overwrite), FaultyBatchSink)

    def _faulty(self, sink: Any, kind: Any) -> Any:
        sink.__class__ = kind
        sink.fault, sink.folder = self.options["fault"], Path(self.options["folder"])
        return sink


# --- jobs


def topic(reader: Any, given: argparse.Namespace) -> DataFrame:
    named = reader.format("dmq").option("kafka.bootstrap.servers", given.servers)
    rows = named.option("subscribe", given.source).option("startingOffsets", "earliest").load()
    return rows.select("key", "value")


def to_topic(writer: Any, given: argparse.Namespace, fault: str = "") -> Any:
    writer = writer.format("dmq_faulty" if fault else "dmq")
    writer = writer.option("kafka.bootstrap.servers", given.servers).option("topic", given.sink)
    if fault:
        writer = writer.option("fault", fault).option("folder", str(given.folder))
    return writer


def run_stream(rows: DataFrame, given: argparse.Namespace, fault: str = "") -> None:
    writing = to_topic(rows.writeStream, given, fault)
    writing = writing.option("checkpointLocation", str(given.folder / "checkpoint"))
    query = writing.trigger(availableNow=True).start()
    assert query.awaitTermination(PATIENCE_S), query.status
    assert query.exception() is None, query.exception()


def copy(spark: SparkSession, given: argparse.Namespace) -> None:
    """A read, aggregated on the cluster; a job and a stream, both exactly once, into one topic."""
    rows = topic(spark.read, given)
    found = rows.selectExpr("count(*) AS n", "count(DISTINCT key) AS keys").collect()[0]
    print(found["n"], found["keys"])
    to_topic(topic(spark.read, given).write, given).mode("append").save()
    run_stream(topic(spark.readStream, given), given)


def faulty_stream(spark: SparkSession, given: argparse.Namespace, fault: str) -> None:
    spark.dataSource.register(Faulty)
    run_stream(topic(spark.readStream, given), given, fault)


def faulty_job(spark: SparkSession, given: argparse.Namespace, fault: str) -> None:
    spark.dataSource.register(Faulty)
    to_topic(topic(spark.read, given).write, given, fault).mode("append").save()


JOBS: dict[str, Callable[[SparkSession, argparse.Namespace], None]] = {
    "copy": copy,
    "kill": lambda spark, given: faulty_stream(spark, given, "kill"),
    "late-begin": lambda spark, given: faulty_stream(spark, given, "late-begin"),
    "late-flush": lambda spark, given: faulty_stream(spark, given, "late-flush"),
    "late-job": lambda spark, given: faulty_job(spark, given, "late-begin"),
}


def main() -> None:
    given = parse()
    given.folder.mkdir(parents=True, exist_ok=True)
    spark = SparkSession.builder.remote(given.url).create()
    try:
        JOBS[given.job](spark, given)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
