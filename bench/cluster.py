"""`python -m bench.cluster`: three brokers of ours next to three nodes of Apache Kafka, in one run.

    throughput  RF 3, acks=all, 16 partitions, 1 KiB: dmq (a majority has synced before the answer), Kafka
                with flush.messages=1 (leader and followers sync each append), Kafka as it comes (no sync)
    idle        CPU of each broker with 1,000 partitions of RF 3 and no client
    many        5,000 partitions of RF 3: created, then one broker killed with -9: until each partition
                that it led has a leader again, and until each of them has taken a write

Systems take turns (A B C A B C); figures are ratios of the same round and of the medians. All brokers of
both systems run all the time, and the first rounds are not counted: a JVM needs its time. Imports nothing
of `dmq`.
"""

import argparse
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench import kafka
from bench.machine import settle
from bench.targets import REPOSITORY, Node, TargetError, free_port

NODES = (1, 2, 3)
QUIET = {"log_level": 0, "broker.address.family": "v4"}
LOAD_TIMEOUT_S = 600
READY_S = 180.0
BARS = {
    "kafka flush.messages=1": 1.5,
    "kafka default": 1.0,
    "idle": 10.0,
    "created": 60.0,
    "leaders": 10.0,
}


class Cluster:
    """Three broker processes of one system."""

    name = ""

    def __init__(self, work: Path) -> None:
        self.work = work / self.name
        self.work.mkdir(parents=True)
        self.ports = {node: (free_port(), free_port()) for node in NODES}
        self._nodes: dict[int, Node] = {}

    def command(self, node: int) -> list[str]:
        raise NotImplementedError

    def start(self) -> float:
        """All at once; seconds until all answer."""
        began = time.monotonic()
        with ThreadPoolExecutor(len(NODES)) as pool:
            self._nodes = dict(zip(NODES, pool.map(self.start_node, NODES), strict=True))
        return time.monotonic() - began

    def start_node(self, node: int) -> Node:
        address = f"127.0.0.1:{self.ports[node][0]}"
        return Node(self.command(node), address, self.work / f"log-{node}", {})

    def kill(self, node: int) -> None:
        self._nodes[node].process.kill()
        self._nodes[node].process.wait()

    def restart(self, node: int) -> None:
        self._nodes[node] = self.start_node(node)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port, _ in self.ports.values())

    @property
    def peers(self) -> str:
        return ",".join(f"{node}@127.0.0.1:{port}" for node, (_, port) in self.ports.items())

    def cpu_seconds(self) -> dict[int, float]:
        used = {}
        for number, node in self._nodes.items():
            times = psutil.Process(node.pid).cpu_times()
            used[number] = times.user + times.system
        return used

    def stop(self) -> None:
        with ThreadPoolExecutor(len(NODES)) as pool:
            list(pool.map(lambda node: node.stop(), self._nodes.values()))
        self._nodes.clear()

    # --- topics

    def create(self, topic: str, partitions: int, config: dict[str, str]) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, **QUIET})
        new = NewTopic(topic, partitions, 3, config=config)
        admin.create_topics([new], request_timeout=120)[topic].result(120)

    def delete(self, *topics: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, **QUIET})
        for future in admin.delete_topics([*topics], request_timeout=120).values():
            future.result(120)

    def deleted_files(self) -> list[Path]:
        """What is still there of deleted topics."""
        raise NotImplementedError

    def wait_until_gone(self) -> None:
        """Until the files of deleted topics are gone: to let go of gigabytes makes the disk wait, and it
        would be the next system's load that does."""
        deadline = time.monotonic() + READY_S
        while self.deleted_files():
            if time.monotonic() > deadline:
                raise TargetError(f"{self.name}: files of deleted topics stay")
            time.sleep(0.1)

    def wait_for_leaders(
        self, topics: dict[str, int], within_s: float, without: int = -1
    ) -> dict[str, list[int]]:
        """Until each partition has a leader, other than `without`: the leaders by topic."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, **QUIET})
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            try:
                found = admin.list_topics(timeout=10).topics
            except KafkaException:
                continue
            leaders = {
                name: [p.leader for _, p in sorted(found[name].partitions.items())]
                for name in topics
                if name in found
            }
            if all(
                len(leaders.get(name, [])) == count
                and all(leader >= 0 and leader != without for leader in leaders[name])
                for name, count in topics.items()
            ):
                return leaders
            time.sleep(0.05)
        raise TargetError(f"{self.name}: partitions without a leader after {within_s:.0f} s")


class Dmq(Cluster):
    """`dmq serve` with its defaults; deleted topics' files go after a second, as in the other column."""

    name = "dmq"

    def command(self, node: int) -> list[str]:
        port, peer = self.ports[node]
        settings = {
            "node.id": node,
            "host": "127.0.0.1",
            "port": port,
            "peer.listener": f"127.0.0.1:{peer}",
            "cluster.peers": self.peers,
            "log.dirs": self.work / f"data-{node}",
            "logging.level": "warning",
            "log.segment.delete.delay.ms": 1000,
        }
        words = [f"--set={name}={value}" for name, value in settings.items()]
        return [sys.executable, "-m", "dmq", "serve", "--quiet", *words]

    def deleted_files(self) -> list[Path]:
        return list(self.work.glob("data-*/quarantine/*"))


