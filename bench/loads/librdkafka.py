"""The one client configuration for every system under test, and payloads.

librdkafka's defaults where nothing is said here; what is set is set for all systems alike.
"""

import random
import sys
from typing import Any

from confluent_kafka import KafkaError, Message

# Held in the client's queue at most: enough for full batches on every partition, small enough to
# stay in memory that is warm.
QUEUE_BYTES = 96 << 20


def producer_config(bootstrap: str, extra: dict[str, Any]) -> dict[str, Any]:
    """Batches up to 1 MB, 5 ms of linger, acknowledged by all."""
    return {
        "bootstrap.servers": bootstrap,
        "acks": "all",
        "linger.ms": 5,
        "batch.size": 1_000_000,
        "queue.buffering.max.messages": 2_000_000,
        "queue.buffering.max.kbytes": 1 << 20,
        "delivery.report.only.error": True,
        "broker.address.family": "v4",
        **extra,
    }


def consumer_config(bootstrap: str, extra: dict[str, Any]) -> dict[str, Any]:
    """Assigned partitions, no group traffic, librdkafka's own fetch sizes.

    With its default of a second, `fetch.queue.backoff.ms` makes the client pause whenever it has
    100,000 records in hand, and the figure would be the pause's.
    """
    return {
        "bootstrap.servers": bootstrap,
        "group.id": "bench",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "earliest",
        "fetch.queue.backoff.ms": 2,
        "broker.address.family": "v4",
        **extra,
    }


def payload(size: int) -> bytes:
    """The same pseudo-random bytes each time: not compressible, not secret."""
    return random.Random(size).randbytes(size)


class Failures:
    """Counts deliveries that failed; the first one is told."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self.count += 1
            if self.count == 1:
                print(f"delivery failed: {error}", file=sys.stderr)
