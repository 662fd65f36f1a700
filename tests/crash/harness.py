"""Kills a broker with -9 under load, over and over, and looks for every acknowledged record.

Each round: start, load it from several producers (one try per record, so that the client itself makes no
duplicates), kill it at a random moment, start again, read what is new in every partition and compare with
what was acknowledged. At the end everything is read once more from the beginning.

Findings: lost (acknowledged, not there), moved (there, at another offset), doubled (a record twice),
foreign (a record that nobody sent), reordered (one producer's records out of order in a partition).
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from dmq.testing import Broker

TOPICS = {
    "one": (1, {}),
    "many": (16, {}),
    "small-segments": (3, {"segment.bytes": str(1 << 20)}),
    "async": (3, {"durability": "async"}),
}
SETTINGS = {
    "durability": "sync",
    "journal.max.bytes": 4 << 20,
    "journal.file.bytes": 1 << 20,
    "disk.reserve.bytes": 0,
}
"""A small journal, so that files are flushed, freed and used again within every few rounds."""
PATIENCE_S = 30.0

Spot = tuple[str, int]


@dataclass
class Findings:
    """What went wrong, in sentences; and the figures of the run."""

    problems: list[str] = field(default_factory=list)
    kills: int = 0
    acknowledged: int = 0
    read: int = 0
    ready_s: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        worst = max(self.ready_s, default=0.0)
        return (
            f"{self.kills} kills, {self.acknowledged} records acknowledged, {self.read} read, "
            f"slowest start {worst:.2f} s, {len(self.problems)} findings"
        )


class Ledger:
    """Which records were sent, which were acknowledged where, and which were read."""

    def __init__(self) -> None:
        self._acknowledged: dict[Spot, dict[int, bytes]] = {}
        self._sent: dict[bytes, None] = {}
        self._read: dict[bytes, tuple[str, int, int]] = {}
        self.next_offset: dict[Spot, int] = {}
        self._last_number: dict[tuple[Spot, bytes], int] = {}
        self.acknowledged_count = 0

    def sent(self, name: bytes) -> None:
        self._sent[name] = None

    def acknowledged(self, message: Message) -> None:
        spot = (message.topic(), message.partition())
        self._acknowledged.setdefault(spot, {})[message.offset()] = name_of(message.value())
        self.acknowledged_count += 1

    def forget_reads(self) -> None:
        """Before everything is read from the beginning."""
        self._read.clear()
        self.next_offset.clear()
        self._last_number.clear()

    def read(self, message: Message) -> list[str]:
        """Take note of a record; what is wrong with it."""
        spot, offset = (message.topic(), message.partition()), message.offset()
        name = name_of(message.value())
        where = f"{spot[0]}-{spot[1]}@{offset}"
        problems = []
        if name not in self._sent:
            problems.append(f"foreign: {where} holds {name!r}, which nobody sent")
        if name in self._read:
            problems.append(f"doubled: {name!r} is at {where} and at {self._read[name]}")
        expected = self._acknowledged.get(spot, {}).get(offset)
        if expected is not None and expected != name:
            problems.append(f"moved: {where} holds {name!r}, acknowledged was {expected!r}")
        writer, number = name.rsplit(b"-", 1)
        if int(number) <= self._last_number.get((spot, writer), -1):
            problems.append(f"reordered: {name!r} at {where} comes after a later one")
        self._last_number[spot, writer] = int(number)
        self._read[name] = (*spot, offset)
        self.next_offset[spot] = offset + 1
        return problems

    def missing(self) -> list[str]:
        """Acknowledged records below the point that was read, and not among them."""
        problems = []
        for spot, records in self._acknowledged.items():
            end = self.next_offset.get(spot, 0)
            for offset, name in records.items():
                if offset >= end or name not in self._read:
                    problems.append(
                        f"lost: {name!r} was acknowledged at {spot[0]}-{spot[1]}@{offset}"
                    )
        return problems


def name_of(value: bytes) -> bytes:
    return value.partition(b" ")[0]


class Load:
    """A few producers for one round."""

    def __init__(
        self, servers: str, ledger: Ledger, dice: random.Random, round_number: int
    ) -> None:
        self._ledger = ledger
        self._dice = dice
        self._producers = [
            Producer(
                {
                    "bootstrap.servers": servers,
                    "message.send.max.retries": 0,
                    "enable.idempotence": False,
                    "acks": "all",
                    "linger.ms": dice.choice([0, 1, 5]),
                    "compression.type": dice.choice(["none", "lz4", "zstd", "gzip", "snappy"]),
                    "batch.num.messages": dice.choice([1, 100, 10_000]),
                    "max.in.flight": 5,
                    "error_cb": lambda error: None,
                    "logger": None,
                    "log_level": 0,
                }
            )
            for _ in range(3)
        ]
        self._names = [b"r%d.p%d" % (round_number, n) for n in range(3)]
        self._number = 0

    def run(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for producer, writer in zip(self._producers, self._names, strict=True):
                self._send_some(producer, writer)
                producer.poll(0)

    def _send_some(self, producer: Producer, writer: bytes) -> None:
        topic = self._dice.choice(list(TOPICS))
        for _ in range(self._dice.choice([1, 10, 100])):
            self._number += 1
            name = b"%s-%d" % (writer, self._number)
            self._ledger.sent(name)
            size = self._dice.choice([0, 10, 1000, 20_000])
            partition = self._dice.randrange(TOPICS[topic][0])
            try:
                value = name + b" " + bytes(size)
                producer.produce(topic, value, partition=partition, on_delivery=self._on_delivery)
            except BufferError:
                producer.poll(0.01)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._ledger.acknowledged(message)

    def settle(self) -> None:
        """The broker is dead: hear what was acknowledged before, give up the rest."""
        for producer in self._producers:
            producer.purge()
            producer.flush(PATIENCE_S)


def read_new(servers: str, ledger: Ledger, findings: Findings) -> None:
    """Read every partition from where the ledger stands to its end."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "check.crcs": True,
            "fetch.max.bytes": 64 << 20,
            "log_level": 0,
        }
    )
    try:
        spots = [(topic, p) for topic, (count, _) in TOPICS.items() for p in range(count)]
        consumer.assign([TopicPartition(*spot, ledger.next_offset.get(spot, 0)) for spot in spots])
        at_end: set[Spot] = set()
        deadline = time.monotonic() + PATIENCE_S
        while len(at_end) < len(spots):
            assert time.monotonic() < deadline, f"not all partitions could be read: {at_end}"
            for message in consumer.consume(10_000, timeout=0.5):
                error = message.error()
                if error is None:
                    findings.read += 1
                    findings.problems += ledger.read(message)
                    deadline = time.monotonic() + PATIENCE_S
                elif error.code() == KafkaError._PARTITION_EOF:
                    at_end.add((message.topic(), message.partition()))
                elif error.code() == KafkaError.OFFSET_OUT_OF_RANGE or error.fatal():
                    raise KafkaException(error)
    finally:
        consumer.close()


