"""The frame around every load process: its argument, its own CPU use, its one line of output.

Called by the load modules only; the other end is `bench.runner`.
"""

import json
import resource
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from bench.machine import cpu_seconds


def own_cpu_seconds() -> float:
    """User and system CPU seconds of this process, all threads."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


class Stopwatch:
    """Wall time, own CPU time and the broker's from its creation to `stop`."""

    def __init__(self, args: dict[str, Any]) -> None:
        self.broker_pid: int | None = args.get("broker_pid")
        self.broker_start = cpu_seconds(self.broker_pid) if self.broker_pid else 0.0
        self.cpu_start = own_cpu_seconds()
        self.start = time.perf_counter()

    def elapsed(self) -> float:
        return time.perf_counter() - self.start

    def stop(self) -> dict[str, float]:
        elapsed_s = self.elapsed()
        cpu_s = own_cpu_seconds() - self.cpu_start
        figures = {"seconds": elapsed_s, "client_cores": cpu_s / elapsed_s}
        if self.broker_pid:
            broker_s = cpu_seconds(self.broker_pid) - self.broker_start
            figures["broker_cores"] = broker_s / elapsed_s
        return figures


def percentiles_ms(samples_ns: Sequence[int]) -> dict[str, float]:
    """Nearest-rank percentiles in milliseconds."""
    ordered = sorted(samples_ns)
    if not ordered:
        return {}
    points = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999, "max": 1.0}
    last = len(ordered) - 1
    out = {
        f"{name}_ms": ordered[min(last, int(part * len(ordered)))] / 1e6
        for name, part in points.items()
    }
    out["mean_ms"] = sum(ordered) / len(ordered) / 1e6
    return out


def run_load(load: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Read the argument, run the load, print its figures as the last line."""
    figures = load(json.loads(sys.argv[1]))
    print(json.dumps(figures), flush=True)
