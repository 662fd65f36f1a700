"""Waiting on conditions inside a loop."""

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], object], what: str) -> None:
    """Wait for a condition; the test's time limit is the only deadline."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.002)
    assert condition(), what


async def watch(seconds: float) -> None:
    """Let time pass, to see what does not happen meanwhile: a condition can't tell that."""
    await asyncio.sleep(seconds)
