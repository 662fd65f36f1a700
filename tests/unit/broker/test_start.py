"""What a start waits for, and what ends the wait."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dmq.broker.runtime import Runtime
from dmq.errors import ErrorCode, KafkaError


def starting(**more: Any) -> Any:
    """As much of a runtime as waits."""
    known: dict[str, Any] = {
        "_loop": asyncio.get_running_loop(),
        "failure": None,
        "stopped": asyncio.Event(),
        "farewell": SimpleNamespace(tick=lambda: None),
    }
    return cast("Any", SimpleNamespace(**{**known, **more}))


def test_a_broker_that_is_taken_out_while_it_starts_says_so() -> None:
    """Nobody sends it what it waits for: it has to ask."""

    async def run() -> None:
        stopped = asyncio.Event()
        broker = starting(stopped=stopped, farewell=SimpleNamespace(tick=stopped.set))
        await Runtime._until(broker, lambda: False, "reading the cluster's metadata")

    with pytest.raises(KafkaError, match="was taken out of its cluster") as raised:
        asyncio.run(run())
    assert raised.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_a_failure_ends_the_wait() -> None:
    async def run() -> None:
        await Runtime._until(starting(failure=OSError("the disk")), lambda: False, "anything")

    with pytest.raises(OSError, match="the disk"):
        asyncio.run(run())


def test_what_is_there_is_not_awaited() -> None:
    async def run() -> None:
        await Runtime._until(starting(), lambda: True, "anything")

    asyncio.run(run())
