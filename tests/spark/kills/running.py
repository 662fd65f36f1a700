"""Starting drivers as processes, and reading what they have written."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Any

from compat.eventually import eventually
from confluent_kafka import Consumer, TopicPartition

from dmq.spark.cluster import Cluster, Settings
from dmq.spark.transactions import Transactions

ROOT = Path(__file__).parents[3]


class Driver:
    """A driver's process, with its JVM and workers."""

    def __init__(self, kind: str, **options: Any) -> None:
        arguments = [kind]
        for name, value in options.items():
            if value is not None:
                arguments += [f"--{name.replace('_', '-')}", str(value)]
        self._words: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115  Closed by `end`.
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.kills.driver", *arguments],
            cwd=ROOT,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), str(ROOT)]),
                "PYSPARK_PYTHON": sys.executable,
            },
            stdout=self._words,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def wait(self, timeout_s: float = 240) -> int:
        """Its exit code."""
        return self.process.wait(timeout_s)

    def words(self) -> str:
        self._words.seek(0)
        return self._words.read()[-20_000:]

    def kill(self) -> None:
        """kill -9 of the driver and its JVM; workers die with their socket."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def end(self) -> None:
        self.kill()
        self._words.close()


def committed(servers: str, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    """All that a reader of committed records sees, up to the high watermarks."""
    settings = {
        "bootstrap.servers": servers,
        "group.id": "judge",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    consumer = Consumer(settings)
    partitions = list(consumer.list_topics(topic, 30).topics[topic].partitions)
    starts = [TopicPartition(topic, each, 0) for each in partitions]
    ends = {
        each: consumer.get_watermark_offsets(TopicPartition(topic, each), 30)[1]
        for each in partitions
    }
    consumer.assign(starts)
    found, open_ = [], {each for each in partitions if ends[each]}
    while open_:
        message = consumer.poll(30)
        assert message is not None, f"{topic} has transactions that nobody ends: {open_}"
        if message.error():
            place = consumer.position([TopicPartition(topic, message.partition())])[0].offset
            if place >= ends[message.partition()]:
                open_.discard(message.partition())
        else:
            found.append((message.key(), message.value()))
    consumer.close()
    return found


def nothing_is_open(servers: str) -> None:
    """No task's transaction is left open."""
    cluster = Cluster(Settings.of({"kafka.bootstrap.servers": servers}))
    transactions = Transactions(cluster)
    eventually(lambda: not transactions.open_ids("dmq-spark."), "all transactions are ended", 30)
    cluster.close()
