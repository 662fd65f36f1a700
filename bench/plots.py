"""Pictures of a run: throughput by shape, latency, memory. PNG files beside the JSON.

Draws what the rows say; leaves out what was not measured. Without matplotlib it draws nothing.
"""

from pathlib import Path
from typing import Any

from bench.runner import Rows

COLOURS = {"dmq": "#1f77b4", "bare": "#bbbbbb", "kafka": "#d62728", "peer": "#d62728"}
THROUGHPUT = ("produce", "raw-produce", "consume", "raw-consume")


def draw(rows: Rows, folder: Path, peer: str) -> None:
    """All plots that these rows allow."""
    try:
        import matplotlib as mpl
    except ImportError:
        return
    mpl.use("Agg")
    targets = [name for name in ("dmq", "bare", peer) if any(r.target == name for r in rows.rows)]
    pictures = (
        ("throughput", _throughput),
        ("latency", _latency),
        ("memory", _memory),
    )
    for name, picture in pictures:
        figure = picture(rows, targets)
        if figure is not None:
            folder.mkdir(parents=True, exist_ok=True)
            figure.savefig(folder / f"{name}.png", dpi=120, bbox_inches="tight")


def _throughput(rows: Rows, targets: list[str]) -> Any:
    from matplotlib.figure import Figure

    loads = [load for load in THROUGHPUT if any(row.load == load for row in rows.rows)]
    if not loads:
        return None
    figure = Figure(figsize=(12, 3.2 * len(loads)))
    for number, load in enumerate(loads):
        axes = figure.add_subplot(len(loads), 1, number + 1)
        shapes = sorted({(r.durability, r.size, r.partitions) for r in rows.rows if r.load == load})
        width = 0.8 / len(targets)
        for place, target in enumerate(targets):
            heights = [
                rows.best(load, target, "mb_per_s", durability=d, size=s, partitions=p) or 0.0
                for d, s, p in shapes
            ]
            at = [index + place * width for index in range(len(shapes))]
            label = "ceiling" if target == "bare" else target
            axes.bar(at, heights, width, label=label, color=COLOURS[target])
        names = [f"{d}\n{s} B x {p}" for d, s, p in shapes]
        axes.set_xticks([index + 0.4 - width / 2 for index in range(len(shapes))], names)
        axes.tick_params(axis="x", labelsize=7)
        axes.set_ylabel("MB/s")
        axes.set_title(load)
        axes.legend()
    figure.tight_layout()
    return figure


def _latency(rows: Rows, targets: list[str]) -> Any:
    from matplotlib.figure import Figure

    found = [row for row in rows.rows if row.load.startswith("latency") and not row.error]
    if not found:
        return None
    figure = Figure(figsize=(10, 4))
    axes = figure.add_subplot(1, 1, 1)
    points = ("p50_ms", "p90_ms", "p99_ms", "p999_ms", "max_ms")
    for row in found:
        if row.target in targets:
            heights = [row.figures[name] for name in points]
            style = "-" if row.durability == "sync" else "--"
            label = f"{row.target} {row.durability} {row.figures['rate']}/s x {row.partitions}"
            axes.plot(range(5), heights, style, color=COLOURS[row.target], marker="o", label=label)
    axes.set_xticks(range(5), ["p50", "p90", "p99", "p99.9", "max"])
    axes.set_yscale("log")
    axes.set_ylabel("ms from the due time to the ack")
    handles, labels = axes.get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    axes.legend(unique.values(), unique.keys(), fontsize=7)
    return figure


def _memory(rows: Rows, _targets: list[str]) -> Any:
    from matplotlib.figure import Figure

    found = [row for row in rows.rows if row.load == "memory" and "samples" in row.figures]
    if not found:
        return None
    figure = Figure(figsize=(8, 4))
    axes = figure.add_subplot(1, 1, 1)
    for row in found:
        samples = row.figures["samples"]
        gigabytes = [sample["gb"] for sample in samples]
        for name in ("rss_mb", "anonymous_mb"):
            axes.plot(gigabytes, [sample[name] for sample in samples], label=f"{row.target} {name}")
    axes.set_xlabel("GB produced")
    axes.set_ylabel("MB")
    axes.set_ylim(bottom=0)
    axes.legend()
    return figure
