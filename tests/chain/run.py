"""One run of a chain: three brokers, a feeder, two hops of members, kills, and the verdict.

    source ──hop classic──► middle ──hop consumer──► target        and receipts of both

Each hop is a group of member processes, one with the classic protocol, one with the new one. Members and
brokers are killed with -9 and started again; now and then a member is stopped for longer than its session
lasts, and wakes up as a zombie. The next kill waits until something was committed since the last one.
Owns the folder of the run: histories, the brokers' data and logs, `history.jsonl` and `report.txt`.
"""

import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from dmq.testing import Cluster
from tests.chain.checker import Read, by_partition, check_feed, check_hop, check_receipts
from tests.jepsen import history

ROOT = Path(__file__).parents[2]
SOURCE, MIDDLE, TARGET, RECEIPTS = "source", "middle", "target", "receipts"
HOPS = {"classic": (SOURCE, MIDDLE), "consumer": (MIDDLE, TARGET)}
"""By group protocol, which is the group's name too."""
SESSION_MS = 3_000
SETTINGS = {
    "durability": "sync",
    "group.min.session.timeout.ms": 1_000,
    "group.consumer.min.session.timeout.ms": 1_000,
    "group.consumer.session.timeout.ms": SESSION_MS,
    "group.consumer.min.heartbeat.interval.ms": 500,
    "group.consumer.heartbeat.interval.ms": 1_000,
    "offsets.topic.num.partitions": 6,
    "transaction.state.log.num.partitions": 6,
}
FAULTS = ("member", "broker", "member", "broker", "both", "zombie")
BROKER_DOWN_S = (0.2, 2.5)
ZOMBIE_S = SESSION_MS / 1000 + 1.5
STALL_S = 60.0
"""Nothing is committed for so long, with all brokers up: it hangs."""
END_PATIENCE_S = 90.0
FEED_MS = 20
OUTSTANDING_MAX = 200


@dataclass
class Options:
    """What a run is to be like."""

    folder: Path
    seed: int = 1
    kills: int = 100
    partitions: int = 6
    members: int = 2
    """Of each hop."""
    faults: tuple[str, ...] = FAULTS
    pause_s: float = 1.0
    """Between kills at most, beside the wait for a commit."""


