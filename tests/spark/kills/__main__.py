"""`make spark-kills N=50`: random kills of drivers, workers and brokers under a stream that counts.

Three brokers; a feeder writes records whose keys come `PER_KEY` times each, a key per second in the
records' own time; a stream counts them by key and second and writes each count once, when its watermark
has passed. At the end each key must be there once, counted to `PER_KEY`.
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
from compat.eventually import eventually
from confluent_kafka import KafkaException, Producer

from dmq.testing import Cluster
from tests.spark.feeding import create
from tests.spark.kills.running import Driver, committed, nothing_is_open

PER_KEY = 10
FEED_PER_S = 400
CLOSING = b"closing"
CLOSING_S = 50_000
"""So far ahead are the records that make the watermark pass all others."""
PAST_S = 200_000
"""The records' time begins in the past: brokers refuse what is too far in the future."""
FINISH_S = 600.0
FINISHING_DRIVERS = 5
PARTITIONS = 3
START_S = 300.0
"""A driver and a broker start in seconds, but machines are busy sometimes."""
BATCHES_MIN = 2
"""Finished by a driver before something is killed again."""
CALM_S_MAX = 4.0
"""A kill comes at a random moment of so many seconds after the stream has moved on."""


class Feeder(threading.Thread):
    """Writes records until it is told to stop; the last key is completed."""

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__(daemon=True)
        self._producer = Producer({
            "bootstrap.servers": servers, "enable.idempotence": True, "log_level": 0,
            "message.timeout.ms": 300_000, "linger.ms": 50,
        })  # fmt: skip
        self._topic = topic
        self._began_ms = int(time.time() - PAST_S) * 1000
        self.stopping = threading.Event()
        self.keys = 0

    def run(self) -> None:
        while not self.stopping.wait(PER_KEY / FEED_PER_S):
            key = b"key-%d" % self.keys
            for _ in range(PER_KEY):
                self._produce(key, self.keys)
            self.keys += 1
        for partition in range(PARTITIONS):
            self._produce(CLOSING, self.keys + CLOSING_S, partition)
        assert self._producer.flush(120) == 0

    def _produce(self, key: bytes, second: int, partition: int = -1) -> None:
        at_ms = self._began_ms + 1000 * second
        while True:
            try:
                self._producer.produce(self._topic, b"x", key, partition, timestamp=at_ms)
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
            self._cluster.restart(self._down, wait=False)
            self._cluster.wait_ready(START_S, in_sync=True)
            self._down = None
        self.revive_driver()

    def revive_driver(self) -> None:
        """Start a driver if there is none."""
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


def wait_for_progress(state: Kills) -> None:
    """Until the driver has finished some batches; a driver that failed is replaced first."""

    def moved() -> bool:
        state.revive_driver()
        return state.driver.words().count("\nbatch ") >= BATCHES_MIN

    try:
        eventually(moved, "the stream goes on", START_S)
    except AssertionError:
        print(state.driver.words(), flush=True)
        raise


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
        if found != [PER_KEY]:
            problems.append(f"key-{number} is counted {found}, not {PER_KEY} once")
    problems += [f"{key!r} was never written" for key in counts]
    return problems


def run(kills: int, minutes: float, seed: int, folder: Path) -> list[str]:
    """All of it; returns what is wrong. Fewer kills than asked for, because time ran out, are wrong."""
    dice = random.Random(seed)
    with Cluster(3) as cluster:
        servers = cluster.bootstrap
        source = create(servers, "counted", PARTITIONS)
        sink = create(servers, "counts", PARTITIONS)
        feeder = Feeder(servers, source)
        feeder.start()
        until = folder / "until"

        def start() -> Driver:
            return Driver(
                "count", servers=servers, source=source, sink=sink, until=until,
                checkpoint=folder / "checkpoint", per_batch=2000,
            )  # fmt: skip

        state = Kills(cluster, start, dice)
        deadline = time.monotonic() + 60 * minutes
        try:
            for number in range(kills):
                wait_for_progress(state)
                feeder.join(dice.uniform(0, CALM_S_MAX))
                print(f"{number + 1}: {state.one()}, {feeder.keys} keys fed", flush=True)
                if time.monotonic() > deadline:
                    break
            feeder.stopping.set()
            feeder.join()
            until.write_text("finish")
            _finish(state)
        finally:
            state.driver.end()
        print(f"kills {dict(state.done)}, drivers {state.restarts + 1}, keys {feeder.keys}")
        nothing_is_open(servers)
        return missing(state.done.total(), kills, minutes) + judge(servers, sink, feeder.keys)


def missing(done: int, wanted: int, minutes: float) -> list[str]:
    """What is wrong with the number of kills."""
    if done >= wanted:
        return []
    return [f"{done} kills of {wanted} in {minutes:g} minutes: give it more (ARGS='--minutes …')"]


def _finish(state: Kills) -> None:
    """Until a driver has written all there is."""
    for _ in range(FINISHING_DRIVERS):
        state.revive()
        if state.driver.wait(FINISH_S) == 0:
            return
    raise AssertionError(f"no driver finishes: {state.driver.words()}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="make spark-kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dmq-kills-") as folder:
        problems = run(given.kills, given.minutes, given.seed, Path(folder))
    for problem in problems[:20]:
        print(problem)
    print("FAILED" if problems else "complete, and nothing twice")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
