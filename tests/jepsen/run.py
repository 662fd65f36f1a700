"""One run: brokers, clients, faults, then the final reads and the verdict.

Owns the folder of the run: histories of all clients, the brokers' logs, `history.jsonl` (all of it in
order of time) and `report.txt`. Clients are processes of their own; the nemesis works in this one.
"""

import json
import random
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from dmq.testing import BrokerFailedError, namespaces
from tests.jepsen import checker, disks, history, replicas
from tests.jepsen.changes import RACKS, ChangingCluster
from tests.jepsen.kafka import KafkaCluster
from tests.jepsen.nemesis import DECK, Nemesis

ROOT = Path(__file__).parents[2]
TOPICS = {"synced": 4, "relaxed": 2, "strict": 2}
"""Partitions of a topic with durability `sync` and of one with `async`: kill -9 may harm neither. The
third wants all its replicas in sync (`min.insync.replicas` 3): whenever one is not, its producers are
refused, and have to get over it by themselves."""

SETTINGS = {
    "durability": "sync",
    "journal.max.bytes": 16 << 20,
    "journal.file.bytes": 4 << 20,
    "disk.reserve.bytes": 4 << 20,
}
PRODUCERS: list[dict[str, Any]] = [
    {"library": "confluent", "idempotent": True, "linger_ms": 5},
    {"library": "confluent", "idempotent": True, "linger_ms": 0},
    {"library": "confluent", "idempotent": False, "patience_ms": 8000, "sends_again": True},
    {"library": "confluent", "idempotent": False, "patience_ms": 30_000},
    {"library": "kafka-python", "idempotent": True},
    {"library": "kafka-python", "idempotent": False, "patience_ms": 8000},
    {"library": "aiokafka", "idempotent": True},
]
"""Idempotent ones have more patience than any outage lasts (`PATIENCE_MS`). A library that gives a record
up begins anew in another epoch, and what it has under way in other partitions may then come twice: the
promise is the broker's and the library's together (librdkafka says so too)."""

PATIENCE_MS = 150_000
READERS = (("confluent", ""), ("confluent", RACKS[0]), ("kafka-python", ""), ("aiokafka", ""))
"""Libraries, and the rack that they say they are in: that one reads from followers too."""

FINAL_READERS = ("confluent", "kafka-python")
CLIENT_PATIENCE_S = 180.0
LEAVE_PATIENCE_S = 20.0
"""How long a client may take to write its history to the end when the run broke off."""
OUTCOME_PATIENCE_S = 60.0
SHOWN_OF_A_KIND = 10


@dataclass
class Options:
    """What a run is to be like."""

    folder: Path
    seed: int = 1
    seconds: float = 1800.0
    brokers: int = 3
    network: str = "auto"
    rate: int = 100
    """Records per second of each producer."""
    is_short: bool = False
    bootstrap: str = ""
    """Brokers that run already, of any kind: no faults then."""
    is_kafka: bool = False
    """Apache Kafka instead of our brokers."""
    faults: tuple[str, ...] = DECK
    producers: list[dict[str, Any]] = field(default_factory=lambda: list(PRODUCERS))


