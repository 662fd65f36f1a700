"""`python -m bench.spark`: reads by `format("dmq")` against Spark's own Kafka connector.

Both read the same topics of the same broker in the same session, in turn; the figure is the ratio of
the medians of their rates. Each read looks at every value (`sum(length(value))`), and the sums must
agree. The connector runs with its defaults, ours with its own (which are stricter: read_committed).
The report names the connector's version, which may be older than the Spark that it runs on.
"""

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from bench.connector import Connector, ConnectorAbsentError, connector
from dmq.records import Record, build_batch
from dmq.spark.cluster import Cluster, Settings
from dmq.spark.connection import PRODUCE
from dmq.spark.failures import check
from dmq.testing import Broker
from dmq.wire.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData

PARTITIONS = 4
BATCH_BYTES = 900_000
PRODUCE_VERSION_MAX = 12
IN_FLIGHT = 4


@dataclass(frozen=True)
class Load:
    """Records of one kind, and what they are for."""

    name: str
    records: int
    smallest: int
    largest: int
    is_stream: bool = False
    bar: float | None = None


@dataclass
class Row:
    """One line of the report: records per second of each repeat."""

    load: Load
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """How many times as fast ours is."""
        return statistics.median(self.ours) / statistics.median(self.theirs)


def loads(scale: float) -> list[Load]:
    """What is measured; `scale` makes it shorter."""
    many, large = int(5_000_000 * scale), int(1_000_000 * scale)
    return [
        Load("batch, 100 B", many, 100, 100, bar=2.5),
        Load("batch, 1 KiB", large, 1024, 1024, bar=1.8),
        Load("batch, 60 to 140 B, all lengths mixed", many, 60, 140),
        Load("AvailableNow stream, 100 B", many, 100, 100, is_stream=True, bar=1.3),
    ]