class Feeder:
    """Numbers into the source, by an idempotent producer that never gives up."""

    def __init__(self, bootstrap: str, partitions: int) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": 600_000,
                "linger.ms": 2,
                "log_level": 0,
            }
        )
        self._partitions = partitions
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._feed, daemon=True)
        self.acknowledged: dict[int, tuple[int, int]] = {}
        self.failed: list[str] = []
        self.sent = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        left = self._producer.flush(END_PATIENCE_S)
        if left:
            self.failed.append(f"{left} records of the feeder were not acknowledged")

    def _feed(self) -> None:
        while not self._stop.wait(FEED_MS / 1000):
            self._producer.poll(0)
            if self.sent - len(self.acknowledged) < OUTSTANDING_MAX:
                for _ in range(3):
                    self._send(self.sent)
                    self.sent += 1

    def _send(self, number: int) -> None:
        def told(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self.acknowledged[number] = message.partition(), message.offset()
            else:
                self.failed.append(f"the feeder's {number}: {error}")

        partition = number % self._partitions
        self._producer.produce(SOURCE, b"%d" % number, partition=partition, on_delivery=told)


class MemberProcess:
    """A member that is started again under the same name whenever it was killed."""

    def __init__(self, options: dict[str, Any], folder: Path) -> None:
        self.name: str = options["name"]
        self.history = folder / f"{self.name}.jsonl"
        self._options = {**options, "history": str(self.history)}
        self._errors = folder / f"{self.name}.err"
        self._read_to = 0
        self.counts: Counter[str] = Counter()
        self.moved = 0
        self._process = self._start()

    def _start(self) -> "subprocess.Popen[str]":
        with self._errors.open("ab") as errors:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.chain.member", json.dumps(self._options)],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )

    def look(self) -> int:
        """Read its history on; how many transactions it has committed in all."""
        if self.history.exists():
            with self.history.open("rb") as file:
                file.seek(self._read_to)
                for line in file:
                    if line.endswith(b"\n"):
                        self._read_to += len(line)
                        event = json.loads(line)
                        self.counts[event["e"]] += 1
                        self.moved += event.get("count", 0)
        return self.counts["commit"]

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def restart(self) -> None:
        """kill -9, and start."""
        self.kill()
        self._process = self._start()

    def stop(self) -> str:
        """Ask it to end; what went wrong, or nothing."""
        try:
            self._process.communicate("stop\n", timeout=END_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return f"{self.name} did not end"
        code = self._process.returncode
        return f"{self.name} ended with {code}: {self.words()}" if code else ""

    def words(self) -> str:
        return self._errors.read_text()[-2000:]


class Run:
    """The parts of a run and their order."""

    def __init__(self, options: Options, say: Callable[[str], None]) -> None:
        self._options, self._say = options, say
        self._dice = random.Random(options.seed)
        self._folder = options.folder
        self._folder.mkdir(parents=True, exist_ok=True)
        self._recorder = history.Recorder(self._folder / "nemesis.jsonl")
        self._members: list[MemberProcess] = []
        self.done: Counter[str] = Counter()
        """Kills by kind."""
        self.longest_stall_s = 0.0
        self.problems: list[str] = []
        self.counts: dict[str, int] = {}

    def run(self) -> list[str]:
        """What was found."""
        options = self._options
        with ExitStack() as stack:
            cluster = Cluster(3, SETTINGS, data_dir=self._folder / "brokers", network="direct")
            stack.enter_context(cluster)
            self._create_topics(cluster.bootstrap)
            feeder = Feeder(cluster.bootstrap, options.partitions)
            stack.callback(self._kill_members)
            self._start_members(cluster.bootstrap)
            feeder.start()
            try:
                self._await_commits(1)
                self._trouble(cluster)
            finally:
                feeder.stop()
            self.problems += feeder.failed
            self._judge(cluster.bootstrap, feeder)
        self._keep_history()
        (self._folder / "report.txt").write_text(self.summary())
        return self.problems

    # --- the world

    def _create_topics(self, bootstrap: str) -> None:
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        wanted = [
            NewTopic(name, self._options.partitions, 3, config={"min.insync.replicas": "2"})
            for name in (SOURCE, MIDDLE, TARGET, RECEIPTS)
        ]
        for future in admin.create_topics(wanted, operation_timeout=30).values():
            future.result(60)

    def _start_members(self, bootstrap: str) -> None:
        for hop, (source, target) in HOPS.items():
            for number in range(1, self._options.members + 1):
                is_static = number % 2 == 0
                options = {
                    "name": f"{hop}-{number}",
                    "hop": hop,
                    "source": source,
                    "target": target,
                    "receipts": RECEIPTS,
                    "bootstrap": bootstrap,
                    "protocol": hop,
                    "instance": f"static-{number}" if is_static else None,
                    "session_ms": SESSION_MS,
                    "transaction_ms": 10_000,
                    "linger_ms": self._dice.choice([0, 5]),
                    "batch": self._dice.choice([5, 50, 500]),
                }
                self._members.append(MemberProcess(options, self._folder))

    def _kill_members(self) -> None:
        for member in self._members:
            member.kill()

    # --- trouble

    def _trouble(self, cluster: Cluster) -> None:
        pause = threading.Event()
        for number in range(1, self._options.kills + 1):
            kind = self._dice.choice(self._options.faults)
            self._fault(kind, cluster, pause)
            self.done[kind] += 1
            if not self._await_commits(1 + self._dice.randrange(4)):
                break
            pause.wait(self._dice.random() * self._options.pause_s)
            if number % 10 == 0:
                self._say(self._progress(number))

    def _fault(self, kind: str, cluster: Cluster, pause: threading.Event) -> None:
        member = self._dice.choice(self._members)
        broker = self._dice.choice(cluster.brokers)
        self._recorder.add("fault", what=kind, member=member.name, broker=broker)
        if kind == "zombie":
            member.signal(signal.SIGSTOP)
            pause.wait(ZOMBIE_S)
            member.signal(signal.SIGCONT)
            return
        if kind in ("broker", "both"):
            cluster.kill(broker)
        if kind in ("member", "both"):
            member.restart()
        if kind in ("broker", "both"):
            pause.wait(self._dice.uniform(*BROKER_DOWN_S))
            cluster.restart(broker)
        self._recorder.add("healed", what=kind)

    def _await_commits(self, count: int) -> bool:
        """Until so many transactions more are committed; False (and a finding) if none ever is."""
        wanted = self._commits() + count
        began = time.monotonic()
        pause = threading.Event()
        while self._commits() < wanted:
            ended = [member for member in self._members if member.has_ended()]
            if ended:
                words = "; ".join(f"{member.name}: {member.words()}" for member in ended)
                self.problems.append(f"members ended by themselves: {words}")
                return False
            if time.monotonic() - began > STALL_S:
                self.problems.append(f"stuck: nothing was committed for {STALL_S:.0f} s")
                for member in self._members:
                    member.signal(signal.SIGUSR1)
                return False
            pause.wait(0.02)
        self.longest_stall_s = max(self.longest_stall_s, time.monotonic() - began)
        return True

    def _commits(self) -> int:
        return sum(member.look() for member in self._members)

    def _progress(self, number: int) -> str:
        moved = sum(member.moved for member in self._members)
        return (
            f"{number} kills, {self._commits()} transactions, {moved} records moved, "
            f"longest wait for a commit {self.longest_stall_s:.1f} s"
        )

    # --- the verdict

    def _judge(self, bootstrap: str, feeder: Feeder) -> None:
        source = read_all(bootstrap, SOURCE, self._options.partitions)
        self._await_count(bootstrap, MIDDLE, len(source))
        self._await_count(bootstrap, TARGET, len(source))
        for member in self._members:
            if problem := member.stop():
                self.problems.append(problem)
        middle = read_all(bootstrap, MIDDLE, self._options.partitions)
        target = read_all(bootstrap, TARGET, self._options.partitions)
        receipts = read_all(bootstrap, RECEIPTS, self._options.partitions)
        taken, between = by_partition(source), by_partition(middle)
        self.problems += check_feed(feeder.acknowledged, taken)
        self.problems += check_hop("classic", taken, between)
        self.problems += check_hop("consumer", between, by_partition(target))
        self.problems += check_receipts("classic", taken, receipts)
        self.problems += check_receipts("consumer", between, receipts)
        self._commits()
        self.counts = {
            "in": len(source),
            "out": len(target),
            "transactions": len(receipts),
            "aborts seen": sum(member.counts["abort"] for member in self._members),
            "new clients": sum(member.counts["reopen"] for member in self._members),
        }

    def _await_count(self, bootstrap: str, topic: str, count: int) -> None:
        """Until so many records are there to read, for as long as more of them come."""
        pause = threading.Event()
        seen, deadline = -1, 0.0
        while (now := len(read_all(bootstrap, topic, self._options.partitions))) < count:
            if now > seen:
                seen, deadline = now, time.monotonic() + END_PATIENCE_S
            elif time.monotonic() > deadline:
                self.problems.append(
                    f"stuck: {topic} has {now} of {count}, and none came in {END_PATIENCE_S:.0f} s"
                )
                return
            pause.wait(0.5)

    def _keep_history(self) -> None:
        self._recorder.close()
        parts = [member.history for member in self._members] + [self._folder / "nemesis.jsonl"]
        history.put_together(parts, self._folder / "history.jsonl")
        for part in parts:
            part.unlink()

    def summary(self) -> str:
        """What was done and what was found, for people."""
        kills = ", ".join(f"{kind} {count}" for kind, count in sorted(self.done.items()))
        counts = ", ".join(f"{name} {count}" for name, count in self.counts.items())
        lines = [
            f"{self.done.total()} kills ({kills}), seed {self._options.seed}",
            counts,
            f"longest wait for a commit {self.longest_stall_s:.1f} s",
            f"{len(self.problems)} findings; history and logs: {self._folder}",
        ]
        return "\n".join(lines + self.problems[:30]) + "\n"


def read_all(bootstrap: str, topic: str, partitions: int) -> list[Read]:
    """All that `read_committed` shows of a topic now."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    found: list[Read] = []
    lacking = set(range(partitions))
    deadline = time.monotonic() + END_PATIENCE_S
    try:
        consumer.assign([TopicPartition(topic, p, 0) for p in lacking])
        while lacking:
            assert time.monotonic() < deadline, f"{topic}: partitions {lacking} can't be read"
            for message in consumer.consume(1000, timeout=0.5):
                error = message.error()
                if error is None:
                    found.append(Read(message.partition(), message.offset(), message.value()))
                elif error.code() == KafkaError._PARTITION_EOF:
                    lacking.discard(message.partition())
    finally:
        consumer.close()
    return found
