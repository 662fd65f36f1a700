"""How long writes stop when a leader goes: `python -m tests.jepsen.failover --kills 100`.

Under load with acks=all, over and over, the broker that leads most is killed with -9, paused, cut off, or
stopped in order. Time counts from that moment until a record that was sent after it is acknowledged, for
the slowest of the partitions that it led. Three measures:
    cluster   what the brokers need: the first write by anybody, a prober without patience of its own (see
              `prober`) among them
    attentive librdkafka told to look soon (socket.timeout.ms=1000, metadata each 200 ms), and to call
              again soon (reconnect.backoff.max.ms=100)
    default   librdkafka as it comes; after a pause or a cut it waits for its own 60 s, so it is not asked
For an orderly stop it is the longest time between two acknowledgements around it.
The cluster is whole before each time: every broker leads again, both clients write to every partition.
`--debug-folder` saves what librdkafka says of itself, a file for each client, with a line for each kill.
"""

import argparse
import json
import logging
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from confluent_kafka import ElectionType, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from dmq.testing import Cluster, namespaces
from tests.jepsen.kafka import KafkaCluster
from tests.jepsen.prober import Prober

TOPIC = "failover"
PARTITIONS = 6
PATIENCE_S = 60.0
BARS_S = {"kill": 1.0, "pause": 2.0, "cut": 2.0, "stop": 0.2}
"""What must hold: at the 99th percentile; for an orderly stop always."""
JUDGED = {
    "kill": ("cluster", "default"),
    "pause": ("cluster",),
    "cut": ("cluster",),
    "stop": ("default",),
}
"""By what the brokers need, and by what a client sees that is told of the end by its connection."""

ATTENTIVE = {
    "socket.timeout.ms": 1000,
    "topic.metadata.refresh.interval.ms": 200,
    "reconnect.backoff.max.ms": 100,
}
DEBUG = "broker,metadata,topic,msg,protocol"
_TICK_S = 0.01


class Stream:
    """A producer that sends to every partition each 10 ms and notes when what was acknowledged."""

    def __init__(
        self, bootstrap: str, config: dict[str, Any], log: logging.Logger | None = None
    ) -> None:
        """`log`: for what librdkafka says of itself."""
        self._log = log
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "error_cb": lambda error: None,
                **({"log_level": 0} if log is None else {"debug": DEBUG, "logger": log}),
                **config,
            }
        )
        self._lock = threading.Lock()
        self._acks: dict[int, list[tuple[float, float]]] = {p: [] for p in range(PARTITIONS)}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        value = bytes(1024)
        while not self._stop.wait(_TICK_S):
            for partition in range(PARTITIONS):
                sent = time.monotonic()
                try:
                    self._producer.produce(
                        TOPIC,
                        value,
                        partition=partition,
                        on_delivery=lambda error, message, sent=sent: self._note(
                            error, message, sent
                        ),
                    )
                except BufferError:
                    continue
            self._producer.poll(0)

    def _note(self, error: Any, message: Any, sent: float) -> None:
        if error is None:
            with self._lock:
                self._acks[message.partition()].append((sent, time.monotonic()))

    def first_ack(self, partition: int, since: float) -> float | None:
        """When the first record that was sent after `since` was acknowledged."""
        with self._lock:
            times = [acked for sent, acked in self._acks[partition] if sent >= since]
        return min(times, default=None)

    def longest_gap(self, partition: int, since: float, until: float) -> float:
        """The longest time without an acknowledgement that touches the span."""
        with self._lock:
            times = sorted(acked for _, acked in self._acks[partition])
        pairs = pairwise(times)
        return max((b - a for a, b in pairs if b >= since and a <= until), default=until - since)

    def remark(self, text: str) -> None:
        """Into the log, between librdkafka's own lines."""
        if self._log is not None:
            self._log.info("======== %s", text)

    def forget(self) -> None:
        with self._lock:
            for acks in self._acks.values():
                acks.clear()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._producer.purge()
        self._producer.flush(1)


