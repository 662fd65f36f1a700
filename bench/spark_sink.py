"""`python -m bench.spark_sink`: writes by `format("dmq")` against Spark's own Kafka connector.

Both write the same rows, held in memory, to topics of the same broker in the same session, in turn. Ours
writes exactly once (transactions, a decision, read back as read_committed); the connector at least
once, with its defaults, which is all it can do. The figure is the ratio of the medians of their rates.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from bench.connector import ConnectorAbsentError, connector
from bench.spark import PARTITIONS, session
from dmq.testing import Broker

BAR = 1.0
VALUE = "CAST(LPAD(CAST(id AS STRING), {size}, 'x') AS BINARY) AS value"
KEY = "CAST(CAST(id AS STRING) AS BINARY) AS key"


@dataclass
class Row:
    """One line of the report: records per second of each repeat."""

    name: str
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """How many times as fast ours is."""
        return statistics.median(self.ours) / statistics.median(self.theirs)


class Bench:
    """One broker, one session, rows in memory."""

    def __init__(self, spark: Any, servers: str, records: int) -> None:
        self._spark = spark
        self._servers = servers
        self._records = records
        self._admin = AdminClient({"bootstrap.servers": servers})
        self._topics = 0

    def measure(self, row: Row, columns: list[str], repeats: int) -> None:
        """Both in turn, `repeats` times, after one round that does not count."""
        rows = self._spark.range(0, self._records, 1, PARTITIONS).selectExpr(*columns).persist()
        assert rows.count() == self._records
        for round_ in range(repeats + 1):
            for format_, rates in (("dmq", row.ours), ("kafka", row.theirs)):
                rate = self._write(rows, format_)
                if round_:
                    rates.append(rate)
        rows.unpersist()

    def _write(self, rows: Any, format_: str) -> float:
        self._topics += 1
        topic = f"written-{self._topics}"
        self._admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result(30)
        options = {"kafka.bootstrap.servers": self._servers, "topic": topic}
        started = time.perf_counter()
        rows.write.format(format_).options(**options).mode("append").save()
        taken_s = time.perf_counter() - started
        found = (
            self._spark.read.format("dmq")
            .option("kafka.bootstrap.servers", self._servers)
            .option("subscribe", topic)
            .load()
            .count()
        )
        assert found == self._records, f"{format_} wrote {found} of {self._records} records"
        self._admin.delete_topics([topic])[topic].result(30)
        return self._records / taken_s


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.spark_sink", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=100, help="bytes of a value")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def main() -> int:
    """Print the rates; ends with 1 if ours is slower than the bar."""
    given = parse()
    try:
        judge = connector()
    except ConnectorAbsentError as error:
        print(f"nothing to compare with: {error}")
        return 2
    value = VALUE.format(size=given.size)
    plan = {"values only": [value], "keys and values": [KEY, value]}
    report = [Row(f"{given.records} x {given.size} B, {name}") for name in plan]
    with (
        tempfile.TemporaryDirectory(prefix="dmq-bench-") as folder,
        Broker(in_process=False) as broker,
        session(judge, Path(folder)) as spark,
    ):
        bench = Bench(spark, broker.bootstrap_servers, given.records)
        for row, columns in zip(report, plan.values(), strict=True):
            bench.measure(row, columns, given.repeats)
    print(judge)
    for row in report:
        ours, theirs = statistics.median(row.ours), statistics.median(row.theirs)
        print(
            f"{row.name}: dmq exactly-once {ours:,.0f}/s, connector at-least-once {theirs:,.0f}/s,"
            f" ratio {row.ratio:.2f} (bar {BAR})"
        )
    if given.json is not None:
        found = [{"name": r.name, "ours": r.ours, "theirs": r.theirs} for r in report]
        given.json.write_text(json.dumps({"connector": str(judge), "rows": found}, indent=2))
    return 0 if all(row.ratio >= BAR for row in report) else 1


if __name__ == "__main__":
    sys.exit(main())
