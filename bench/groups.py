"""`python -m bench.groups`: how fast coordinators are with thousands of members and groups, on 3 brokers.

    join        1,000 members of one group come at once: until each has its share, and none too much
    leave       one of three members leaves in order: until the others have its partitions
    death       one of three members falls silent: the same, beyond its session
    others      one of three librdkafka members leaves: the longest that the others read nothing of what
                they keep; and the longest in the two seconds before, for comparison
    failover    10,000 groups with offsets, a broker is killed with -9: until all offsets are served
    cold start  all brokers are killed and started again: the same, from the start of the processes

Members are bare connections in this process (bench/group_members.py), in both protocols. Figures, never a
pass or fail; BARS says what we aim at.
"""

import argparse
import asyncio
import contextlib
import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.group_members import KINDS, Address, Member, Wire, coordinators
from dmq.testing import Cluster
from dmq.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from dmq.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

SESSIONS_MS = {"classic": 6_000, "consumer": 10_000}
SETTINGS = {
    "durability": "sync",
    "max.connections": 20_000,
    "max.connections.per.ip": 20_000,
    "group.consumer.session.timeout.ms": SESSIONS_MS["consumer"],
    "group.consumer.min.session.timeout.ms": SESSIONS_MS["consumer"],
    "group.consumer.min.heartbeat.interval.ms": 200,
}
HEARTBEAT_S = 0.2
"""Of the few members in `leave` and `death`: by their heartbeats the others hear that one is gone."""
BARS = {
    "join": 10.0,
    "leave": 0.5,
    "death": 1.0,
    "failover": 5.0,
    "cold start": 5.0,
}
PATIENCE_S = 120.0
BATCH = 500
WIRES = 50