class Client:
    """A client process."""

    def __init__(self, role: str, name: str, folder: Path, options: dict[str, Any]) -> None:
        self.name = name
        self.history = folder / f"{name}.jsonl"
        self.errors = folder / f"{name}.err"
        all_options = {"role": role, "name": name, "history": str(self.history), **options}
        with self.errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.jepsen.client", json.dumps(all_options)],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def did(self, kind: str) -> bool:
        """Has it done this at least once?"""
        return self.history.exists() and f'"e":"{kind}"' in self.history.read_text()

    def tell(self, order: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # It has ended: `wait` says how.

    def wait(self, patience_s: float = CLIENT_PATIENCE_S) -> str:
        """Until it ends; what went wrong, or nothing."""
        try:
            code = self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return f"{self.name} did not end"
        words = self.errors.read_text()[-2000:]
        return f"{self.name} ended with {code}: {words}" if code else ""

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


class Run:
    """The parts of a run and their order."""

    def __init__(self, options: Options, say: Callable[[str], None]) -> None:
        self._options, self._say = options, say
        self._dice = random.Random(options.seed)
        self._folder = options.folder
        self._folder.mkdir(parents=True, exist_ok=True)
        self._recorder = history.Recorder(self._folder / "nemesis.jsonl")
        self._clients: list[Client] = []
        self._bootstrap = options.bootstrap
        self._cluster: ChangingCluster | None = None
        self.nemesis: Nemesis | None = None
        self.problems: list[str] = []
        """What went wrong beside the history: clients that failed, brokers that did."""
        self._is_over = False
        """All is read, and only the brokers' orderly end is left."""

    def run(self) -> checker.Report:
        """The verdict is given over what there is, however the run ended."""
        try:
            with ExitStack() as stack:
                self._live(stack)
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  Each is told below.
            when = "at the end" if self._is_over else "the run broke off"
            words = error if isinstance(error, BrokerFailedError) else _whole(error)
            self.problems.append(f"{when}: {words}")
            self._say(f"FOUND {self.problems[-1]}")
        if self.nemesis is not None:
            self.problems += self.nemesis.findings
        return self._judge()

    def _live(self, stack: ExitStack) -> None:
        stack.callback(self._kill_clients)
        if not self._options.bootstrap:
            self._start_cluster(stack)
        stack.callback(self._send_clients_away)
        self._create_topics()
        producers, readers = self._start_clients()
        self._wait_for_the_first_records(producers, readers)
        self._trouble()
        self._end(producers, readers)
        self._is_over = True

    # --- the brokers

    def _start_cluster(self, stack: ExitStack) -> None:
        network = self._options.network
        if network == "auto":
            reason = namespaces.why_not()
            network = "proxy" if reason else "namespaces"
            if reason:
                self._say(f"no network namespaces here ({reason})")
        folder, made = self._folder / "brokers", {}
        reason = disks.why_not()
        if reason:
            self._say(f"no disks are filled ({reason})")
        for node in [] if reason else range(1, self._options.brokers + 1):
            made[node] = disks.Disk(self._folder / f"disk-{node}", folder / f"broker-{node}")
        stack.callback(lambda: [disk.close() for disk in made.values()])
        kind = KafkaCluster if self._options.is_kafka else ChangingCluster
        cluster = kind(self._options.brokers, SETTINGS, data_dir=folder, network=network)
        stack.enter_context(cluster)
        self._cluster, self._bootstrap = cluster, cluster.bootstrap
        self._say(f"{self._options.brokers} brokers; between them: {cluster.network}")
        self.nemesis = Nemesis(
            cluster,
            made,
            self._dice,
            self._recorder,
            self._say,
            topic=next(iter(TOPICS)),
            deck=self._options.faults,
            hold_s=(0.5, 2.0) if self._options.is_short else (0.5, 8.0),
        )

    def _create_topics(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._bootstrap, "log_level": 0})
        replicas = -1 if self._options.bootstrap else min(3, self._options.brokers)
        is_ours = not self._options.bootstrap and not self._options.is_kafka
        wanted = [
            NewTopic(name, count, replicas, config=self._topic_config(name, is_ours))
            for name, count in TOPICS.items()
        ]
        for future in admin.create_topics(wanted, operation_timeout=30).values():
            future.result(60)

    def _topic_config(self, name: str, is_ours: bool) -> dict[str, str]:
        shared = {"segment.bytes": str(4 << 20), "retention.ms": "-1"}
        if self._options.brokers >= 3:
            shared["min.insync.replicas"] = "3" if name == "strict" else "2"
        return shared | ({"durability": "async"} if is_ours and name == "relaxed" else {})

    # --- the clients

    def _start_clients(self) -> tuple[list[Client], list[Client]]:
        shared = {"bootstrap": self._bootstrap, "topics": TOPICS, "rate": self._options.rate}
        plain = {
            "sizes": [10, 100, 2000],
            "linger_ms": 2,
            "sends_again": False,
            "patience_ms": PATIENCE_MS,
        }
        producers = [
            Client(
                "producer",
                f"p{number}",
                self._folder,
                {**shared, **plain, "seed": self._dice.random(), **one},
            )
            for number, one in enumerate(self._options.producers, 1)
        ]
        readers = [
            self._reader(f"r{number}", library, rack, is_final=False)
            for number, (library, rack) in enumerate(READERS, 1)
        ]
        self._clients += producers + readers
        return producers, readers

    def _reader(self, name: str, library: str, rack: str = "", *, is_final: bool) -> Client:
        options = {
            "bootstrap": self._bootstrap,
            "topics": TOPICS,
            "library": library,
            "rack": rack,
            "final": is_final,
            "seed": self._dice.random(),
            "goes_back_each_s": 0 if is_final else 15,
        }
        return Client("reader", name, self._folder, options)

    def _wait_for_the_first_records(self, producers: list[Client], readers: list[Client]) -> None:
        """Faults begin when all are at work."""
        deadline = time.monotonic() + OUTCOME_PATIENCE_S
        wanted = [(client, "ack") for client in producers] + [(r, "poll") for r in readers]
        pause = threading.Event()
        while waiting := [client for client, kind in wanted if not client.did(kind)]:
            ended = [client.wait() for client in waiting if client.has_ended]
            assert not ended, f"clients failed: {ended}"
            names = ", ".join(client.name for client in waiting)
            assert time.monotonic() < deadline, f"{names} did nothing"
            pause.wait(0.1)

    def _send_clients_away(self) -> None:
        """Those that run still: the run broke off. One that is killed may have sent what is not in its
        history, and the judge would not know whose it is."""
        staying = [client for client in self._clients if not client.has_ended]
        for client in staying:
            client.tell({"leave": True})
        self.problems += [
            problem for client in staying if (problem := client.wait(LEAVE_PATIENCE_S))
        ]

    def _kill_clients(self) -> None:
        for client in self._clients:
            client.kill()

    # --- trouble, and its end

    def _trouble(self) -> None:
        if self.nemesis is None:
            threading.Event().wait(self._options.seconds)
            return
        self._say(f"faults for {self._options.seconds:.0f} s, seed {self._options.seed}")
        self.nemesis.run(self._options.seconds)
        self.nemesis.heal_all()

    def _end(self, producers: list[Client], readers: list[Client]) -> None:
        for client in producers:
            client.tell({"stop": True})
        self.problems += [problem for client in producers if (problem := client.wait())]
        if self._cluster is not None:
            self._bootstrap = self._cluster.bootstrap  # All that it began with may have left.
        ends = self._ends()
        self._recorder.add("ends", ends=ends)
        final = [
            self._reader(f"f{number}", library, is_final=True)
            for number, library in enumerate(FINAL_READERS, 1)
        ]
        self._clients += final
        for client in readers + final:
            client.tell({"drain": {name: end for name, (_, end) in ends.items()}})
        self.problems += [problem for client in readers + final if (problem := client.wait())]
        self._read_replicas(ends)

    def _read_replicas(self, ends: dict[str, tuple[int, int]]) -> None:
        """Each for itself: the readers heard the leaders."""
        if self._cluster is None:
            return
        self._say("reading all replicas")
        for name, (start, end) in ends.items():
            topic, _, number = name.rpartition("/")
            seen = self._cluster.partition_view(topic, int(number))
            assert seen is not None, f"nobody answers for {name}"
            for broker in seen.replicas:
                self._read_replica(broker, topic, int(number), start, end)

    def _read_replica(self, broker: int, topic: str, partition: int, start: int, end: int) -> None:
        assert self._cluster is not None
        place = {"broker": broker, "topic": topic, "p": partition}
        address = self._cluster.member(broker).address
        self._recorder.add("replica", **place, batches=[])
        try:
            for found in replicas.batches_of(address, topic, partition, start, end):
                self._recorder.add("replica", **place, batches=found)
        except replicas.NotReadError as error:
            self.problems.append(f"the replica of broker {broker} can't be read: {error}")

    def _ends(self) -> dict[str, tuple[int, int]]:
        consumer = Consumer(
            {"bootstrap.servers": self._bootstrap, "group.id": "nobody", "log_level": 0}
        )
        try:
            return {
                f"{topic}/{p}": self._end_of(consumer, TopicPartition(topic, p))
                for topic, count in TOPICS.items()
                for p in range(count)
            }
        finally:
            consumer.close()

    def _end_of(self, consumer: Consumer, where: TopicPartition) -> tuple[int, int]:
        deadline = time.monotonic() + OUTCOME_PATIENCE_S
        while True:
            try:
                start, end = consumer.get_watermark_offsets(where, timeout=5, cached=False)
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
            else:
                return start, end

    # --- the verdict

    def _judge(self) -> checker.Report:
        self._recorder.close()
        whole = self._folder / "history.jsonl"
        named = [client.history for client in self._clients] + [self._folder / "nemesis.jsonl"]
        parts = [part for part in named if part.exists()]
        history.put_together(parts, whole)
        for part in parts:
            part.unlink()
        self._say("checking the history")
        report = checker.check(history.read(whole))
        (self._folder / "report.txt").write_text(self.summary(report))
        return report

    def summary(self, report: checker.Report) -> str:
        """What was done and what was found, for people."""
        faults = self.nemesis.counts if self.nemesis is not None else {}
        inside = self.nemesis.inside if self.nemesis is not None else {}
        lines = [
            "did    " + ", ".join(f"{name} {count}" for name, count in report.counts.items()),
            "faults " + (", ".join(f"{name} {n}" for name, n in sorted(faults.items())) or "none"),
            "inside " + (", ".join(f"{name} {n}" for name, n in sorted(inside.items())) or "none"),
            "found  " + ", ".join(f"{kind} {len(report.of(kind))}" for kind in checker.KINDS),
            *[f"  {one}" for kind in checker.KINDS for one in report.of(kind)[:SHOWN_OF_A_KIND]],
            *[f"  beside the history: {problem}" for problem in self.problems],
            f"history: {self._folder / 'history.jsonl'}",
        ]
        return "\n".join(lines)


def _whole(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))
