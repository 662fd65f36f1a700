"""The systems under test: how to start them, reach them, and make topics on them.

A target runs one process per durability (or one for both, as Kafka does). Only this module and
`bench.kafka` start brokers; every process started here is stopped here.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.frames import answers_metadata, at_offset, record_batch
from bench.loads.librdkafka import payload

REPOSITORY = Path(__file__).resolve().parents[1]
DURABILITIES = ("sync", "async")
READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0


class TargetError(Exception):
    """A system could not be started or did not do what the bench needs."""


def free_port() -> int:
    """A TCP port that nobody listens on now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class Node:
    """One broker process: started, waited for until it answers, stopped."""

    def __init__(self, command: list[str], address: str, log: Path, env: Mapping[str, str]) -> None:
        self.address = address
        self.log = log
        self._log_file: IO[bytes] = log.open("ab")
        started = time.perf_counter()
        self.process = subprocess.Popen(
            command,
            cwd=REPOSITORY,
            stdin=subprocess.DEVNULL,
            stdout=self._log_file,
            stderr=subprocess.STDOUT,
            env={**os.environ, **env},
            start_new_session=True,
        )
        self._wait_until_ready(started)
        self.ready_s = time.perf_counter() - started

    @property
    def pid(self) -> int:
        return self.process.pid

    def _wait_until_ready(self, started: float) -> None:
        while not answers_metadata(self.address):
            if self.process.poll() is not None:
                raise TargetError(f"exited with {self.process.returncode}: {self.last_words()}")
            if time.perf_counter() - started > READY_TIMEOUT_S:
                self.stop()
                raise TargetError(f"not ready after {READY_TIMEOUT_S} s: {self.last_words()}")
            time.sleep(0.002)

    def last_words(self) -> str:
        """The end of what it printed."""
        return self.log.read_text(errors="replace")[-600:].strip()

    def stop(self) -> None:
        """Ask it to stop; kill it if it does not."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._log_file.close()


@dataclass(slots=True, frozen=True)
class Topic:
    """A topic of the bench; the name tells its shape."""

    name: str
    partitions: int
    size: int
    durability: str


class Target:
    """A system under test. Subclasses say how a process of it is started."""

    name = ""
    # Whether topics must be made by an admin client, and which settings make them synced.
    has_topics = True
    sync_topic_config: Mapping[str, str] = {}

    def __init__(self, work: Path) -> None:
        self.work = work / self.name
        self.work.mkdir(parents=True, exist_ok=True)
        self._nodes: dict[str, Node] = {}
        self._admins: dict[str, AdminClient] = {}

    def start_node(self, durability: str, data: Path) -> Node:
        """Start one process on `data`, wait until it is ready."""
        raise NotImplementedError

    def node_key(self, durability: str) -> str:
        """Which process serves this durability."""
        return durability

    def node(self, durability: str) -> Node:
        """The running process for this durability, started when first asked for."""
        key = self.node_key(durability)
        if key not in self._nodes:
            data = self.work / f"data-{key}"
            data.mkdir(exist_ok=True)
            self._nodes[key] = self.start_node(durability, data)
        return self._nodes[key]

    def address(self, durability: str) -> str:
        return self.node(durability).address

    def pid(self, durability: str) -> int | None:
        """The process to measure, if it is ours."""
        return self.node(durability).pid

    def create(self, topic: Topic) -> None:
        """Make the topic and wait until every partition has a leader."""
        if not self.has_topics:
            return
        admin = self._admin(topic.durability)
        config = self.sync_topic_config if topic.durability == "sync" else {}
        new = NewTopic(topic.name, topic.partitions, 1, config=dict(config))
        admin.create_topics([new], request_timeout=60)[topic.name].result(60)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            found = admin.list_topics(topic.name, timeout=30).topics[topic.name]
            leaders = [p for p in found.partitions.values() if p.leader >= 0]
            if found.error is None and len(leaders) == topic.partitions:
                return
            time.sleep(0.05)
        raise TargetError(f"{topic.name}: not every partition has a leader after 60 s")

    def delete(self, topic: Topic) -> None:
        if self.has_topics:
            admin = self._admin(topic.durability)
            admin.delete_topics([topic.name], request_timeout=60)[topic.name].result(60)

    def prepare_records(self, _topic: Topic, _total_bytes: int) -> int | None:
        """Records made ready to be consumed without producing them, or None."""
        return None

    def _admin(self, durability: str) -> AdminClient:
        key = self.node_key(durability)
        if key not in self._admins:
            self._admins[key] = AdminClient(
                {
                    "bootstrap.servers": self.address(durability),
                    "broker.address.family": "v4",
                    "log_level": 3,  # Deleted topics are no news here.
                }
            )
        return self._admins[key]

    def stop(self) -> None:
        """Stop every process of this target."""
        self._admins.clear()
        for node in self._nodes.values():
            node.stop()
        self._nodes.clear()


def dmq_command(port: int, data: Path, durability: str) -> list[str]:
    """A broker as a service, with its defaults: as the peer runs, not as a person's toy (`dmq up`
    keeps a smaller journal). Like the peer it removes what is deleted after a second."""
    settings = (f"durability={durability}", "log.segment.delete.delay.ms=1000")
    command = [sys.executable, "-m", "dmq", "serve", "--data", str(data)]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    return command + [word for setting in settings for word in ("--set", setting)]


class Dmq(Target):
    """`python -m dmq serve` of this checkout, one process per durability."""

    name = "dmq"

    def start_node(self, durability: str, data: Path) -> Node:
        port = free_port()
        command = dmq_command(port, data, durability)
        return Node(command, f"127.0.0.1:{port}", self.work / f"log-{durability}", {})


class Bare(Target):
    """The machine's ceiling (`bench.bare`)."""

    name = "bare"
    has_topics = False

    def start_node(self, durability: str, data: Path) -> Node:
        port = free_port()
        command = [sys.executable, "-m", "bench.bare", "--port", str(port), "--data", str(data)]
        if durability == "sync":
            command.append("--sync")
        return Node(command, f"127.0.0.1:{port}", self.work / f"log-{durability}", {})

    def prepare_records(self, topic: Topic, total_bytes: int) -> int | None:
        """Write the file that the loop sends from; its layout goes beside it."""
        region = total_bytes // topic.partitions
        batch_bytes = min(900_000, max(region // 2, topic.size + 12))
        batch_records = max(1, batch_bytes // (topic.size + 12))
        batch = record_batch([payload(topic.size)] * batch_records)
        batches = max(1, region // len(batch))
        base = self.work / f"data-{self.node_key(topic.durability)}" / topic.name
        with base.with_name(base.name + ".log").open("wb") as file:
            for _ in range(topic.partitions):
                file.writelines(at_offset(batch, n * batch_records) for n in range(batches))
        layout = {
            "batch_bytes": len(batch),
            "batch_records": batch_records,
            "batches": batches,
        }
        base.with_name(base.name + ".json").write_text(json.dumps(layout))
        return batch_records * batches * topic.partitions

    def delete(self, topic: Topic) -> None:
        folder = self.work / f"data-{self.node_key(topic.durability)}"
        for path in folder.glob(f"{topic.name}.*"):
            path.unlink()


class Remote(Target):
    """Any Kafka-compatible broker that already runs (`--peer HOST:PORT`)."""

    name = "peer"
    sync_topic_config: Mapping[str, str] = {"flush.messages": "1"}

    def __init__(self, work: Path, peer: str) -> None:
        super().__init__(work)
        self.peer = peer

    def node_key(self, _durability: str) -> str:
        return "peer"

    def start_node(self, _durability: str, _data: Path) -> Node:
        raise TargetError("a remote peer is not ours to start")

    def address(self, _durability: str) -> str:
        return self.peer

    def pid(self, _durability: str) -> int | None:
        return None
