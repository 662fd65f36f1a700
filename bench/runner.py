"""Runs one load process against one target and takes down its figures.

The suite decides what to run and in which order; here is how: arguments as JSON, one row
per run. A load that fails is a row with its error, never a
crash of the bench.
"""

import json
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from typing import Any

from bench.targets import REPOSITORY, Target, Topic

LOAD_TIMEOUT_S = 600


@dataclass(slots=True)
class Row:
    """The figures of one run of one load against one target."""

    load: str
    target: str
    durability: str = ""
    size: int = 0
    partitions: int = 0
    round: int = 0
    figures: dict[str, Any] = field(default_factory=dict)
    error: str = ""


@dataclass(slots=True)
class Rows:
    """All rows of a run, as the report and the saved JSON need them."""

    rows: list[Row] = field(default_factory=list)

    def add(self, row: Row) -> Row:
        self.rows.append(row)
        return row

    def figures(self, load: str, target: str, name: str, **shape: Any) -> list[float]:
        """One figure of all good runs of a load with this shape."""
        return [
            row.figures[name]
            for row in self.rows
            if row.load == load
            and row.target == target
            and not row.error
            and name in row.figures
            and all(getattr(row, key) == value for key, value in shape.items())
        ]

    def best(self, load: str, target: str, name: str, **shape: Any) -> float | None:
        """The greatest figure: noise on a shared machine only ever takes away."""
        return max(self.figures(load, target, name, **shape), default=None)

    def least(self, load: str, target: str, name: str, **shape: Any) -> float | None:
        """The least figure, for latencies and start times."""
        return min(self.figures(load, target, name, **shape), default=None)

    def as_json(self) -> list[dict[str, Any]]:
        return [asdict(row) for row in self.rows]


def run_load(name: str, target: Target, topic: Topic, label: str, **extra: Any) -> Row:
    """Run `bench.loads.<name>` on a topic; the row says how it went."""
    row = Row(label, target.name, topic.durability, topic.size, topic.partitions)
    args = {
        "bootstrap": target.address(topic.durability),
        "topic": topic.name,
        "partitions": topic.partitions,
        "size": topic.size,
        "broker_pid": target.pid(topic.durability),
        **extra,
    }
    command = [sys.executable, "-m", f"bench.loads.{name}", json.dumps(args)]
    try:
        done = subprocess.run(
            command,
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            timeout=LOAD_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        row.error = f"not done after {LOAD_TIMEOUT_S} s"
        return row
    if done.returncode:
        row.error = done.stderr.strip().rpartition("\n")[2] or f"exit code {done.returncode}"
        return row
    row.figures = json.loads(done.stdout.strip().rpartition("\n")[2])
    _add_costs(row.figures)
    if row.figures.get("failed"):
        row.error = f"{row.figures['failed']} failed"
    return row


def _add_costs(figures: dict[str, Any]) -> None:
    """The broker's CPU time per amount: neighbours on the machine disturb it least."""
    cores = figures.get("broker_cores")
    if cores is None:
        return
    if figures.get("mb_per_s"):
        figures["broker_s_per_gb"] = cores / figures["mb_per_s"] * 1000
    for name in ("requests_per_s", "msg_per_s"):
        if figures.get(name):
            figures["broker_us_each"] = cores / figures[name] * 1e6
            break