class Kafka(Cluster):
    """KRaft nodes, each broker and controller, with Kafka's own defaults and JVM options."""

    name = "kafka"

    def __init__(self, work: Path) -> None:
        super().__init__(work)
        self._libs = kafka.jars()
        uuid = self._tool("random-uuid").strip().splitlines()[-1]
        for node in NODES:
            self._config(node).write_text(self._properties(node))
            self._tool("format", "-t", uuid, "-c", str(self._config(node)))

    def _config(self, node: int) -> Path:
        return self.work / f"node-{node}.properties"

    def _tool(self, *words: str) -> str:
        java = ["java", "-cp", f"{self._libs}/*", "kafka.tools.StorageTool", *words]
        done = subprocess.run(java, capture_output=True, text=True, check=False)
        if done.returncode:
            raise TargetError(f"Kafka's storage tool failed: {done.stderr[-600:]}")
        return done.stdout

    def _properties(self, node: int) -> str:
        port, controller = self.ports[node]
        listeners = f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}"
        return f"""process.roles=broker,controller
node.id={node}
controller.quorum.voters={self.peers}
listeners={listeners}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={self.work / f"data-{node}"}
log.segment.delete.delay.ms=1000
"""

    def command(self, node: int) -> list[str]:
        options = kafka.JVM_OPTIONS
        return ["java", *options, "-cp", f"{self._libs}/*", "kafka.Kafka", str(self._config(node))]

    def deleted_files(self) -> list[Path]:
        return list(self.work.glob("data-*/*-delete"))


@dataclass(frozen=True, slots=True)
class System:
    """A cluster and the topics that are made on it."""

    name: str
    cluster: Cluster
    topic_config: dict[str, str] = field(default_factory=dict)


@dataclass
class Results:
    """Figures by section and system, as they are saved."""

    figures: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add(self, section: str, system: str, **values: Any) -> None:
        rows = self.figures.setdefault(section, {}).setdefault(system, [])
        rows.append(values)
        text = ", ".join(f"{name} {value}" for name, value in values.items())
        print(f"  {section} {system}: {text}", flush=True)

    def median(self, section: str, system: str, name: str) -> float | None:
        rows = self.figures.get(section, {}).get(system, [])
        values = [row[name] for row in rows if name in row]
        return statistics.median(values) if values else None

    def ratios(self, system: str) -> list[float]:
        """dmq's throughput by this system's, of each round: a median hides that one of them warms up."""
        rows = self.figures["throughput"]
        pairs = zip(rows["dmq"], rows[system], strict=True)
        return [ours["mb_per_s"] / theirs["mb_per_s"] for ours, theirs in pairs]


# --- throughput


def throughput(systems: list[System], results: Results, given: argparse.Namespace) -> None:
    """The first rounds are not counted: a JVM becomes several times faster in its first minute."""
    for number in range(1 - given.warmup, given.rounds + 1):
        for system in systems:
            topic = f"bench-{number + given.warmup}-{len(system.topic_config)}"
            system.cluster.create(topic, given.partitions, system.topic_config)
            system.cluster.wait_for_leaders({topic: given.partitions}, READY_S)
            before = system.cluster.cpu_seconds()
            figures = _produce(system.cluster.bootstrap, topic, given)
            used = sum(system.cluster.cpu_seconds().values()) - sum(before.values())
            results.add(
                "throughput" if number > 0 else "warm-up",
                system.name,
                mb_per_s=round(figures["mb_per_s"], 2),
                failed=figures["failed"],
                broker_cores=round(used / figures["seconds"], 2),
                client_cores=round(figures["client_cores"], 2),
            )
            system.cluster.delete(topic)
            system.cluster.wait_until_gone()
            settle()


