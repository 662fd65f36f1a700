"""Readers of three libraries behind one face: assigned partitions, polled in order.

They never follow a group and never skip by themselves: an offset that is out of range is an error, not a
reason to begin elsewhere. Called by `client`.
"""

import asyncio
import contextlib
import json
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

Spot = tuple[str, int]
Records = dict[Spot, list[tuple[int, bytes]]]
_MANY = 5000
_STATISTICS_MS = 500


class Reader(Protocol):
    """One reader of a library."""

    def assign(self, offsets: Mapping[Spot, int]) -> None:
        """Also to go back: what was fetched before does not count any longer."""
        ...

    def poll(self, timeout_s: float) -> Records: ...
    def is_near(self, spot: Spot) -> bool:
        """Whether it said lately that it reads this partition from a follower, which is in its rack."""
        ...

    def close(self) -> None: ...


class Confluent:
    """With a rack, it reads from the replica there if it can (KIP-392)."""

    def __init__(self, bootstrap: str, rack: str) -> None:
        self._near: set[Spot] = set()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "client.rack": rack,
                "statistics.interval.ms": _STATISTICS_MS if rack else 0,
                "stats_cb": self._note,
                "group.id": "nobody",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "error",
                "check.crcs": True,
                "fetch.wait.max.ms": 100,
                "reconnect.backoff.max.ms": 1000,
                "socket.timeout.ms": 10_000,
                "metadata.recovery.strategy": "none",  # As in producers.
                "error_cb": lambda error: None,
                "log_level": 0,
            }
        )

    def _note(self, statistics: str) -> None:
        self._near = {
            (topic, int(partition))
            for topic, facts in json.loads(statistics)["topics"].items()
            for partition, each in facts["partitions"].items()
            if each["fetch_state"] == "active" and each["broker"] not in (-1, each["leader"])
        }

    def is_near(self, spot: Spot) -> bool:
        return spot in self._near

    def assign(self, offsets: Mapping[Spot, int]) -> None:
        self._consumer.assign([TopicPartition(*spot, at) for spot, at in offsets.items()])

    def poll(self, timeout_s: float) -> Records:
        found: Records = {}
        for message in self._consumer.consume(_MANY, timeout_s):
            error = message.error()
            if error is None:
                spot = (message.topic(), message.partition())
                found.setdefault(spot, []).append((message.offset(), message.value()))
            elif error.code() in (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET):
                raise KafkaException(error)
        return found

    def close(self) -> None:
        self._consumer.close()


class KafkaPython:
    def __init__(self, bootstrap: str, rack: str) -> None:
        from kafka import KafkaConsumer

        assert not rack, "nobody asks it yet"

        self._consumer: Any = KafkaConsumer(
            bootstrap_servers=bootstrap.split(","),
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            fetch_max_wait_ms=100,
            max_poll_records=_MANY,
            request_timeout_ms=10_000,
            reconnect_backoff_max_ms=1000,
            metadata_max_age_ms=5000,
        )

    def assign(self, offsets: Mapping[Spot, int]) -> None:
        from kafka import TopicPartition as Where

        self._consumer.assign([Where(*spot) for spot in offsets])
        for spot, offset in offsets.items():
            self._consumer.seek(Where(*spot), offset)

    def poll(self, timeout_s: float) -> Records:
        polled = self._consumer.poll(timeout_ms=int(timeout_s * 1000))
        return {
            (where.topic, where.partition): [(m.offset, m.value) for m in messages]
            for where, messages in polled.items()
        }

    def is_near(self, spot: Spot) -> bool:
        return False

    def close(self) -> None:
        self._consumer.close()


class AioKafka:
    def __init__(self, bootstrap: str, rack: str) -> None:
        assert not rack, "it knows no racks"
        self._loop = asyncio.new_event_loop()
        self._consumer = self._loop.run_until_complete(self._start(bootstrap))

    async def _start(self, bootstrap: str) -> Any:
        from aiokafka import AIOKafkaConsumer

        consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            enable_auto_commit=False,
            auto_offset_reset="none",
            fetch_max_wait_ms=100,
            request_timeout_ms=10_000,
            metadata_max_age_ms=5000,
        )
        await consumer.start()
        return consumer

    def assign(self, offsets: Mapping[Spot, int]) -> None:
        self._loop.run_until_complete(self._assign(offsets))

    async def _assign(self, offsets: Mapping[Spot, int]) -> None:
        """On the loop: aiokafka asks for it."""
        from aiokafka import TopicPartition as Where

        self._consumer.assign([Where(*spot) for spot in offsets])
        for spot, offset in offsets.items():
            self._consumer.seek(Where(*spot), offset)

    def poll(self, timeout_s: float) -> Records:
        work = self._consumer.getmany(timeout_ms=int(timeout_s * 1000), max_records=_MANY)
        polled = self._loop.run_until_complete(work)
        return {
            (where.topic, where.partition): [(m.offset, m.value) for m in messages]
            for where, messages in polled.items()
        }

    def is_near(self, spot: Spot) -> bool:
        return False

    def close(self) -> None:
        with contextlib.suppress(TimeoutError):
            self._loop.run_until_complete(asyncio.wait_for(self._consumer.stop(), 5))
        self._loop.close()


LIBRARIES: dict[str, Callable[[str, str], Reader]] = {
    "confluent": Confluent,
    "kafka-python": KafkaPython,
    "aiokafka": AioKafka,
}
