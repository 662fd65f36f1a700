"""What `dmq up` and `dmq serve` say when their brokers are ready: a banner for people, a line of JSON.

Owns the words and the time that it took, counted from the start of the process. Imported when the
brokers are ready, so that none of it counts.
"""

import json
import os
import sys
from typing import TYPE_CHECKING

from dmq import __version__
from dmq.cli.fast import Options

if TYPE_CHECKING:
    from dmq.cli.up_many import Brokers
    from dmq.config.broker import BrokerConfig
    from dmq.doors.serve import Ready

_DURABILITY_MEANS = {
    "sync": "an acknowledged record is on disk",
    "async": "an acknowledged record may be lost when the machine fails",
}


def announce(ready: "Ready", config: "BrokerConfig", options: Options, is_temporary: bool) -> None:
    """One broker is ready."""
    total_s = max(_process_age_s() or ready.seconds, ready.seconds)
    if options.get("json"):
        facts = {
            "event": "ready",
            "bootstrap_servers": ready.bootstrap_servers,
            "node_id": ready.node_id,
            "cluster_id": ready.cluster_id,
            "data_dir": os.path.abspath(ready.data_dir),  # noqa: PTH100
            "temporary": is_temporary,
            "durability": config.durability,
            "seconds": round(total_s, 3),
        }
        print(json.dumps(facts), flush=True)
    elif not options.get("quiet"):
        print(banner(ready, config.durability, total_s, is_temporary, _bold(options)), flush=True)


def banner(
    ready: "Ready", durability: str, total_s: float, is_temporary: bool, bold: tuple[str, str]
) -> str:
    """What a person needs to know of a broker that is ready."""
    start, end = bold
    kept = " (temporary: removed when the broker stops)" if is_temporary else ""
    lines = [
        f"{start}dmq {__version__} is ready{end} in {total_s:.2f} s"
        f" ({ready.seconds:.2f} s of it the broker, the rest Python)",
        f"  Kafka       {start}{ready.bootstrap_servers}{end}",
        f"  cluster     {ready.cluster_id}, broker {ready.node_id}",
        f"  data        {ready.data_dir}{kept}",
        f"  durability  {durability}: {_DURABILITY_MEANS[durability]}",
        "  stop        Ctrl-C",
    ]
    return "\n".join(lines)


def announce_many(
    brokers: "Brokers", config: "BrokerConfig", options: Options, is_temporary: bool
) -> None:
    """A cluster is ready."""
    total_s = _process_age_s()
    if options.get("json"):
        facts = {
            "event": "ready",
            "bootstrap_servers": brokers.bootstrap_servers,
            "cluster_id": brokers.cluster_id,
            "data_dir": os.path.abspath(config.data_dir),  # noqa: PTH100
            "temporary": is_temporary,
            "durability": config.durability,
            "seconds": None if total_s is None else round(total_s, 3),
            "brokers": [
                {
                    "node_id": broker.node,
                    "bootstrap_servers": broker.address,
                    "peer_port": broker.peer_port,
                    "data_dir": os.path.abspath(broker.data_dir),  # noqa: PTH100
                    "pid": broker.pid,
                }
                for broker in brokers.all
            ],
        }
        print(json.dumps(facts), flush=True)
    elif not options.get("quiet"):
        text = banner_many(brokers, config.durability, total_s, is_temporary, _bold(options))
        print(text, flush=True)


def banner_many(
    brokers: "Brokers",
    durability: str,
    total_s: float | None,
    is_temporary: bool,
    bold: tuple[str, str],
) -> str:
    """What a person needs to know of a cluster that is ready."""
    start, end = bold
    kept = " (temporary: removed when the brokers stop)" if is_temporary else ""
    took = "" if total_s is None else f" in {total_s:.2f} s"
    lines = [
        f"{start}dmq {__version__}: {len(brokers.all)} brokers are ready{end}{took}",
        f"  Kafka       {start}{brokers.bootstrap_servers}{end}",
        f"  cluster     {brokers.cluster_id}",
        *(
            f"  broker {each.node:<4} {each.address}, peers at {each.peer_port}, process {each.pid}"
            for each in brokers.all
        ),
        f"  data        {brokers.folder}/broker-N{kept}",
        f"  durability  {durability}: {_DURABILITY_MEANS[durability]}",
        "  watch       dmq cluster status --watch",
        "  stop        Ctrl-C",
    ]
    return "\n".join(lines)


def _bold(options: Options) -> tuple[str, str]:
    plain = options.get("no_color") or "NO_COLOR" in os.environ or not sys.stdout.isatty()
    return ("", "") if plain else ("\x1b[1m", "\x1b[0m")


def _process_age_s() -> float | None:
    """Since the system started this process, the interpreter's own start counted in; Linux only."""
    try:
        with open("/proc/self/stat") as stat, open("/proc/uptime") as uptime:  # noqa: PTH123
            # The name (field 2) may contain anything but ends at the last bracket.
            ticks = int(stat.read().rpartition(")")[2].split()[19])
            return float(uptime.read().split()[0]) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None
