"""What a start waits for, and what ends the wait."""

import asyncio
import logging
import time
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dmq.broker import runtime as runtime_module
from dmq.broker.peers import Address
from dmq.broker.runtime import Runtime, steady_ms
from dmq.broker.whereabouts import Whereabouts
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


# ---- where the others are


class Door:
    """A peer door that is told where to look, and who answers when it asks."""

    def __init__(self, *linked: int) -> None:
        self.peers = self
        self.answers: list[dict[int, Address]] = []
        self.told: list[Mapping[int, Address]] = []
        self._linked = [*linked]

    def linked(self) -> list[int]:
        return self._linked

    def know(self, addresses: Mapping[int, Address]) -> None:
        self.told.append(dict(addresses))

    async def check_cluster(self, cluster_id: str) -> dict[int, Address]:
        assert cluster_id == "ours"
        return self.answers.pop(0)


class Others:
    """Where broker 1 looks for the others."""

    def __init__(self, door: Door) -> None:
        self.epoch = -1
        entrance = cast("Any", door)
        self.found = Whereabouts(entrance, "ours", 1, lambda: self.epoch >= 0)


OLD: dict[int, Address] = {2: ("old", 2), 3: ("old", 3), 4: ("old", 4)}
NEW: dict[int, Address] = {1: ("new", 1), 2: ("new", 2), 3: ("old", 3), 4: ("new", 4)}


def test_who_answers_elsewhere_is_looked_for_there(caplog: pytest.LogCaptureFixture) -> None:
    """But not ourselves, nor who is linked: it may be at both."""

    async def run() -> None:
        door = Door(4)
        others = Others(door)
        others.found.know(OLD)
        door.answers = [NEW, NEW]
        await others.found.ask()
        assert door.told == [OLD, {**OLD, 2: ("new", 2)}]
        await others.found.ask()
        assert len(door.told) == 2, "that is known by now"

    caplog.set_level(logging.INFO, "dmq.broker")
    asyncio.run(run())
    assert caplog.messages == ["broker 2 answers at new:2"]


def test_who_answered_before_the_door_knew_anybody_is_not_forgotten() -> None:
    async def run() -> None:
        door = Door(4)
        others = Others(door)
        door.answers = [NEW]
        await others.found.ask()
        assert door.told == []
        others.found.expect(OLD)
        assert door.told == [OLD, {**OLD, 2: ("new", 2)}]

    asyncio.run(run())


def test_what_the_metadata_say_takes_the_place_of_what_was_answered() -> None:
    async def run() -> None:
        door = Door(4)
        others = Others(door)
        door.answers = [NEW]
        await others.found.ask()
        others.found.know(OLD)
        assert door.told == [OLD]

    asyncio.run(run())


def test_who_is_registered_is_told_where_the_others_are() -> None:
    async def run() -> None:
        door = Door()
        others = Others(door)
        others.found.know(OLD)
        door.answers = [NEW]
        others.epoch = 7
        await others.found.ask()
        assert door.told == [OLD]

    asyncio.run(run())


class Start(Runtime):
    """Broker 1, which waits for something."""

    def __init__(self, door: Door, epoch: int = -1) -> None:
        self._loop = asyncio.get_running_loop()
        self.failure, self.stopped, self._asking = None, asyncio.Event(), None
        self.farewell = cast("Any", SimpleNamespace(tick=lambda: None))
        self.service = cast("Any", SimpleNamespace(broker_epoch=epoch))
        self.whereabouts = Whereabouts(cast("Any", door), "ours", 1, lambda: epoch >= 0)
        self.whereabouts.know(OLD)


def test_a_start_that_waits_asks_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime_module, "TELL_S", 0.001)

    async def run() -> None:
        door = Door()
        door.answers = [{}, {}, NEW]
        await Start(door)._until(lambda: len(door.told) > 1, "looking for the metadata's leader")
        assert door.told == [OLD, {2: ("new", 2), 3: ("old", 3), 4: ("new", 4)}]

    asyncio.run(run())


def test_a_start_that_is_registered_asks_nobody(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(runtime_module, "TELL_S", 0.001)

    async def run() -> None:
        door = Door()
        door.answers = [NEW]
        has_waited = lambda: len(caplog.messages) >= 3  # noqa: E731
        await Start(door, epoch=7)._until(has_waited, "reading the cluster's metadata")
        assert door.answers == [NEW]

    caplog.set_level(logging.INFO, "dmq.broker")
    asyncio.run(run())


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="this system has no such clock")
def test_the_steady_clock_goes_on_while_the_machine_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = {time.CLOCK_BOOTTIME: 9_000_000, time.CLOCK_MONOTONIC: 5_000_000}
    monkeypatch.setattr(time, "clock_gettime_ns", clocks.__getitem__)
    assert steady_ms() == 9