class Bench:
    """A cluster, and the parts that are measured on it."""

    def __init__(self, cluster: Cluster, members: int, groups: int) -> None:
        self._cluster = cluster
        self.members = members
        self._groups = [f"bench-{number}" for number in range(groups)]
        self.figures: dict[str, float] = {}

    @property
    def _addresses(self) -> list[Address]:
        return [self._cluster.member(node).address for node in self._cluster.running]

    def note(self, name: str, seconds: float) -> None:
        bar = BARS.get(name.partition(",")[0])
        aim = "" if bar is None else f"   (aim: < {bar:g} s)"
        print(f"{name:32} {seconds:8.2f} s{aim}", flush=True)
        self.figures[name] = seconds

    def create(self, topic: str, partitions: int) -> None:
        admin = AdminClient({"bootstrap.servers": self._cluster.bootstrap, "log_level": 0})
        created = admin.create_topics([NewTopic(topic, partitions, 3)], operation_timeout=60)
        created[topic].result(90)

    # --- members

    async def _gather(self, kind: str, group: str, topic: str, partitions: int, **how: Any) -> Any:
        """As many members as `how` says, and their tasks."""
        count = how.pop("count")
        wire = await Wire.open(self._addresses[0])
        found: dict[str, Address] = {}
        while not found:
            found = await coordinators(wire, [group])
            await asyncio.sleep(0.05)
        wire.close()
        wires: list[Wire] = []
        for _ in range(0, count, 50):
            some = min(50, count - len(wires))
            wires += await asyncio.gather(*(Wire.open(found[group]) for _ in range(some)))
        return [KINDS[kind](group, topic, partitions, wire, **how) for wire in wires]

    async def join(self, kind: str) -> None:
        count = self.members
        members = await self._gather(kind, f"join-{kind}", "wide", count, count=count)
        began = time.monotonic()
        tasks = [asyncio.ensure_future(member.run()) for member in members]
        try:
            await _until(lambda: is_shared(members, count), tasks)
            self.note(f"join, {kind}, {count} members", time.monotonic() - began)
        finally:
            await _end(members, tasks)

    async def lose(self, kind: str, *, in_order: bool) -> None:
        name = "leave" if in_order else "death"
        how = {"session_ms": SESSIONS_MS[kind], "heartbeat_s": HEARTBEAT_S, "count": 3}
        members = await self._gather(kind, f"{name}-{kind}", "few", 30, **how)
        tasks = [asyncio.ensure_future(member.run()) for member in members]
        try:
            await _until(lambda: is_shared(members, 30), tasks)
            await asyncio.sleep(2 * HEARTBEAT_S)
            tasks.pop().cancel()
            gone = members.pop()
            began = time.monotonic()
            if in_order:
                await gone.leave()
            await _until(lambda: is_shared(members, 30), tasks)
            spent = time.monotonic() - began
            self.note(f"{name}, {kind}", spent if in_order else spent - SESSIONS_MS[kind] / 1000)
            gone.wire.close()
        finally:
            await _end(members, tasks)

    # --- many groups

    async def fill(self) -> None:
        """Offsets of all groups."""
        began = time.monotonic()
        where = await self._where()
        topics = [OffsetCommitRequestTopic("few", partitions=[_offset(p) for p in range(3)])]

        async def commit(address: Address, groups: list[str]) -> None:
            wire = await Wire.open(address)
            for group in groups:
                answer = await wire.ask(8, OffsetCommitRequest(group, -1, "", topics=topics))
                assert all(p.error_code == 0 for t in answer.topics for p in t.partitions), answer
            wire.close()

        for address in set(where.values()):
            groups = [group for group, at in where.items() if at == address]
            await asyncio.gather(*(commit(address, groups[at::WIRES]) for at in range(WIRES)))
        self.note(f"{len(self._groups)} groups commit", time.monotonic() - began)

    async def _where(self) -> dict[str, Address]:
        """The coordinator of every group; waits until there is one for each."""
        found: dict[str, Address] = {}
        deadline = time.monotonic() + PATIENCE_S
        while len(found) < len(self._groups):
            assert time.monotonic() < deadline, f"only {len(found)} groups have a coordinator"
            lacking = [group for group in self._groups if group not in found]
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, IndexError):
                wire = await Wire.open(self._addresses[0])
                for at in range(0, len(lacking), BATCH):
                    found |= await coordinators(wire, lacking[at : at + BATCH])
                wire.close()
            alive = set(self._addresses)
            found = {group: address for group, address in found.items() if address in alive}
            await asyncio.sleep(0.02)
        return found

    async def served(self) -> None:
        """Until the offsets of every group were fetched."""
        lacking = dict.fromkeys(self._groups)
        deadline = time.monotonic() + PATIENCE_S
        while lacking:
            assert time.monotonic() < deadline, f"{len(lacking)} groups are not served"
            where = await self._where()
            by_address: dict[Address, list[str]] = {}
            for group in lacking:
                by_address.setdefault(where[group], []).append(group)
            for address, groups in by_address.items():
                for group in await _fetched(address, groups):
                    del lacking[group]
            await asyncio.sleep(0.02)

    def failover(self) -> None:
        victim = self._cluster.running[0]
        began = time.monotonic()
        self._cluster.kill(victim)
        asyncio.run(self.served())
        self.note("failover", time.monotonic() - began)
        self._cluster.restart(victim)
        self._cluster.wait_ready(in_sync=True)

    def cold_start(self) -> None:
        nodes = self._cluster.brokers
        for node in nodes:
            self._cluster.kill(node)
        began = time.monotonic()
        for node in nodes:
            self._cluster.restart(node, wait=False)
        asyncio.run(self.served())
        self.note("cold start", time.monotonic() - began)
        self._cluster.wait_ready()

    # --- the others

    def others(self, kind: str) -> None:
        """One of three leaves while the others read: the longest gap in what they keep."""
        feeding = Feeding(self._cluster.bootstrap, "fed", 12)
        readers = [Reading(self._cluster.bootstrap, kind, f"others-{kind}", "fed") for _ in "abc"]
        try:
            wait_for(lambda: all(len(reader.owned) == 4 for reader in readers))
            stays, goes = readers[:2], readers[2]
            kept = [set(reader.owned) for reader in stays]
            for moment in ("before", "while it leaves"):
                for reader in stays:
                    reader.watch()
                if moment == "before":
                    time.sleep(2.0)
                else:
                    goes.stop()
                    wait_for(lambda: all(len(reader.owned) == 6 for reader in stays))
                    time.sleep(1.0)
                gaps = [
                    max(reader.gap(partition) for partition in mine)
                    for reader, mine in zip(stays, kept, strict=True)
                ]
                self.note(f"others, {kind}, {moment}", max(gaps))
        finally:
            for reader in readers:
                reader.stop()
            feeding.stop()