@dataclass
class Gaps:
    """Seconds, by way of failing and measure."""

    found: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def add(self, mode: str, measure: str, seconds: float) -> None:
        self.found.setdefault(mode, {}).setdefault(measure, []).append(seconds)

    def lines(self) -> list[str]:
        rows = [f"{'':6} {'measure':10} {'count':>5} {'p50 ms':>8} {'p99 ms':>8} {'max ms':>8}"]
        for mode, measures in self.found.items():
            for measure, seconds in measures.items():
                p50, p99 = percentile(seconds, 0.5), percentile(seconds, 0.99)
                figures = [f"{x * 1000:8.0f}" for x in (p50, p99, max(seconds))]
                rows.append(f"{mode:6} {measure:10} {len(seconds):5} {' '.join(figures)}")
        return rows

    def broken_bars(self) -> list[str]:
        """Bars that do not hold."""
        broken = []
        for mode, bar_s in BARS_S.items():
            for measure in JUDGED[mode]:
                seconds = self.found.get(mode, {}).get(measure, [])
                if seconds and percentile(seconds, 0.99) > bar_s:
                    found = percentile(seconds, 0.99)
                    broken.append(f"{mode}, {measure}: {found:.2f} s > {bar_s} s")
        return broken


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


class Meter:
    """Does it, over and over."""

    def __init__(
        self, cluster: Cluster, say: Callable[[str], None], debug_folder: Path | None = None
    ) -> None:
        self._cluster, self._say = cluster, say
        self._brokers = len(cluster.brokers)
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        self.gaps = Gaps()
        self._streams = {
            name: Stream(cluster.bootstrap, config, _log(debug_folder, name))
            for name, config in (("default", {}), ("attentive", ATTENTIVE))
        }

    def run(self, mode: str, times: int) -> None:
        for count in range(1, times + 1):
            self._make_whole()
            victim, partitions = self._victim()
            measured = self._once(mode, victim, partitions)
            for measure, seconds in measured.items():
                self.gaps.add(mode, measure, seconds)
            figures = ", ".join(f"{name} {1000 * s:.0f} ms" for name, s in measured.items())
            line = f"{mode} {count}/{times}: broker {victim}, {len(partitions)} led: {figures}"
            self._say(line)
            self._remark(line)

    def _make_whole(self) -> None:
        """A broker that is back leads again, and clients have called it again: else the next one's end
        is measured by how long a client waits before it does that."""
        self._cluster.wait_ready(PATIENCE_S, in_sync=True)
        self._wait(self._is_whole, "every broker leads, and all partitions take writes")

    def _is_whole(self) -> bool:
        """All at once: a leadership that goes elsewhere while a client has yet to call its broker lets
        the client write everywhere without that call."""
        self._admin.elect_leaders(ElectionType.PREFERRED).result(PATIENCE_S)
        leaders = self._leaders()
        if len(set(leaders.values())) < self._brokers or not self._all_flow(leaders):
            return False
        return self._leaders() == leaders

    def _leaders(self) -> dict[int, int]:
        return {p: self._cluster.leader(TOPIC, p) for p in range(PARTITIONS)}

    def _victim(self) -> tuple[int, list[int]]:
        """The broker that leads most, and what it leads."""
        leaders = self._leaders()
        ((victim, _),) = Counter(leaders.values()).most_common(1)
        return victim, [p for p, leader in leaders.items() if leader == victim]

    def _all_flow(self, partitions: Iterable[int]) -> bool:
        """Do both producers get acknowledgements now?"""
        now = time.monotonic()
        streams = self._streams.values()
        return _soon(
            lambda: all(s.first_ack(p, now) is not None for s in streams for p in partitions), 5.0
        )

    def _once(self, mode: str, victim: int, partitions: list[int]) -> dict[str, float]:
        for stream in self._streams.values():
            stream.forget()
        if mode == "stop":
            return self._stop_in_order(victim, partitions)
        addresses = {node: self._cluster.member(node).address for node in self._cluster.brokers}
        asked = ("default", "attentive") if mode == "kill" else ("attentive",)
        self._remark(f"{mode} of broker {victim}, which leads {partitions}")
        began = time.monotonic()
        self._begin(mode, victim)
        since = time.monotonic()  # What was sent while it began may still have got through.
        probers = [Prober(TOPIC, partition, addresses) for partition in partitions]
        try:
            self._wait(lambda: all(p.wrote_at for p in probers), f"writes go on after {mode}")
            firsts = [
                min([probe.wrote_at or 0.0, *self._acks_of(partition, since)])
                for probe, partition in zip(probers, partitions, strict=True)
            ]
            measured = {"cluster": max(firsts) - began}
            for name in asked:
                stream = self._streams[name]
                self._wait(
                    lambda s=stream: all(s.first_ack(p, since) for p in partitions),
                    f"the {name} client goes on after {mode}",
                )
                acks = [stream.first_ack(p, since) or 0.0 for p in partitions]
                measured[name] = max(acks) - began
        finally:
            for prober in probers:
                prober.stop()
            self._end(mode, victim)
        return measured

    def _remark(self, text: str) -> None:
        for stream in self._streams.values():
            stream.remark(text)

    def _acks_of(self, partition: int, since: float) -> list[float]:
        firsts = [stream.first_ack(partition, since) for stream in self._streams.values()]
        return [first for first in firsts if first is not None]

    def _begin(self, mode: str, victim: int) -> None:
        if mode == "kill":
            self._cluster.kill(victim)
        elif mode == "pause":
            self._cluster.pause(victim)
        else:
            self._cluster.isolate(victim)

    def _end(self, mode: str, victim: int) -> None:
        if mode == "kill":
            self._cluster.restart(victim)
        elif mode == "pause":
            self._cluster.resume(victim)
        else:
            self._cluster.heal(victim)

    def _stop_in_order(self, victim: int, partitions: list[int]) -> dict[str, float]:
        began = time.monotonic()
        self._cluster.stop(victim)
        ended = time.monotonic()
        streams = self._streams
        self._wait(
            lambda: all(s.first_ack(p, ended) for s in streams.values() for p in partitions),
            "writes go on after an orderly stop",
        )
        gaps = {
            name: max(stream.longest_gap(p, began, ended) for p in partitions)
            for name, stream in streams.items()
        }
        self._cluster.restart(victim)
        return gaps

    def _wait(self, condition: Callable[[], Any], what: str) -> None:
        assert _soon(condition, PATIENCE_S), f"not within {PATIENCE_S:.0f} s: {what}"

    def close(self) -> None:
        for stream in self._streams.values():
            stream.close()