def fill(bootstrap: str, topic: str, load: Load) -> None:
    """Write the records in batches of about a megabyte, as a busy librdkafka does."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result(30)
    dice = random.Random(7)
    cluster = Cluster(Settings.of({"kafka.bootstrap.servers": bootstrap}))
    per_batch = BATCH_BYTES // (load.largest + 10)
    each = load.records // PARTITIONS
    for partition in range(PARTITIONS):
        connection = cluster.leader_connection(topic, partition)
        batches = [_batch(load, min(per_batch, each), dice) for _ in range(4)]
        left, turn = each, 0
        while left or connection.in_flight:
            if left and connection.in_flight < IN_FLIGHT:
                count = min(per_batch, left)
                whole = batches[turn % len(batches)]
                data = whole if count == min(per_batch, each) else _batch(load, count, dice)
                connection.send(
                    PRODUCE, _request(topic, partition, data), highest=PRODUCE_VERSION_MAX
                )
                left -= count
                turn += 1
            else:
                answer = connection.receive().responses[0].partition_responses[0]
                check(answer.error_code, topic)
    cluster.close()


def _batch(load: Load, count: int, dice: random.Random) -> bytes:
    now = int(time.time() * 1000)
    values = (dice.randbytes(dice.randint(load.smallest, load.largest)) for _ in range(count))
    return bytes(build_batch([Record(n, now + n // 100, None, v) for n, v in enumerate(values)]))


def _request(topic: str, partition: int, data: bytes) -> ProduceRequest:
    piece = PartitionProduceData(index=partition, records=data)
    return ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[piece])],
    )


@contextmanager
def session(judge: Connector | None, folder: Path) -> Iterator[Any]:
    """Spark on two cores, with the connector's jars if there is something to compare with."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("dmq-bench")
    settings = {
        "spark.jars": judge.spark_jars if judge else "",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": "2",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


class Reads:
    """Reads of topics, timed."""

    def __init__(self, spark: Any, bootstrap: str, folder: Path) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._folder = folder
        self._number = 0

    def batch(self, format_: str, topic: str) -> int:
        """The bytes of all values."""
        found = self._reader(self._spark.read, format_, topic)
        total: int = found.selectExpr("sum(length(value))").collect()[0][0]
        return total

    def stream(self, format_: str, topic: str) -> int:
        """The same, as a stream over what is there, without a state store: counted batch by batch."""
        totals: list[int] = []

        def add(df: Any, _batch: int) -> None:
            totals.append(df.selectExpr("sum(length(value))").collect()[0][0] or 0)

        self._number += 1
        found = self._reader(self._spark.readStream, format_, topic)
        query = (
            found.writeStream.foreachBatch(add)
            .option("checkpointLocation", str(self._folder / f"checkpoint-{self._number}"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return sum(totals)

    def _reader(self, reader: Any, format_: str, topic: str) -> Any:
        return (
            reader.format(format_)
            .option("kafka.bootstrap.servers", self._bootstrap)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .load()
        )


def timed(work: Callable[[], int], expected: int | None) -> tuple[float, int]:
    """Seconds, and the result, which must be as expected."""
    began = time.perf_counter()
    found = work()
    took = time.perf_counter() - began
    assert expected is None or found == expected, f"read {found} bytes, not {expected}"
    return took, found


def measure(reads: Reads, load: Load, topic: str, repeats: int, say: Callable[[str], None]) -> Row:
    """Both in turn, `repeats` times, after one read each that does not count."""
    row = Row(load)
    read = reads.stream if load.is_stream else reads.batch
    expected: int | None = None
    for turn in range(repeats + 1):
        for format_, rates in (("kafka", row.theirs), ("dmq", row.ours)):
            took, expected = timed(partial(read, format_, topic), expected)
            rate = load.records / took
            if turn:
                rates.append(rate)
            warm = "" if turn else " (warming up)"
            say(f"  {load.name}: {format_} {rate / 1e6:.2f} M records/s{warm}")
    return row


def report(rows: list[Row], judge: Connector) -> list[str]:
    """The lines of the table."""
    lines = [f"against {judge}", "", f"{'':40} {'connector':>10} {'dmq':>10} {'ratio':>7}  bar"]
    for row in rows:
        theirs, ours = statistics.median(row.theirs) / 1e6, statistics.median(row.ours) / 1e6
        bar = ""
        if row.load.bar is not None:
            bar = f"≥ {row.load.bar} {'holds' if row.ratio >= row.load.bar else 'DOES NOT HOLD'}"
        lines.append(f"{row.load.name:40} {theirs:8.2f} M {ours:8.2f} M {row.ratio:6.2f} x  {bar}")
    return lines


def main() -> int:
    """One run; exit code 1 if a bar does not hold and `--strict` is given."""
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of records")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default="", help="loads whose name holds this")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--strict", action="store_true")
    chosen = parser.parse_args()
    try:
        judge = connector()
    except ConnectorAbsentError as error:
        print(f"nothing to compare with: {error}")
        return 2
    wanted = [load for load in loads(chosen.scale) if chosen.only in load.name]
    rows = []
    with tempfile.TemporaryDirectory() as work, Broker(in_process=False) as broker:
        folder = Path(work)
        bootstrap = broker.bootstrap_servers
        topics: dict[tuple[int, int, int], str] = {}
        for load in wanted:
            key = (load.records, load.smallest, load.largest)
            if key not in topics:
                topics[key] = f"bench-{len(topics)}"
                began = time.perf_counter()
                fill(bootstrap, topics[key], load)
                print(f"filled {load.records} records in {time.perf_counter() - began:.1f} s")
        with session(judge, folder) as spark:
            reads = Reads(spark, bootstrap, folder)
            for load in wanted:
                topic = topics[load.records, load.smallest, load.largest]
                rows.append(measure(reads, load, topic, chosen.repeats, print))
    print("\n".join(["", *report(rows, judge)]))
    if chosen.json:
        figures = {
            "judge": str(judge),
            "rows": [asdict(row) | {"ratio": row.ratio} for row in rows],
        }
        chosen.json.write_text(json.dumps(figures, indent=2))
    missed = any(row.load.bar is not None and row.ratio < row.load.bar for row in rows)
    return 1 if missed and chosen.strict else 0


if __name__ == "__main__":
    sys.exit(main())