def _produce(bootstrap: str, topic: str, given: argparse.Namespace) -> dict[str, Any]:
    args = {
        "bootstrap": bootstrap,
        "topic": topic,
        "partitions": given.partitions,
        "size": given.size,
        "seconds": given.seconds,
        "touch_gb": given.touch_gb,
    }
    done = subprocess.run(
        [sys.executable, "-m", "bench.loads.produce", json.dumps(args)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=LOAD_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise TargetError(f"the load failed: {done.stderr[-600:]}")
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


# --- many partitions


def idle(clusters: list[Cluster], results: Results, given: argparse.Namespace) -> None:
    for cluster in clusters:
        count = given.idle_partitions
        cluster.create("idle", count, {})
        cluster.wait_for_leaders({"idle": count}, READY_S)
        time.sleep(given.idle_seconds / 2)  # Idle is a length of time, not an event.
        before, began = cluster.cpu_seconds(), time.monotonic()
        time.sleep(given.idle_seconds)
        after, elapsed_s = cluster.cpu_seconds(), time.monotonic() - began
        shares = {node: round(100 * (after[node] - before[node]) / elapsed_s, 1) for node in NODES}
        results.add("idle", cluster.name, percent_of_a_core=max(shares.values()), each=shares)
        cluster.delete("idle")


def many(clusters: list[Cluster], results: Results, given: argparse.Namespace) -> None:
    topics = {f"many-{n}": 1000 for n in range(given.many_partitions // 1000)}
    for cluster in clusters:
        began = time.monotonic()
        for topic, count in topics.items():
            cluster.create(topic, count, {})
        leaders = cluster.wait_for_leaders(topics, READY_S)
        created_s = time.monotonic() - began
        victim = NODES[0]
        led = [(t, p) for t, all_ in leaders.items() for p, who in enumerate(all_) if who == victim]
        began = time.monotonic()
        cluster.kill(victim)
        cluster.wait_for_leaders(topics, READY_S, without=victim)
        leaders_s = time.monotonic() - began
        _write_to_each(cluster, led)
        results.add(
            "many",
            cluster.name,
            created_s=round(created_s, 2),
            led_by_the_killed=len(led),
            leaders_s=round(leaders_s, 2),
            written_s=round(time.monotonic() - began, 2),
        )
        cluster.restart(victim)
        cluster.delete(*topics)


def _write_to_each(cluster: Cluster, spots: list[tuple[str, int]]) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", **QUIET})
    for topic, partition in spots:
        producer.produce(topic, b"after", partition=partition)
        producer.poll(0)
    if producer.flush(READY_S):
        raise TargetError(f"{cluster.name}: not every partition took a write after the failover")


# --- the run


def verdict(results: Results) -> list[str]:
    """Ratios of medians, and what they are measured by."""
    lines = []
    ours = results.median("throughput", "dmq", "mb_per_s")
    for name in ("kafka flush.messages=1", "kafka default"):
        theirs = results.median("throughput", name, "mb_per_s")
        if ours and theirs:
            lines.append(f"dmq / {name}: {ours / theirs:.2f} (must be ≥ {BARS[name]})")
            each = " ".join(f"{ratio:.2f}" for ratio in results.ratios(name))
            lines.append(f"  round by round: {each}")
    share = results.median("idle", "dmq", "percent_of_a_core")
    if share is not None:
        lines.append(f"idle: {share} % of a core (must be < {BARS['idle']})")
    for name in ("created", "leaders"):
        seconds = results.median("many", "dmq", f"{name}_s")
        if seconds is not None:
            lines.append(f"many, {name}: {seconds} s (must be < {BARS[name]})")
    return lines


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.cluster",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", default="throughput,idle,many", help="which sections")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=2, help="rounds before, not counted")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each load")
    parser.add_argument(
        "--touch-gb",
        type=float,
        default=0.0,
        help="memory touched right before each load: on a virtual machine the first touch is slow",
    )
    parser.add_argument("--partitions", type=int, default=16)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--idle-partitions", type=int, default=1000)
    parser.add_argument("--idle-seconds", type=float, default=20.0)
    parser.add_argument("--many-partitions", type=int, default=5000)
    parser.add_argument("--no-kafka", action="store_true")
    parser.add_argument("--json", type=Path, help="save all figures here")
    return parser.parse_args()


def main() -> int:
    given = parse()
    results = Results()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # Else the brokers would live on.
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dmq-bench-")))
        clusters: list[Cluster] = [Dmq(work)]
        problem = "not asked for" if given.no_kafka else kafka.available()
        if problem:
            print(f"no Apache Kafka here: {problem}")
        else:
            clusters.append(Kafka(work))
        for cluster in clusters:
            stack.callback(cluster.stop)
            print(f"{cluster.name}: three brokers answer after {cluster.start():.2f} s", flush=True)
        systems = [System("dmq", clusters[0])]
        if len(clusters) > 1:
            synced = {"flush.messages": "1"}
            systems.append(System("kafka flush.messages=1", clusters[1], synced))
            systems.append(System("kafka default", clusters[1]))
        wanted = given.only.split(",")
        if "throughput" in wanted:
            throughput(systems, results, given)
        if "idle" in wanted:
            idle(clusters, results, given)
        if "many" in wanted:
            many(clusters, results, given)
    print("\n".join(verdict(results)))
    if given.json:
        given.json.write_text(json.dumps(results.figures, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
