"""The sink where this machine's clock is hours off the brokers': their clock counts, not ours.

The broker is a process of its own, with the true time; all of this process has the wrong one.
"""

import time
import uuid
from collections.abc import Iterator

import pyarrow as pa
import pytest

from dmq.spark.cluster import Cluster, Settings
from dmq.spark.commits import JOB, Committer, Writing
from dmq.spark.decisions import Decision
from dmq.spark.failures import SparkSourceError
from dmq.spark.sink_options import Columns, SinkOptions
from dmq.spark.transactions import Transaction
from dmq.spark.writer import TaskWriter
from dmq.testing import Broker

HOURS = 3600 * 10**9


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker(in_process=False) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def cluster(servers: str) -> Iterator[Cluster]:
    found = Cluster(Settings.of({"kafka.bootstrap.servers": servers}))
    yield found
    found.close()


def shift(monkeypatch: pytest.MonkeyPatch, hours: int) -> None:
    """Set the clock of this process."""
    true_ns = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: true_ns() + hours * HOURS)
    monkeypatch.setattr(time, "time", lambda: time.time_ns() / 10**9)


def task(servers: str, writing: Writing) -> Transaction:
    """A task that has written a row and leaves its transaction open."""
    options = SinkOptions.of({"kafka.bootstrap.servers": servers, "topic": "clocks"})
    writer = TaskWriter(options, Columns(value=0), f"{writing.ids}{writing.run}.{uuid.uuid4()}")
    writer.write([pa.record_batch([pa.array(["a"])], names=["value"])])
    assert writer.transaction is not None
    return writer.transaction


def stream() -> Writing:
    return Writing("dmq-spark", str(uuid.uuid4()), "r1")


def job() -> Writing:
    return Writing("dmq-spark", f"{JOB}{uuid.uuid4().hex}")


@pytest.mark.parametrize("hours", [-2, 2])
def test_batches_are_committed_whatever_the_drivers_clock_says(
    hours: int, servers: str, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing = stream()
    ours = task(servers, writing)
    shift(monkeypatch, hours)
    driver = Committer(cluster, writing)
    driver.commit(0, [ours])
    driver.settle([ours.id])
    assert driver.transactions.standing([ours.id])[ours.id].state == "CompleteCommit"


@pytest.mark.parametrize("hours", [-2, 2])
def test_a_transaction_without_enough_time_left_is_refused_by_the_brokers_clock(
    hours: int, servers: str, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing = stream()
    ours = task(servers, writing)
    shift(monkeypatch, hours)
    monkeypatch.setattr("dmq.spark.commits.SPARE_SHARE", 1)  # All of its time must be left.
    with pytest.raises(SparkSourceError, match=r"ends in \d+ ms: too soon"):
        Committer(cluster, writing).commit(0, [ours])
    Committer(cluster, writing).abort(0, [ours])


def test_a_job_with_a_wrong_clock_does_not_take_over_another_that_is_at_work(
    servers: str, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy, other = job(), job()
    theirs, ours = task(servers, busy), task(servers, other)
    driver = Committer(cluster, busy)
    driver.log.ensure()
    driver.decider.take_over()
    driver._decide(0, [theirs])
    shift(monkeypatch, 2)
    Committer(cluster, other).commit(0, [ours])
    assert driver.log.read().keys() >= {busy.query}
    driver._finish(Decision(busy.query, 0, (theirs,)))  # It has not been fenced.


def test_a_task_with_a_clock_that_runs_ahead_is_told_so(
    servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shift(monkeypatch, 2)
    with pytest.raises(SparkSourceError, match=r"clock of this machine"):
        task(servers, stream())
