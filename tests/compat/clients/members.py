"""Members of consumer groups: four libraries' consumers behind one face, polled by the test itself.

`join(kind, …)` makes one; a kind names a library and how it shares partitions. Nothing runs beside
the test: a member moves only when it is polled (and by its library's own heartbeats), so a test
polls all members of a group until what it waits for is true. Called by the group tests.
"""

import asyncio
from dataclasses import dataclass
from typing import Any, Protocol

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, KafkaException, TopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.structs import OffsetAndMetadata

# Short, so that a parked fetch delays neither a rebalance nor the end of a member.
FETCH_WAIT_MS = 50
SESSION_MS = 10_000
HEARTBEAT_MS = 300
POLL_S = 0.05
# kafka-python gives up what a poll has begun (looking for the coordinator, joining) when its time is up,
# and waits 100 ms before it asks again: with short polls a slow broker's answers always come too late.
POLL_KAFKA_PYTHON_S = 0.5
KINDS = (
    "confluent-eager",
    "confluent-cooperative",
    "confluent-new",
    "kafka-python-eager",
    "kafka-python-cooperative",
    "aiokafka",
)
ONE_OF_EACH = ("confluent-eager", "confluent-new", "kafka-python-eager", "aiokafka")


@dataclass(frozen=True, slots=True)
class Seen:
    """A record as a member got it."""

    partition: int
    offset: int
    value: bytes | None


class Member(Protocol):
    """One consumer that subscribes to one topic."""

    def poll(self) -> list[Seen]:
        """Takes part in the group, and gives what came meanwhile."""

    def assigned(self) -> set[int]: ...
    def commit(self, partition: int, offset: int) -> None: ...
    def committed(self, partition: int) -> int | None: ...
    def seek(self, partition: int, offset: int) -> None: ...
    def close(self) -> None: ...


class ConfluentMember:
    def __init__(self, bootstrap: str, topic: str, group: str, how: str, **options: str) -> None:
        self._topic = topic
        config = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": options.pop("reset", "earliest"),
            "enable.auto.commit": False,
            "fetch.wait.max.ms": FETCH_WAIT_MS,
            "isolation.level": options.pop("isolation", "read_committed"),
        }
        session_ms = int(options.pop("session_ms", SESSION_MS))
        if how == "new":  # The broker's group.consumer.session.timeout.ms is its session.
            config["group.protocol"] = "consumer"
        else:
            strategy = "cooperative-sticky" if how == "cooperative" else "range"
            config["partition.assignment.strategy"] = strategy
            config["session.timeout.ms"] = session_ms
            config["heartbeat.interval.ms"] = HEARTBEAT_MS
        if instance := options.pop("instance", None):
            config["group.instance.id"] = instance
        assert not options
        self.revoked: set[int] = set()
        """All that was taken from it since it joined."""
        self.consumer = Consumer(config)
        self.consumer.subscribe([topic], on_revoke=self._revoke)

    def _revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.revoked |= {one.partition for one in partitions}

    def poll(self) -> list[Seen]:
        found = []
        for message in self.consumer.consume(1000, POLL_S):
            if error := message.error():
                raise KafkaException(error)
            found.append(Seen(message.partition(), message.offset(), message.value()))
        return found

    def assigned(self) -> set[int]:
        return {one.partition for one in self.consumer.assignment()}

    def commit(self, partition: int, offset: int) -> None:
        where = TopicPartition(self._topic, partition, offset)
        self.consumer.commit(offsets=[where], asynchronous=False)

    def committed(self, partition: int) -> int | None:
        (found,) = self.consumer.committed([TopicPartition(self._topic, partition)], timeout=15)
        return found.offset if found.offset >= 0 else None

    def seek(self, partition: int, offset: int) -> None:
        self.consumer.seek(TopicPartition(self._topic, partition, offset))

    def close(self) -> None:
        self.consumer.close()


