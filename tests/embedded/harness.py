"""A whole broker on the test's own loop, with a client beside it and a disk that can be held up.

Requests are encoded by kafka-python. The broker's insides are reached through `runtime`; only the
seams that meet the operating system (a turn's sync, a flush) are ever replaced.
"""

import asyncio
import contextlib
import struct
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop
from compat.requests import fetch_topic, produce_request
from compat.wire import RESPONSES, decode, encode
from embedded.eventually import until as until
from kafka.protocol.consumer import FetchRequest
from kafka.protocol.metadata import MetadataRequest

from dmq.broker.runtime import Runtime
from dmq.config.broker import BrokerConfig
from dmq.doors.kafka import KafkaDoor
from dmq.doors.serve import fail_on_bugs, start_broker
from dmq.storage.turn import Turn

TEST_PATIENCE_S = 100.0
"""Below pytest's own, so that a test ends with a trace of its tasks."""
HELD_MAX_S = 30.0
SETTINGS: dict[str, Any] = {
    "host": "127.0.0.1",
    "port": 0,
    "durability": "sync",
    "journal.max.bytes": 16 << 20,
    "journal.file.bytes": 4 << 20,
    "disk.reserve.bytes": 0,
}


def run(test: Callable[[], Awaitable[None]]) -> None:
    """Run an async test on the broker's kind of loop, with an end in any case."""

    async def bounded() -> None:
        async with asyncio.timeout(TEST_PATIENCE_S):
            await test()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(bounded())


@contextlib.asynccontextmanager
async def broker_on(data_dir: Path, **settings: Any) -> AsyncIterator[Runtime]:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    config = BrokerConfig.of(SETTINGS | named | {"log.dirs": str(data_dir)})
    runtime = await start_broker(config)
    fail_on_bugs(runtime)
    try:
        yield runtime
    finally:
        if not runtime.stopped.is_set() or runtime.failure is not None:
            await runtime.stop()


def door_of(runtime: Runtime) -> KafkaDoor:
    (door,) = runtime._doors
    assert isinstance(door, KafkaDoor)
    return door


class Client:
    """One connection; `send` and `receive` may be apart."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._next_id = 1

    @classmethod
    async def to(cls, runtime: Runtime) -> "Client":
        ((host, port),) = runtime.service.endpoints.values()
        return cls(*await asyncio.open_connection(host, port, limit=1 << 26))

    def send(self, request: Any, version: int) -> tuple[Any, int, int]:
        request.API_VERSION = version
        correlation_id, self._next_id = self._next_id, self._next_id + 1
        self.writer.write(encode(request, correlation_id))
        return RESPONSES[type(request)], version, correlation_id

    async def receive(self, ticket: tuple[Any, int, int]) -> Any:
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        return decode(*ticket, await self.reader.readexactly(size))

    async def call(self, request: Any, version: int) -> Any:
        ticket = self.send(request, version)
        return await self.receive(ticket)

    async def is_closed_by_peer(self) -> bool:
        try:
            while await self.reader.read(1 << 16):
                pass
        except ConnectionError:
            return True
        return True

    async def create(self, topic: str) -> None:
        """By asking for it."""
        wanted = MetadataRequest.MetadataRequestTopic(name=topic)
        request = MetadataRequest(topics=[wanted], allow_auto_topic_creation=True)
        (found,) = (await self.call(request, 9)).topics
        assert found.error_code == 0

    def produce(
        self, topic: str, records: bytes, *, acks: int = -1, timeout_ms: int = 30_000
    ) -> tuple[Any, int, int]:
        request = produce_request(topic, {0: records}, acks=acks)
        request.timeout_ms = timeout_ms
        return self.send(request, 9)

    async def produced(self, ticket: tuple[Any, int, int]) -> tuple[int, int]:
        """(error code, base offset) of a produce request of one partition."""
        (topic,) = (await self.receive(ticket)).responses
        (part,) = topic.partition_responses
        return part.error_code, part.base_offset

    def fetch(
        self, topic: str, offset: int, *, max_wait_ms: int = 0, min_bytes: int = 1
    ) -> tuple[Any, int, int]:
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=50 << 20,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=[fetch_topic(topic, {0: offset})],
            forgotten_topics_data=[],
            rack_id="",
        )
        return self.send(request, 11)

    async def fetched(self, ticket: tuple[Any, int, int]) -> Any:
        (topic,) = (await self.receive(ticket)).responses
        (part,) = topic.partitions
        return part

    def close(self) -> None:
        self.writer.close()


class SlowDisk:
    """Holds every sync up while it is `held`, in the thread where it runs; or lets it fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._free = threading.Event()
        self._free.set()
        self.error: Exception | None = None
        self.sync_count = 0
        original = Turn.sync

        def sync(turn: Turn) -> None:
            self.sync_count += 1
            self._free.wait(HELD_MAX_S)
            if self.error is not None:
                raise self.error
            original(turn)

        monkeypatch.setattr(Turn, "sync", sync)

    def hold(self) -> None:
        self._free.clear()

    def release(self) -> None:
        self._free.set()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Any:
    slow = SlowDisk(monkeypatch)
    yield slow
    slow.release()
