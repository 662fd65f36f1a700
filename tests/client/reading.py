"""Reading until a condition holds, with a deadline: what most tests of the client wait for."""

import time
from collections.abc import Callable

from dmq.client import Consumer, Message

PATIENCE_S = 30.0


def read(consumer: Consumer, count: int) -> list[Message]:
    """The next `count` messages, and never more."""
    messages: list[Message] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(messages) < count:
        assert time.monotonic() < deadline, f"{len(messages)} of {count} messages came"
        messages += consumer.poll(0.2, max_records=count - len(messages))
    return messages


def poll_until(condition: Callable[[], object], what: str, *consumers: Consumer) -> list[Message]:
    """Poll in turn until the condition holds; what came meanwhile."""
    messages: list[Message] = []
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"never: {what}"
        for consumer in consumers:
            messages += consumer.poll(0.05)
    return messages


def values(messages: list[Message]) -> list[bytes | None]:
    return [message.raw_value for message in messages]
