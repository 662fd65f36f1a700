"""Moments of the exactly-once protocol at which a driver can be killed, and the killing.

The sink has no hooks: a point is a method of its parts, wrapped in the process that is about to call it.
"""

import functools
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSourceStreamWriter
from pyspark.sql.types import StructType

from dmq.spark.commits import Committer
from dmq.spark.datasource import DmqDataSource
from dmq.spark.decisions import Decider
from dmq.spark.sending import Sender
from dmq.spark.sink import StreamSink, Written
from dmq.spark.transactions import Transaction, Transactions

GROUP = "DMQ_KILLS_GROUP"
"""The environment's name for the process group of the driver."""
POINTS = (
    "mid-write",
    "before-decision",
    "decision-open",
    "after-decision",
    "between-ends",
    "after-ends",
    "closing",
    "after-all",
)


WORKER = "worker"
"""Not a driver's death: a task's, in mid-write. Spark runs the task again."""
IN_TASKS = ("mid-write", WORKER)


def kill_worker(flag: str) -> None:
    """kill -9 of this worker only."""
    Path(flag).write_text("killed")
    os.kill(os.getpid(), signal.SIGKILL)


def kill_driver(flag: str) -> None:
    """kill -9 of the driver, its JVM and this worker."""
    Path(flag).write_text("killed")
    os.killpg(int(os.environ[GROUP]), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def arm(point: str, flag: str) -> None:
    """Make this process kill its driver when it comes to the point."""

    def die(*_: Any, **__: Any) -> None:
        kill_driver(flag)

    commit_all, commit = Transactions.commit_all, Committer.commit
    places: dict[str, tuple[type, str, Callable[..., Any]]] = {
        WORKER: (Sender, "flush", lambda _: kill_worker(flag)),
        "mid-write": (Sender, "flush", die),  # Batches are in flight.
        "before-decision": (Committer, "_decide", die),
        "decision-open": (Decider, "seal", die),
        "after-decision": (Transactions, "commit_all", die),
        "between-ends": (Transactions, "commit_all", _first_only(die)),
        "after-ends": (Transactions, "commit_all", _then(commit_all, die)),
        "closing": (
            Transactions,
            "commit_all",
            _then(commit_all, lambda: arm("decision-open", flag)),
        ),
        "after-all": (Committer, "commit", _then(commit, die)),
    }
    setattr(*places[point])


def _first_only(then: Callable[..., None]) -> Callable[..., Any]:
    def commit_all(self: Transactions, transactions: list[Transaction]) -> None:
        assert len(transactions) > 1, "there is no time between the ends of one transaction"
        self.end(transactions[0], commit=True)
        then()

    return commit_all


def _then(method: Callable[..., Any], then: Callable[..., None]) -> Callable[..., Any]:
    @functools.wraps(method)
    def wrapped(*arguments: Any) -> Any:
        answer = method(*arguments)
        then()
        return answer

    return wrapped


class KillingSink(StreamSink):
    """The sink, with a point to die at; a point is passed only once, over all runs."""

    point = ""
    flag = ""

    def write(self, iterator: Iterator[Any]) -> Written:
        if self.point in IN_TASKS and not Path(self.flag).exists():
            arm(self.point, self.flag)
        return super().write(iterator)

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        if self.point and self.point not in IN_TASKS and not Path(self.flag).exists():
            arm(self.point, self.flag)
        super().commit(messages, batchId)


class KillingSource(DmqDataSource):
    """`format("dmq_killed")`, with the options `killAt` and `killFlag`."""

    @classmethod
    def name(cls) -> str:
        return "dmq_killed"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        sink = super().streamWriter(schema, overwrite)
        sink.__class__ = KillingSink
        assert isinstance(sink, KillingSink)
        sink.point, sink.flag = self.options.get("killAt", ""), self.options.get("killFlag", "")
        return sink