def create_topics(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    wanted = [NewTopic(name, count, 1, config=config) for name, (count, config) in TOPICS.items()]
    for future in admin.create_topics(wanted).values():
        future.result()


def run(
    kills: int, seed: int, data_dir: Path, say: Callable[[str], None], *, read_every: int = 1
) -> Findings:
    """Kill `kills` times; what was found."""
    dice = random.Random(seed)
    ledger, findings = Ledger(), Findings()
    broker = Broker(SETTINGS, data_dir=data_dir, in_process=False)
    broker.start()
    create_topics(broker.bootstrap_servers)
    try:
        for round_number in range(1, kills + 1):
            load = Load(broker.bootstrap_servers, ledger, dice, round_number)
            load.run(dice.choice([0.02, 0.1, 0.3]) * (0.5 + dice.random()))
            broker.kill()
            load.settle()
            began = time.monotonic()
            broker.start()
            findings.ready_s.append(time.monotonic() - began)
            findings.kills = round_number
            findings.acknowledged = ledger.acknowledged_count
            if round_number % read_every == 0:
                read_new(broker.bootstrap_servers, ledger, findings)
                findings.problems += ledger.missing()
            if findings.problems:
                break
            if round_number % 20 == 0:
                say(str(findings))
        ledger.forget_reads()
        read_new(broker.bootstrap_servers, ledger, findings)
        findings.problems += ledger.missing()
    finally:
        broker.stop()
    return findings
