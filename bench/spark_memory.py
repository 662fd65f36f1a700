"""`python -m bench.spark_memory`: memory of a Spark job while it reads 10 GB through `format("dmq")`.

One broker, 1 KiB records in 4 partitions, `local[2]`. The topic is read once as a batch job and once as
a stream over what is there. Every half second the Python processes below the driver's JVM and the broker
are weighed. The peak of a read's second half is set against that of its first half, in which Spark also
starts its workers: what grows with the bytes that were read is about twice as much.
"""

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

import psutil

from bench.machine import memory
from bench.spark import Load, Reads, fill, session
from dmq.testing import Broker

RECORD_BYTES = 1024
SAMPLE_S = 0.5
GROWTH_MAX = 1.25
"""What is called flat: the peak of the second half over that of the first."""


@dataclass
class Weights:
    """Anonymous memory in MB, sample by sample."""

    name: str
    seconds: list[float] = field(default_factory=list)
    workers: list[float] = field(default_factory=list)
    broker: list[float] = field(default_factory=list)

    def peaks(self, samples: list[float]) -> tuple[float, float]:
        """The highest in the first half, and in the second."""
        half = max(len(samples) // 2, 1)
        return max(samples[:half]), max(samples[half:])

    @property
    def is_flat(self) -> bool:
        """Has nothing grown with what was read?"""
        pairs = (self.peaks(self.workers), self.peaks(self.broker))
        return all(late <= early * GROWTH_MAX for early, late in pairs)

    def line(self) -> str:
        """For people."""
        workers, broker = self.peaks(self.workers), self.peaks(self.broker)
        return (
            f"{self.name}: {self.seconds[-1]:.0f} s; Python workers {workers[0]:.0f} then"
            f" {workers[1]:.0f} MB, broker {broker[0]:.0f} then {broker[1]:.0f} MB:"
            f" {'flat' if self.is_flat else 'GROWING'}"
        )


def weigh(name: str, broker_pid: int, work: Callable[[], int]) -> Weights:
    """Run `work` and take samples until it ends."""
    weights, is_over = Weights(name), threading.Event()
    began = time.monotonic()

    def sample() -> None:
        while not is_over.wait(SAMPLE_S):
            weights.workers.append(sum(memory(pid).anonymous_mb for pid in _workers()))
            weights.broker.append(memory(broker_pid).anonymous_mb)
            weights.seconds.append(time.monotonic() - began)

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        work()
    finally:
        is_over.set()
        sampler.join()
    return weights


def _workers() -> list[int]:
    """The Python processes that Spark's JVM has begun: daemons with workers, and planners."""
    jvms = [each for each in psutil.Process().children(recursive=True) if each.name() == "java"]
    return [each.pid for jvm in jvms for each in jvm.children()]


def main() -> int:
    """One run; exit code 1 if memory grows with what is read."""
    parser = argparse.ArgumentParser(prog="python -m bench.spark_memory", description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=10.0)
    parser.add_argument("--json", type=Path, help="write the samples here")
    chosen = parser.parse_args()
    count = int(chosen.gigabytes * 1e9 / RECORD_BYTES)
    load = Load("1 KiB", count, RECORD_BYTES, RECORD_BYTES)
    found = []
    with (
        tempfile.TemporaryDirectory() as work,
        Broker({"durability": "async"}, in_process=False) as broker,
    ):
        began = time.monotonic()
        fill(broker.bootstrap_servers, "large", load)
        print(f"wrote {chosen.gigabytes:g} GB in {time.monotonic() - began:.0f} s", flush=True)
        with session(None, Path(work)) as spark:
            reads = Reads(spark, broker.bootstrap_servers, Path(work))
            for name, read in (("batch", reads.batch), ("stream", reads.stream)):
                found.append(weigh(name, broker.pid, partial(read, "dmq", "large")))
                print(found[-1].line(), flush=True)
    if chosen.json:
        chosen.json.write_text(json.dumps([asdict(each) for each in found], indent=1))
    return 0 if all(each.is_flat for each in found) else 1


if __name__ == "__main__":
    sys.exit(main())
