"""What the person asked for, as one frozen value.

Owns the command line and the presets `--quick` and `--full`; knows nothing of how things run.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

SECTIONS = ("start", "latency", "single", "produce", "consume", "memory")
CLIENTS = ("librdkafka", "raw")


@dataclass(slots=True, frozen=True)
class Options:
    """One bench run; times in seconds, amounts in bytes."""

    targets: tuple[str, ...]
    peer: str
    sections: tuple[str, ...]
    clients: tuple[str, ...]
    sizes: tuple[int, ...]
    partitions: tuple[int, ...]
    durabilities: tuple[str, ...]
    rounds: int
    seconds: float
    warm_seconds: float
    touch_gb: float
    idle_seconds: float
    consume_bytes: int
    rates: tuple[int, ...]
    latency_partitions: tuple[int, ...]
    latency_seconds: float
    connections: tuple[int, ...]
    long_bytes: int
    work: Path | None
    results: Path
    plots: bool
    strict: bool


# The two presets; anything can be set on its own as well.
QUICK = {
    "sections": "start,latency,single,produce,consume",
    "sizes": "1024",
    "partitions": "1,256",
    "rounds": 1,
    "seconds": 2.5,
    "warm_seconds": 2.0,
    "touch_gb": 2.0,
    "consume_mb": 400,
    "latency_seconds": 5.0,
    "rates": "1000",
    "latency_partitions": "1",
    "connections": "1",
    "long_gb": 2.0,
    "clients": "librdkafka",
}
FULL = {
    "sections": ",".join(SECTIONS),
    "sizes": "100,1024,65536",
    "partitions": "1,16,256,1000",
    "rounds": 3,
    "seconds": 5.0,
    "warm_seconds": 8.0,
    "touch_gb": 2.0,
    "consume_mb": 1000,
    "latency_seconds": 20.0,
    "rates": "100,1000,5000",
    "latency_partitions": "1,256",
    "connections": "1,8",
    "long_gb": 10.0,
    "clients": "librdkafka,raw",
}
MIDDLE = {**QUICK, "rounds": 3, "connections": "1,8", "clients": "librdkafka,raw"}


def _words(text: str, known: tuple[str, ...], what: str) -> tuple[str, ...]:
    words = tuple(dict.fromkeys(word for word in text.split(",") if word))
    unknown = [word for word in words if word not in known]
    if unknown:
        raise SystemExit(f"unknown {what}: {', '.join(unknown)} (known: {', '.join(known)})")
    return words


def _integers(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(","))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    preset = parser.add_mutually_exclusive_group()
    preset.add_argument("--quick", action="store_true", help="about 3 minutes with Kafka")
    preset.add_argument("--full", action="store_true", help="every size and partition count")
    add = parser.add_argument
    add("--peer", default="", help="'kafka' (by Maven), or HOST:PORT of a running broker")
    add("--targets", default="dmq,bare", help="without the peer; default dmq,bare")
    add("--only", dest="sections", help=f"sections: {','.join(SECTIONS)}")
    add("--clients", help="librdkafka, raw or both")
    add("--sizes", help="record sizes in bytes")
    add("--partitions", help="partition counts")
    add("--durability", dest="durabilities", default="sync,async")
    add("--rounds", type=int, help="turns per figure; the best is reported")
    add("--seconds", type=float, help="length of one throughput run")
    add("--warm-seconds", type=float, help="unrecorded first run per target; 0: none")
    add("--touch-gb", type=float, help="memory touched right before each produce run")
    add("--consume-mb", type=int, help="at least this much is there to consume")
    add("--rates", help="messages per second for latency")
    add("--latency-seconds", type=float)
    add("--latency-partitions", help="partition counts for latency")
    add("--connections", help="connections of the pipelined single requests")
    add("--long-gb", type=float, help="amount of the memory run")
    add("--idle-seconds", type=float, default=2.0)
    add("--work", type=Path, help="folder for all data (default: a temporary one)")
    add("--results", type=Path, default=Path("bench/results"))
    add("--no-plots", dest="plots", action="store_false")
    add("--strict", action="store_true", help="exit 1 when a bar does not hold")
    return parser


def parse(argv: list[str]) -> Options:
    """Options from a command line."""
    given = _parser().parse_args(argv)
    preset = QUICK if given.quick else FULL if given.full else MIDDLE
    for name, value in preset.items():
        if getattr(given, name, None) is None:
            setattr(given, name, value)
    return Options(
        targets=_words(given.targets, ("dmq", "bare"), "target"),
        peer=given.peer,
        sections=_words(given.sections, SECTIONS, "section"),
        clients=_words(given.clients, CLIENTS, "client"),
        sizes=_integers(given.sizes),
        partitions=_integers(given.partitions),
        durabilities=_words(given.durabilities, ("sync", "async"), "durability"),
        rounds=given.rounds,
        seconds=given.seconds,
        warm_seconds=given.warm_seconds,
        touch_gb=given.touch_gb,
        idle_seconds=given.idle_seconds,
        consume_bytes=given.consume_mb * 1_000_000,
        rates=_integers(given.rates),
        latency_partitions=_integers(given.latency_partitions),
        latency_seconds=given.latency_seconds,
        connections=_integers(given.connections),
        long_bytes=int(given.long_gb * 1e9),
        work=given.work,
        results=given.results,
        plots=given.plots,
        strict=given.strict,
    )
