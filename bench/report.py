"""Tables for people, JSON for programs.

Reads rows and bars and shows them as ratios; measures nothing.
"""

import datetime
import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import plots
from bench.bars import Bar, all_bars
from bench.options import Options
from bench.runner import Row, Rows

OURS, CEILING = "dmq", "bare"
# label prefix → (figure, its unit, less is better)
SHOWN = (
    ("produce", "mb_per_s", "MB/s", False),
    ("raw-produce", "mb_per_s", "MB/s", False),
    ("consume", "mb_per_s", "MB/s", False),
    ("raw-consume", "mb_per_s", "MB/s", False),
    ("single", "requests_per_s", "req/s", False),
    ("single-librdkafka", "msg_per_s", "req/s", False),
    ("latency", "p50_ms", "ms p50", True),
    ("latency", "p99_ms", "ms p99", True),
    ("latency", "p999_ms", "ms p99.9", True),
    ("latency", "end_to_end_p50_ms", "ms p50 e2e", True),
    ("latency", "end_to_end_p99_ms", "ms p99 e2e", True),
    ("ready", "ready_s", "s", True),
    ("ready", "rss_mb", "MB RSS", True),
    ("ready", "pss_mb", "MB PSS", True),
)


def machine_line(facts: dict[str, Any]) -> str:
    """One line about where these figures come from."""
    return (
        f"{facts['cpu']}, {facts['cores']} cores, {facts['memory_gb']} GB, "
        f"Linux {facts['kernel']}, {facts['file_system']}, Python {facts['python']}, "
        f"librdkafka by confluent-kafka {facts['packages']['confluent-kafka']}"
    )


def peer_name(options: Options) -> str:
    """The peer's column."""
    return "kafka" if options.peer in ("", "kafka") else "peer"


def print_all(console: Console, rows: Rows, options: Options) -> list[Bar]:
    """The comparison, then the bars; returns the bars."""
    peer = peer_name(options)
    console.print()
    console.print(_comparison(rows, peer))
    bars = all_bars(rows, peer)
    console.print(_bar_table(bars))
    return bars


def _groups(rows: Iterable[Row]) -> dict[tuple[str, str, int, int], list[Row]]:
    groups: dict[tuple[str, str, int, int], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.load, row.durability, row.size, row.partitions), []).append(row)
    return groups


def _comparison(rows: Rows, peer: str) -> Table:
    table = Table(title="the same client against each; best of the rounds (latency: median)")
    for name in ("load", "durability", "record x partitions"):
        table.add_column(name)
    for name in ("dmq", "ceiling", peer, "unit", "dmq / ceiling", f"dmq / {peer}", "cores: client"):
        table.add_column(name, justify="right")
    table.add_column("broker", justify="right")
    table.add_column("broker CPU for it", justify="right")
    for (load, durability, size, partitions), group in _groups(rows.rows).items():
        for prefix, figure, unit, less in SHOWN:
            if load == prefix or (load.startswith(prefix + "-") and prefix != "single-librdkafka"):
                values = {name: _value(group, name, figure, less) for name in (OURS, CEILING, peer)}
                if any(value is not None for value in values.values()):
                    shape = f"{size:,} B x {partitions}" if size else ""
                    _add_line(table, (load, durability, shape), values, unit, peer, group)
    return table


def _value(group: list[Row], target: str, figure: str, less: bool) -> float | None:
    found: list[float] = [
        row.figures[figure]
        for row in group
        if row.target == target and not row.error and figure in row.figures
    ]
    if not found:
        return None
    return median(found) if less else max(found)


def _add_line(
    table: Table,
    head: tuple[str, str, str],
    values: dict[str, float | None],
    unit: str,
    peer: str,
    group: list[Row],
) -> None:
    ours = values[OURS]
    ratios = [
        f"{ours / other:.2f}" if ours and other else "" for other in (values[CEILING], values[peer])
    ]
    cores = [
        "/".join(_cores(group, target, name) for target in (OURS, CEILING, peer))
        for name in ("client_cores", "broker_cores")
    ]
    per, scale = _cost_of(unit)
    costs = "/".join(_cores(group, target, per) for target in (OURS, CEILING, peer)) if per else ""
    cores.append(f"{costs} {scale}".strip())
    shown = [_number(values[name]) for name in (OURS, CEILING, peer)]
    table.add_row(*head, *shown, unit, *ratios, *cores)


def _cost_of(unit: str) -> tuple[str, str]:
    """Which cost goes with a unit: CPU seconds per GB, or microseconds per request."""
    costs = {"MB/s": ("broker_s_per_gb", "s/GB"), "req/s": ("broker_us_each", "us")}
    return costs.get(unit, ("", ""))


def _cores(group: list[Row], target: str, name: str) -> str:
    found = [row.figures[name] for row in group if row.target == target and name in row.figures]
    return f"{median(found):.2g}" if found else "-"


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _bar_table(bars: list[Bar]) -> Table:
    table = Table(title="the bars")
    for name in ("what", "measured", "bar"):
        table.add_column(name)
    table.add_column("ratio", justify="right")
    table.add_column("")
    words = {True: "[green]holds", False: "[red]does not hold", None: "[dim]not measured"}
    for bar in bars:
        ratio = "" if bar.ratio is None else f"{bar.ratio:.2f}"
        table.add_row(bar.what, bar.measured, bar.bar, ratio, words[bar.holds])
    return table


def save(options: Options, rows: Rows, bars: list[Bar], facts: dict[str, Any]) -> Path:
    """Everything as JSON, plots beside it; returns the JSON file's path."""
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%d-%H%M%S")
    options.results.mkdir(parents=True, exist_ok=True)
    path = options.results / f"{stamp}.json"
    content = {
        "machine": facts,
        "options": {key: str(value) for key, value in asdict(options).items()},
        "bars": [asdict(bar) for bar in bars],
        "rows": rows.as_json(),
    }
    path.write_text(json.dumps(content, indent=1))
    if options.plots:
        plots.draw(rows, options.results / stamp, peer_name(options))
    return path