class Feeding:
    """A record into each partition every 20 ms."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0})
        self._topic, self._partitions = topic, partitions
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.02):
            for partition in range(self._partitions):
                self._producer.produce(self._topic, b"x", partition=partition)
            self._producer.poll(0)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self._producer.flush(10)


class Reading:
    """A librdkafka member, and when it read what."""

    def __init__(self, bootstrap: str, kind: str, group: str, topic: str) -> None:
        how = {"partition.assignment.strategy": "cooperative-sticky"} if kind == "classic" else {}
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "group.protocol": kind,
                "auto.offset.reset": "latest",
                "log_level": 0,
                **how,
            }
        )
        self._consumer.subscribe([topic])
        self.owned: set[int] = set()
        self._last: dict[int, float] = {}
        self._gaps: dict[int, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            messages = self._consumer.consume(1000, 0.02)
            now = time.monotonic()
            self.owned = {each.partition for each in self._consumer.assignment()}
            for message in messages:
                if message.error() is None:
                    number = message.partition()
                    gap = now - self._last.get(number, now)
                    self._gaps[number] = max(gap, self._gaps.get(number, 0.0))
                    self._last[number] = now
        self._consumer.close()

    def watch(self) -> None:
        self._gaps = {}

    def gap(self, partition: int) -> float:
        return max(
            self._gaps.get(partition, 0.0), time.monotonic() - self._last.get(partition, 0.0)
        )

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def is_shared(members: list[Member], partitions: int) -> bool:
    """Whether all partitions are theirs, each one's, nobody has too many and nobody waits."""
    fair = -(-partitions // len(members))
    if not all(member.is_settled and len(member.share) <= fair for member in members):
        return False
    return sorted(p for member in members for p in member.share) == list(range(partitions))


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "the members do not settle"
        time.sleep(0.01)


async def _until(condition: Callable[[], bool], tasks: "list[asyncio.Future[None]]") -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        for task in tasks:
            if task.done():
                task.result()
        assert time.monotonic() < deadline, "the members do not settle"
        await asyncio.sleep(0.005)


async def _end(members: list[Member], tasks: "list[asyncio.Future[None]]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for member in members:
        member.wire.close()


async def _fetched(address: Address, groups: list[str]) -> list[str]:
    """Those whose offsets this broker serves."""
    done: list[str] = []
    topics = [OffsetFetchRequestTopics("few", partition_indexes=[0, 1, 2])]
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        wire = await Wire.open(address)
        for at in range(0, len(groups), BATCH):
            asked = [
                OffsetFetchRequestGroup(group, topics=topics) for group in groups[at : at + BATCH]
            ]
            answer = await wire.ask(9, OffsetFetchRequest(groups=asked))
            for group in answer.groups:
                if group.error_code == 0:
                    offsets = [p.committed_offset for t in group.topics for p in t.partitions]
                    assert offsets == [0, 100, 200], f"{group.group_id} has {offsets}"
                    done.append(group.group_id)
        wire.close()
    return done


def _offset(partition: int) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(partition, 100 * partition, committed_metadata="")


def run(bench: Bench, parts: list[str]) -> None:
    bench.create("few", 30)
    for kind in KINDS:
        if "join" in parts:
            if kind == "classic":
                bench.create("wide", bench.members)
            asyncio.run(bench.join(kind))
        if "leave" in parts:
            asyncio.run(bench.lose(kind, in_order=True))
        if "death" in parts:
            asyncio.run(bench.lose(kind, in_order=False))
        if "others" in parts:
            if kind == "classic":
                bench.create("fed", 12)
            bench.others(kind)
    if "failover" in parts:
        asyncio.run(bench.fill())
        bench.failover()
        bench.cold_start()


PARTS = ("join", "leave", "death", "others", "failover")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.groups", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--members", type=int, default=1000)
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--json", help="write the figures here")
    given = parser.parse_args()
    with Cluster(3, SETTINGS, network="direct") as cluster:
        bench = Bench(cluster, given.members, given.groups)
        run(bench, given.parts.split(","))
    if given.json:
        Path(given.json).write_text(json.dumps(bench.figures, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
