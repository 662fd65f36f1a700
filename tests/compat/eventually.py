"""Waiting on a condition with a deadline: the only kind of waiting that these tests do."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(condition: Callable[[], T], what: str, within_s: float = 60.0) -> T:
    """The first truthy answer of `condition`; fails with `what` when there is none in time."""
    deadline = time.monotonic() + within_s
    while True:
        answer = condition()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"not within {within_s} s: {what}"
        time.sleep(0.01)
