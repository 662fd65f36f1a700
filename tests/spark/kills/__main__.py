"""`make spark-kills N=50`: random kills of drivers, workers and brokers under a stream that counts.

Three brokers; a feeder writes records whose keys come `PER_KEY` times each; a stream counts them by key
and writes each key's count anew when it has changed. At the end each key must have been counted to
`PER_KEY`, and no count may be there twice: a lost batch shows as a key that stays short, a repeated one
as a count that comes again.
"""

import argparse
import collections
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from confluent_kafka import KafkaException, Producer

from dmq.testing import Cluster
from tests.spark.feeding import create
from tests.spark.kills.running import Driver, committed, nothing_is_open

PER_KEY = 40
FEED_PER_S = 400
FINISH_S = 600.0
UP_S_MAX = 15.0
"""A kill comes at a random moment of so many seconds after the one before."""


class Feeder(threading.Thread):
    """Writes records until it is told to stop; the last key is completed."""

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__(daemon=True)
        self._producer = Producer({
            "bootstrap.servers": servers, "enable.idempotence": True, "log_level": 0,
            "message.timeout.ms": 300_000, "linger.ms": 50,
        })  # fmt: skip
        self._topic = topic
        self.stopping = threading.Event()
        self.keys = 0

    def run(self) -> None:
        while not self.stopping.wait(PER_KEY / FEED_PER_S):
            key = b"key-%d" % self.keys
            for number in range(PER_KEY):
                self._produce(key, number)
            self.keys += 1
        assert self._producer.flush(120) == 0

    def _produce(self, key: bytes, number: int) -> None:
        while True:
            try:
                self._producer.produce(self._topic, b"%d" % number, key)
                return
            except (BufferError, KafkaException):
                self._producer.poll(1)


class Kills:
    """What is killed, and what comes back."""

    def __init__(self, cluster: Cluster, start: Callable[[], Driver], dice: random.Random) -> None:
        self._cluster = cluster
        self._start = start
        self._dice = dice
        self._down: int | None = None
        self.driver = start()
        self.done: collections.Counter[str] = collections.Counter()
        self.restarts = 0

    def one(self) -> str:
        """Kill something; a broker that was down comes back first."""
        self.revive()
        kind = self._dice.choice(("driver", "worker", "broker"))
        if kind == "worker" and not self._kill_worker():
            kind = "driver"
        if kind == "driver":
            self.driver.kill()
        elif kind == "broker":
            self._down = self._dice.choice((1, 2, 3))
            self._cluster.kill(self._down)
        self.done[kind] += 1
        return kind

    def revive(self) -> None:
        """Bring back what is down."""
        if self._down is not None:
            self._cluster.restart(self._down)
            self._cluster.wait_ready(60, in_sync=True)
            self._down = None
        if self.driver.process.poll() is not None:
            words = self.driver.words()
            if "FAILED" in words:
                print(words[words.index("FAILED") :][:600], flush=True)
            self.driver.end()
            self.driver = self._start()
            self.restarts += 1

    def _kill_worker(self) -> bool:
        """A Python worker is a child of the daemon that the JVM has started."""
        workers = [
            child
            for child in psutil.Process(self.driver.process.pid).children(recursive=True)
            if "pyspark.daemon" in " ".join(_words_of(child))
        ]
        if len(workers) < 2:
            return False
        os.kill(self._dice.choice(workers[1:]).pid, signal.SIGKILL)
        return True


def _words_of(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


def judge(servers: str, sink: str, keys: int) -> list[str]:
    """What is wrong with the output."""
    counts: dict[bytes, list[int]] = collections.defaultdict(list)
    for key, value in committed(servers, sink):
        counts[key or b""].append(int(value or 0))
    problems = []
    for number in range(keys):
        found = counts.pop(b"key-%d" % number, [])
        if not found or max(found) != PER_KEY:
            problems.append(f"key-{number} is counted {found}, not to {PER_KEY}")
        if len(set(found)) != len(found):
            problems.append(f"key-{number} has a count twice: {found}")
    problems += [f"{key!r} was never written" for key in counts]
    return problems


def run(kills: int, seed: int, folder: Path, *, up_s: float = UP_S_MAX) -> list[str]:
    """All of it; returns what is wrong."""
    dice = random.Random(seed)
    with Cluster(3) as cluster:
        servers = cluster.bootstrap
        source, sink = create(servers, "counted", 3), create(servers, "counts", 3)
        feeder = Feeder(servers, source)
        feeder.start()
        until = folder / "until"

        def start() -> Driver:
            return Driver(
                "count", servers=servers, source=source, sink=sink, until=until,
                checkpoint=folder / "checkpoint", per_batch=2000,
            )  # fmt: skip

        state = Kills(cluster, start, dice)
        try:
            for number in range(kills):
                time_out = time.monotonic() + dice.uniform(1, up_s)
                feeder.join(max(0.0, time_out - time.monotonic()))
                print(f"{number + 1}: {state.one()}, {feeder.keys} keys fed", flush=True)
            feeder.stopping.set()
            feeder.join()
            until.write_text("finish")
            deadline = time.monotonic() + FINISH_S
            while True:
                state.revive()
                if state.driver.wait(deadline - time.monotonic()) == 0:
                    break
        finally:
            state.driver.end()
        print(f"kills {dict(state.done)}, drivers {state.restarts + 1}, keys {feeder.keys}")
        nothing_is_open(servers)
        return judge(servers, sink, feeder.keys)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make spark-kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dmq-kills-") as folder:
        problems = run(given.kills, given.seed, Path(folder))
    for problem in problems[:20]:
        print(problem)
    print("FAILED" if problems else "complete, and nothing twice")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
