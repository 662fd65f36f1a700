"""A driver to be killed: one stream from topic to topic, in a process group of its own.

`copy` writes every record again; `count` counts records by key and second, and writes a count when
the watermark has passed it. Ends when it has written all there is, with `--until` not before that file
is there.
"""

import argparse
import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import window

from tests.spark.kills.points import GROUP, KillingSource

DELAY = "800 seconds"
"""How far partitions may run apart while a broker is down, in the time of the records."""


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=("copy", "count"))
    for name in ("servers", "source", "sink", "checkpoint"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--until", type=Path)
    parser.add_argument("--per-batch", type=int, default=600)
    parser.add_argument("--kill-at", default="")
    parser.add_argument("--flag", default="")
    return parser.parse_args()


def session(folder: Path) -> SparkSession:
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.streaming.stateStore.maintenanceInterval": "10s",
    }
    builder = SparkSession.builder.master("local[2,8]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def transformed(rows: DataFrame, kind: str) -> DataFrame:
    if kind == "copy":
        return rows.select("key", "value")
    timely = rows.withWatermark("timestamp", DELAY)
    counted = timely.groupBy("key", window("timestamp", "1 second")).count()
    return counted.selectExpr("key", "CAST(count AS STRING) AS value")


def main() -> int:
    given = parse()
    os.environ[GROUP] = str(os.getpgid(0))
    spark = session(Path(given.checkpoint))
    spark.dataSource.register(KillingSource)
    rows = (
        spark.readStream.format("dmq")
        .option("kafka.bootstrap.servers", given.servers)
        .option("subscribe", given.source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", given.per_batch)
        .load()
    )
    writing = (
        transformed(rows, given.kind)
        .writeStream.format("dmq_killed")
        .option("kafka.bootstrap.servers", given.servers)
        .option("topic", given.sink)
        .option("kafka.transaction.timeout.ms", 600_000)
        .option("killAt", given.kill_at)
        .option("killFlag", given.flag)
        .option("checkpointLocation", given.checkpoint)
        .outputMode("append")
    )
    if given.until is None:
        writing.trigger(availableNow=True).start().awaitTermination()
        return 0
    query = writing.start()
    seen = -1
    while not given.until.exists():
        query.awaitTermination(0.2)
        progress = query.lastProgress
        if progress is not None and progress.batchId != seen:
            seen = progress.batchId
            print(
                f"batch {seen}: {progress.numInputRows} rows, {progress.batchDuration} ms",
                flush=True,
            )
        if query.exception() is not None:
            print(f"FAILED {query.exception()}", flush=True)
            return 1
    query.processAllAvailable()
    query.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
