"""What is measured, in which order: the sections of the bench.

Each section takes the targets in turns for a number of rounds and adds rows; the report reads
them. Topics are made for one run and deleted after it; dirty pages are written back in between.
"""

import itertools
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.machine import memory_dict, settle, wait_until_quiet
from bench.options import Options
from bench.runner import Row, Rows, run_load
from bench.targets import Target, TargetError, Topic

_numbers = itertools.count(1)
# librdkafka with one record in each request.
ALONE: dict[str, Any] = {
    "config": {"linger.ms": 0, "batch.num.messages": 1},
    "queue_records": 2000,
}


@dataclass(slots=True)
class Suite:
    """The state of one bench run."""

    options: Options
    targets: list[Target]
    rows: Rows
    work: Path
    say: Callable[[str], None]

    def run(self) -> None:
        """All chosen sections, in the order in which they disturb each other least."""
        sections: dict[Callable[[], None], set[str]] = {
            self.start: {"start"},
            self.latency: {"latency"},
            self.single: {"single"},
            self.throughput: {"produce", "consume"},
            self.memory: {"memory"},
        }
        if self.options.warm_seconds:
            self.warm_up()
        for section, names in sections.items():
            if names & set(self.options.sections):
                self.say(f"[bold]{section.__name__}[/bold]")
                section()

    # --- sections

    def start(self) -> None:
        """Time to ready on a new folder and after a clean stop, idle memory."""
        for round_number, target in self._turns():
            if target.pid("sync") is None:
                continue
            data = target.work / f"start-{next(_numbers)}"
            data.mkdir()
            self._start_once(target, data, "ready-new", round_number)
            self._start_once(target, data, "ready-again", round_number)
            shutil.rmtree(data)

    def _start_once(self, target: Target, data: Path, label: str, round_number: int) -> None:
        row = self.rows.add(Row(label, target.name, "sync", round=round_number))
        try:
            node = target.start_node("sync", data)
        except TargetError as error:
            row.error = str(error)
            return
        time.sleep(self.options.idle_seconds)  # Idle is a length of time, not an event.
        row.figures = {"ready_s": node.ready_s, **memory_dict(node.pid)}
        node.stop()
        self._tell(row, f"ready {node.ready_s:.2f} s, RSS {row.figures['rss_mb']:.0f} MB")

    def latency(self) -> None:
        """Open-loop produce and end-to-end latency at fixed rates."""
        shapes = itertools.product(
            self.options.durabilities, self.options.rates, self.options.latency_partitions
        )
        for durability, rate, partitions in shapes:
            for round_number, target in self._turns():
                with self._topic(target, durability, 1024, partitions) as topic:
                    row = run_load(
                        "latency",
                        target,
                        topic,
                        f"latency-{rate}",
                        rate=rate,
                        seconds=self.options.latency_seconds,
                        warm_seconds=2,
                        end_to_end=target.has_topics,
                    )
                    self._add(row, round_number, "p50_ms", "p99_ms", "p999_ms")

    def single(self) -> None:
        """Requests with one record each: pipelined by a raw client, and by librdkafka."""
        for durability in self.options.durabilities:
            for round_number, target in self._turns():
                for connections in self.options.connections:
                    with self._topic(target, durability, 100, 1) as topic:
                        row = run_load(
                            "single",
                            target,
                            topic,
                            f"single-{connections}",
                            connections=connections,
                            window=512 // connections,
                            seconds=self.options.seconds,
                        )
                        self._add(row, round_number, "requests_per_s")
                with self._topic(target, durability, 100, 1) as topic:
                    row = run_load(
                        "produce",
                        target,
                        topic,
                        "single-librdkafka",
                        seconds=self.options.seconds,
                        **ALONE,
                    )
                    self._add(row, round_number, "msg_per_s")

    def throughput(self) -> None:
        """Produce and consume, by librdkafka and by raw clients, over sizes and partitions."""
        shapes = itertools.product(
            self.options.durabilities, self.options.sizes, self.options.partitions
        )
        for durability, size, partitions in shapes:
            for round_number, target in self._turns():
                with self._topic(target, durability, size, partitions) as topic:
                    self._produce_and_consume(target, topic, round_number)
                if "raw" in self.options.clients and "produce" in self.options.sections:
                    with self._topic(target, durability, size, partitions) as topic:
                        row = run_load(
                            "raw_produce",
                            target,
                            topic,
                            "raw-produce",
                            seconds=self.options.seconds,
                            touch_gb=self.options.touch_gb,
                        )
                        self._add(row, round_number, "mb_per_s", "msg_per_s")

    def _produce_and_consume(self, target: Target, topic: Topic, round_number: int) -> None:
        records = 0
        clients = self.options.clients
        if "produce" in self.options.sections and "librdkafka" in clients:
            seconds, touch_gb = self.options.seconds, self.options.touch_gb
            row = run_load("produce", target, topic, "produce", seconds=seconds, touch_gb=touch_gb)
            self._add(row, round_number, "mb_per_s", "msg_per_s")
            records = int(row.figures.get("records", 0)) + topic.partitions
            settle()
            if row.error:
                return
        if "consume" not in self.options.sections:
            return
        records = self._fill(target, topic, records)
        for load, client in (("consume", "librdkafka"), ("raw_consume", "raw")):
            if client in clients:
                label = load.replace("_", "-")
                row = run_load(load, target, topic, label, records=records, seconds=60)
                self._add(row, round_number, "mb_per_s", "msg_per_s")

    def _fill(self, target: Target, topic: Topic, records: int) -> int:
        """Make sure there is enough to read for a stable figure; how many records there are."""
        wanted = self.options.consume_bytes
        prepared = target.prepare_records(topic, wanted)
        if prepared is not None:
            return prepared
        missing = wanted - records * topic.size
        if missing > 0:
            more = run_load("produce", target, topic, "fill", bytes=missing)
            records += int(more.figures.get("records", 0)) + topic.partitions
            settle()
        return records

    def memory(self) -> None:
        """The broker's memory while a long run goes through it."""
        for target in self.targets:
            pid = target.pid("sync")
            if target.name == "dmq" and pid is not None:
                with self._topic(target, "sync", 1024, 16) as topic:
                    self._long_run(target, topic, pid)

    def _long_run(self, target: Target, topic: Topic, pid: int) -> None:
        total = self.options.long_bytes
        free = shutil.disk_usage(self.work).free
        row = Row("memory", target.name, topic.durability, topic.size, topic.partitions)
        if free < 2 * total:
            row.error = (
                f"{total / 1e9:.0f} GB need twice that on the disk, {free / 1e9:.0f} GB free"
            )
            self.rows.add(row)
            return
        step = max(total // 40, 1)
        samples = [{"gb": 0.0, **memory_dict(pid)}]
        seconds = 0.0
        for number in range(1, total // step + 1):
            part = run_load("produce", target, topic, "part", bytes=step)
            if part.error:
                row.error = part.error
                break
            seconds += part.figures["seconds"]
            samples.append({"gb": number * step / 1e9, **memory_dict(pid)})
        row.figures = {"samples": samples, "seconds": seconds, "total_gb": total / 1e9}
        self.rows.add(row)
        last = samples[-1]
        self._tell(row, f"{last['gb']:.1f} GB: RSS {samples[0]['rss_mb']} → {last['rss_mb']} MB")

    def warm_up(self) -> None:
        """Every target once, unrecorded: memory touched, JIT compiled, files created."""
        self.say("[bold]warm-up[/bold]")
        for target, durability in itertools.product(self.targets, self.options.durabilities):
            with self._topic(target, durability, 1024, 16) as topic:
                seconds = self.options.warm_seconds
                row = run_load("produce", target, topic, "warm", seconds=seconds)
                run_load("produce", target, topic, "warm", seconds=seconds, **ALONE)
                if not row.error and target.has_topics:
                    records = row.figures["records"]
                    run_load("consume", target, topic, "warm", records=records, seconds=20)
                self._tell(row, row.error or f"{row.figures['mb_per_s']:.0f} MB/s")

    # --- small parts

    def _turns(self) -> Iterator[tuple[int, Target]]:
        """A B C, then C B A, …: nobody is always first after the pause."""
        for round_number in range(self.options.rounds):
            order = self.targets if round_number % 2 == 0 else self.targets[::-1]
            for target in order:
                yield round_number, target

    def _topic(self, target: Target, durability: str, size: int, partitions: int) -> "TopicFor":
        name = f"bench-{next(_numbers)}-p{partitions}"
        return TopicFor(target, Topic(name, partitions, size, durability))

    def _add(self, row: Row, round_number: int, *names: str) -> None:
        row.round = round_number
        self.rows.add(row)
        shown = ", ".join(f"{row.figures[name]:,.1f} {name}" for name in names if not row.error)
        cores = f"client {row.figures.get('client_cores', 0):.2f} cores"
        if "broker_cores" in row.figures:
            cores += f", broker {row.figures['broker_cores']:.2f}"
        self._tell(row, row.error or f"{shown} ({cores})")

    def _tell(self, row: Row, text: str) -> None:
        shape = f"{row.size} B x {row.partitions}" if row.size else ""
        mark = "[red]" if row.error else ""
        self.say(f"  {row.target:6} {row.load:18} {row.durability:6} {shape:14} {mark}{text}")


class TopicFor:
    """A topic that lives as long as one run, and a quiet disk after it."""

    def __init__(self, target: Target, topic: Topic) -> None:
        self.target = target
        self.topic = topic

    def __enter__(self) -> Topic:
        self.target.create(self.topic)
        pid = self.target.pid(self.topic.durability)
        if pid is not None:
            wait_until_quiet(pid)
        return self.topic

    def __exit__(self, *_: object) -> None:
        self.target.delete(self.topic)
        settle()