def _log(folder: Path | None, name: str) -> logging.Logger | None:
    if folder is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(folder / f"{name}.log", mode="w")
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    log = logging.Logger(name)
    log.addHandler(handler)
    return log


def _soon(condition: Callable[[], Any], within_s: float) -> bool:
    pause = threading.Event()
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        pause.wait(0.005)
    return True


def measure(made: Cluster, times: dict[str, int], debug_folder: Path | None) -> Gaps:
    """Start the cluster, do all that is asked for, and stop it."""
    with made as cluster:
        brokers = len(cluster.brokers)
        print(f"{brokers} brokers; between them: {cluster.network}", flush=True)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        topic = NewTopic(TOPIC, PARTITIONS, min(3, brokers))
        admin.create_topics([topic], operation_timeout=30)[TOPIC].result(60)
        meter = Meter(cluster, lambda line: print(line, flush=True), debug_folder)
        try:
            for mode, count in times.items():
                meter.run(mode, count)
        finally:
            print("\n".join(meter.gaps.lines()), flush=True)
            meter.close()
        return meter.gaps


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.jepsen.failover",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--times", type=int, default=30, help="of each of the other ways")
    parser.add_argument("--modes", default=",".join(BARS_S), help="which ways")
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--network", choices=("namespaces", "proxy", "direct"))
    parser.add_argument("--kafka", action="store_true", help="Apache Kafka instead of ours")
    parser.add_argument("--json", type=Path, help="save all figures here")
    parser.add_argument("--debug-folder", type=Path, help="save the clients' own logs here")
    given = parser.parse_args()
    times = {
        mode: given.kills if mode == "kill" else given.times for mode in given.modes.split(",")
    }
    reason = namespaces.why_not()
    network = given.network or ("proxy" if reason else "namespaces")
    settings = {
        "durability": "sync",
        "journal.max.bytes": 512 << 20,
        "journal.file.bytes": 32 << 20,
    }
    with tempfile.TemporaryDirectory(prefix="dmq-failover-") as folder:
        kind = KafkaCluster if given.kafka else Cluster
        made = kind(given.brokers, settings, network=network, data_dir=folder)
        gaps = measure(made, times, given.debug_folder)
    if given.json:
        given.json.write_text(json.dumps(gaps.found, indent=1))
    broken = gaps.broken_bars()
    print("\n".join(broken) or "all bars hold")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