class KafkaPythonMember:
    def __init__(self, bootstrap: str, topic: str, group: str, how: str, **options: str) -> None:
        self._topic = topic
        cooperative = how == "cooperative"
        strategy = CooperativeStickyAssignor if cooperative else RangePartitionAssignor
        self.consumer = KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            group_instance_id=options.pop("instance", None),
            auto_offset_reset=options.pop("reset", "earliest"),
            isolation_level=options.pop("isolation", "read_committed"),
            enable_auto_commit=False,
            partition_assignment_strategy=[strategy],
            session_timeout_ms=int(options.pop("session_ms", SESSION_MS)),
            heartbeat_interval_ms=HEARTBEAT_MS,
            fetch_max_wait_ms=FETCH_WAIT_MS,
        )
        assert not options
        # A leader that shared out before it knew the topic, and joins again when it does, forgets
        # that it has joined if its poll ends meanwhile: it neither heartbeats nor reads (3.0.12).
        assert self.consumer.partitions_for_topic(topic)

    def poll(self) -> list[Seen]:
        wait_ms = int(POLL_KAFKA_PYTHON_S * 1000)
        batches: dict[Any, list[Any]] = self.consumer.poll(timeout_ms=wait_ms)
        return _seen(batches)

    def assigned(self) -> set[int]:
        return {one.partition for one in self.consumer.assignment()}

    def commit(self, partition: int, offset: int) -> None:
        self.consumer.commit({self._where(partition): OffsetAndMetadata(offset, "", -1)})

    def committed(self, partition: int) -> int | None:
        found: int | None = self.consumer.committed(self._where(partition))
        return found

    def seek(self, partition: int, offset: int) -> None:
        self.consumer.seek(self._where(partition), offset)

    def close(self) -> None:
        self.consumer.close()

    def _where(self, partition: int) -> Any:
        return PythonPartition(self._topic, partition)


class AioMember:
    """Its coordination runs on a loop of its own, which moves while it is polled."""

    def __init__(self, bootstrap: str, topic: str, group: str, how: str, **options: str) -> None:
        assert how == ""
        self._topic = topic
        self._loop = asyncio.new_event_loop()
        self._loop.run_until_complete(self._start(bootstrap, group, **options))

    async def _start(self, bootstrap: str, group: str, **options: str) -> None:
        self.consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            group_instance_id=options.pop("instance", None),
            auto_offset_reset=options.pop("reset", "earliest"),
            isolation_level=options.pop("isolation", "read_committed"),
            enable_auto_commit=False,
            session_timeout_ms=int(options.pop("session_ms", SESSION_MS)),
            heartbeat_interval_ms=HEARTBEAT_MS,
            fetch_max_wait_ms=FETCH_WAIT_MS,
        )
        assert not options
        self.consumer.subscribe([self._topic])
        # It waits for the first assignment, for which the other members may have to be polled.
        self._starting = asyncio.ensure_future(self.consumer.start())
        await asyncio.wait([self._starting], timeout=POLL_S)

    def poll(self) -> list[Seen]:
        return self._loop.run_until_complete(self._poll())

    async def _poll(self) -> list[Seen]:
        done, _ = await asyncio.wait([self._starting], timeout=POLL_S)
        if not done:
            return []
        self._starting.result()
        return _seen(await self.consumer.getmany(timeout_ms=int(POLL_S * 1000)))

    def assigned(self) -> set[int]:
        return {one.partition for one in self.consumer.assignment()}

    def commit(self, partition: int, offset: int) -> None:
        work = self.consumer.commit({self._where(partition): offset})
        self._loop.run_until_complete(asyncio.wait_for(work, 15))

    def committed(self, partition: int) -> int | None:
        work = self.consumer.committed(self._where(partition))
        found: int | None = self._loop.run_until_complete(asyncio.wait_for(work, 15))
        return found

    def seek(self, partition: int, offset: int) -> None:
        self.consumer.seek(self._where(partition), offset)

    def close(self) -> None:
        if self._loop.is_closed():
            return
        self._loop.run_until_complete(asyncio.wait_for(self._stop(), 15))
        self._loop.close()

    async def _stop(self) -> None:
        await self._starting
        await self.consumer.stop()

    def _where(self, partition: int) -> Any:
        return AioPartition(self._topic, partition)


def _seen(batches: dict[Any, list[Any]]) -> list[Seen]:
    return [
        Seen(where.partition, record.offset, record.value)
        for where, records in batches.items()
        for record in records
    ]


def join(kind: str, bootstrap: str, topic: str, group: str, **options: str) -> Member:
    """A member of `kind`; options: reset, isolation, instance, session_ms (of classic ones)."""
    if kind == "aiokafka":
        return AioMember(bootstrap, topic, group, "", **options)
    library, _, how = kind.rpartition("-")
    made = ConfluentMember if library == "confluent" else KafkaPythonMember
    return made(bootstrap, topic, group, how, **options)
