"""The bars that the project set for itself, and whether this run's figures clear them.

Reads rows, returns bars; prints nothing. A bar whose figures were not measured in this run says
so: it neither holds nor fails.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from bench.runner import Rows

KIB = 1024
READY_S_MAX = 0.5
IDLE_MB_MAX = 80.0
SINGLE_PER_S_MIN = 20_000
# How far memory may rise at any time in a long run above what it was soon after the start. The
# peak counts, not the end: garbage that waits for the collector makes a saw, and ends anywhere.
FLAT_GROWTH_MAX = 1.10
FLAT_GROWTH_MB_MAX = 16


@dataclass(slots=True, frozen=True)
class Bar:
    """One promise: what was measured, against what, and the verdict."""

    what: str
    measured: str
    bar: str
    ratio: float | None
    holds: bool | None


def _ratio_bar(
    what: str, ours: float | None, theirs: float | None, least: float, unit: str, whose: str
) -> Bar:
    text = f">= {least:g} x {whose}"
    if ours is None or not theirs:
        return Bar(what, "not measured", text, None, None)
    ratio = ours / theirs
    return Bar(what, f"{ours:,.0f} to {theirs:,.0f} {unit}", text, ratio, ratio >= least)


def all_bars(rows: Rows, peer: str) -> list[Bar]:
    """Every bar, in the order of the promise."""
    return [
        *_against_peer(rows, peer),
        *_latency(rows, peer),
        *_against_ceiling(rows),
        _own_many_partitions(rows),
        *_single(rows),
        _flat_memory(rows),
        *_start(rows),
    ]


def _shapes(rows: Rows, load: str, durability: str) -> list[tuple[int, int]]:
    return sorted(
        {
            (row.size, row.partitions)
            for row in rows.rows
            if row.load == load and row.durability == durability and row.target == "dmq"
        }
    )


def _against_peer(rows: Rows, peer: str) -> Iterator[Bar]:
    for load in ("produce", "raw-produce", "consume", "raw-consume"):
        for size, partitions in _shapes(rows, load, "async"):
            shape = {"durability": "async", "size": size, "partitions": partitions}
            ours = rows.best(load, "dmq", "mb_per_s", **shape)
            theirs = rows.best(load, peer, "mb_per_s", **shape)
            what = f"{load}, unsynced, {size} B x {partitions}"
            yield _ratio_bar(what, ours, theirs, 1.2, "MB/s", peer)
    for load in ("produce", "raw-produce", "consume", "raw-consume"):
        for size, partitions in _shapes(rows, load, "sync"):
            if partitions == 256:
                shape = {"durability": "sync", "size": size, "partitions": partitions}
                ours = rows.best(load, "dmq", "mb_per_s", **shape)
                theirs = rows.best(load, peer, "mb_per_s", **shape)
                what = f"{load}, synced, {size} B x {partitions}"
                yield _ratio_bar(what, ours, theirs, 2.0, "MB/s", peer)


def _latency(rows: Rows, peer: str) -> Iterator[Bar]:
    shape = {"durability": "sync", "partitions": 1}
    # The median of the rounds: the least would hide stalls, which are what p99 is about.
    ours = rows.figures("latency-1000", "dmq", "p99_ms", **shape)
    theirs = rows.figures("latency-1000", peer, "p99_ms", **shape)
    what, bar = "p99 at 1,000 msg/s, synced", f"<= 0.5 x {peer}"
    if not ours or not theirs:
        yield Bar(what, "not measured", bar, None, None)
        return
    ratio = median(ours) / median(theirs)
    measured = f"{median(ours):.2f} to {median(theirs):.2f} ms"
    yield Bar(what, measured, bar, ratio, ratio <= 0.5)


def _against_ceiling(rows: Rows) -> Iterator[Bar]:
    for load in ("produce", "consume", "raw-produce", "raw-consume"):
        for durability in ("sync", "async"):
            if load.endswith("consume") and durability == "sync":
                continue  # Reading is the same for both.
            shape = {"durability": durability, "size": KIB, "partitions": 1}
            ours = rows.best(load, "dmq", "mb_per_s", **shape)
            ceiling = rows.best(load, "bare", "mb_per_s", **shape)
            if load.startswith("raw") and ours is None:
                continue
            what = f"{load}, {durability}, 1 KiB x 1"
            yield _ratio_bar(what, ours, ceiling, 0.6, "MB/s", "ceiling")


def _own_many_partitions(rows: Rows) -> Bar:
    def figure(partitions: int) -> float | None:
        shape = {"durability": "sync", "size": KIB, "partitions": partitions}
        return rows.best("produce", "dmq", "mb_per_s", **shape)

    what = "produce, synced, 1 KiB: 256 partitions to 1"
    return _ratio_bar(what, figure(256), figure(1), 0.7, "MB/s", "our own one partition")


def _single(rows: Rows) -> Iterator[Bar]:
    for durability in ("sync", "async"):
        ours = rows.best("single-1", "dmq", "requests_per_s", durability=durability)
        what = f"single-message requests, pipelined, {durability}"
        bar = f">= {SINGLE_PER_S_MIN:,}/s"
        if ours is None:
            yield Bar(what, "not measured", bar, None, None)
            continue
        ratio = ours / SINGLE_PER_S_MIN
        each_us = rows.least("single-1", "dmq", "broker_us_each", durability=durability)
        cost = f", {each_us:.0f} us of CPU each" if each_us else ""
        yield Bar(what, f"{ours:,.0f}/s{cost}", bar, ratio, ratio >= 1)


def _flat_memory(rows: Rows) -> Bar:
    what = "memory over a long run"
    bar = f"peak <= {FLAT_GROWTH_MAX:g} x or {FLAT_GROWTH_MB_MAX} MB over its first twentieth"
    for row in rows.rows:
        if row.load == "memory" and row.target == "dmq" and not row.error:
            samples = row.figures["samples"]
            early_mb = samples[max(len(samples) // 20, 1)]["anonymous_mb"]
            peak_mb = max(sample["anonymous_mb"] for sample in samples)
            grown = peak_mb / early_mb
            holds = grown <= FLAT_GROWTH_MAX or peak_mb - early_mb <= FLAT_GROWTH_MB_MAX
            measured = (
                f"{early_mb:.0f} to {peak_mb:.0f} MB anonymous, RSS at the end "
                f"{samples[-1]['rss_mb']:.0f} MB, {samples[-1]['gb']:.1f} GB"
            )
            return Bar(what, measured, bar, grown, holds)
    return Bar(what, "not measured", bar, None, None)


def _start(rows: Rows) -> Iterator[Bar]:
    for label, what in (("ready-new", "ready, new folder"), ("ready-again", "ready, clean stop")):
        ready_s = rows.figures(label, "dmq", "ready_s")
        if not ready_s:
            yield Bar(what, "not measured", f"< {READY_S_MAX} s", None, None)
            continue
        seconds = median(ready_s)
        ratio = seconds / READY_S_MAX
        yield Bar(what, f"{seconds:.2f} s", f"< {READY_S_MAX} s", ratio, ratio < 1)
    idle = rows.figures("ready-new", "dmq", "rss_mb")
    bar = f"< {IDLE_MB_MAX:.0f} MB"
    if not idle:
        yield Bar("idle memory (RSS)", "not measured", bar, None, None)
        return
    ratio = median(idle) / IDLE_MB_MAX
    yield Bar("idle memory (RSS)", f"{median(idle):.0f} MB", bar, ratio, ratio < 1)
