"""Where the broker's time goes: a load against dmq with a profiler on it.

`python -m bench.profile produce --partitions 256 --durability sync`. Two views: cProfile inside the
broker (`DMQ_PROFILE`, costs time itself, so read the shares and not the rates), and, where `perf`
is installed and allowed, native stacks of the undisturbed broker in a second run.
"""

import argparse
import pstats
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.runner import Row, run_load
from bench.targets import Node, Target, Topic, dmq_command, free_port

console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)
LOADS = ("produce", "raw_produce", "consume", "raw_consume", "single")


class ProfiledDmq(Target):
    """dmq with a profile written when it stops."""

    name = "dmq"

    def __init__(self, work: Path, profile: Path | None) -> None:
        super().__init__(work)
        self.profile = profile

    def start_node(self, durability: str, data: Path) -> Node:
        port = free_port()
        command = dmq_command(port, data, durability)
        env = {"DMQ_PROFILE": str(self.profile)} if self.profile else {}
        return Node(command, f"127.0.0.1:{port}", self.work / f"log-{durability}", env)


def run_once(target: Target, options: argparse.Namespace) -> Row:
    """The load once, with data to read if it reads."""
    topic = Topic(
        f"profile-p{options.partitions}", options.partitions, options.size, options.durability
    )
    target.create(topic)
    extra: dict[str, Any] = {"seconds": options.seconds}
    if options.load.endswith("consume"):
        filled = run_load("produce", target, topic, "fill", bytes=options.fill_mb * 1_000_000)
        extra |= {"records": int(filled.figures["records"]) + topic.partitions}
    if options.load == "single":
        extra |= {"connections": options.connections, "window": 512 // options.connections}
    return run_load(options.load, target, topic, options.load, **extra)


def show(row: Row) -> None:
    """The load's figures in one line."""
    rates = {k: v for k, v in row.figures.items() if k.endswith(("_per_s", "_cores"))}
    console.print(row.error or ", ".join(f"{name} {value:,.1f}" for name, value in rates.items()))


def show_profile(path: Path, lines: int) -> None:
    """The functions with most time of their own."""
    stats: Any = pstats.Stats(str(path))
    total_s = stats.total_tt
    table = Table(title=f"cProfile, own time of {total_s:.1f} s")
    for name in ("share", "own s", "with callees s", "calls", "us/call"):
        table.add_column(name, justify="right")
    table.add_column("function")
    entries = sorted(stats.stats.items(), key=lambda item: -item[1][2])
    for (file, line, function), (_, calls, own_s, all_s, _) in entries[:lines]:
        where = f"{Path(file).parent.name}/{Path(file).name}:{line} " if line else ""
        table.add_row(
            f"{own_s / total_s:.1%}",
            f"{own_s:.2f}",
            f"{all_s:.2f}",
            f"{calls:,}",
            f"{own_s / calls * 1e6:.1f}",
            where + function,
        )
    console.print(table)


def perf(target: Target, options: argparse.Namespace, work: Path) -> None:
    """Native stacks by `perf`, if it is there and allowed."""
    pid = target.pid(options.durability)
    if pid is None or shutil.which("perf") is None:
        console.print("perf is not installed: no native view")
        return
    data = work / "perf.data"
    recorder = subprocess.Popen(
        [
            "perf",
            "record",
            "-q",
            "-e",
            "cpu-clock",
            "-F",
            "499",
            "-g",
            "-p",
            str(pid),
            "-o",
            str(data),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    show(run_once(target, options))
    recorder.terminate()
    recorder.wait()
    report = ["perf", "report", "-i", str(data), "--no-children", "-g", "none", "--stdio"]
    done = subprocess.run(
        [*report, "--percent-limit", "0.7"], capture_output=True, text=True, check=False
    )
    lines = [line for line in done.stdout.splitlines() if line and not line.startswith("#")]
    console.print("\n".join(lines[: options.lines]) or f"perf said nothing: {done.stderr[-200:]}")


def main() -> None:
    """Parse, run, show."""
    parser = argparse.ArgumentParser(prog="python -m bench.profile", description=__doc__)
    parser.add_argument("load", choices=LOADS)
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--durability", choices=("sync", "async"), default="sync")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--fill-mb", type=int, default=500)
    parser.add_argument("--lines", type=int, default=30)
    parser.add_argument("--no-perf", dest="perf", action="store_false")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dmq-profile-") as folder:
        work = Path(folder)
        profiled = ProfiledDmq(work / "profiled", work / "broker.prof")
        try:
            show(run_once(profiled, options))
        finally:
            profiled.stop()
        show_profile(work / "broker.prof", options.lines)
        if options.perf:
            plain = ProfiledDmq(work / "plain", None)
            try:
                perf(plain, options, work)
            finally:
                plain.stop()


if __name__ == "__main__":
    main()
