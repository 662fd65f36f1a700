"""At each bound the sender waits: a disk that stands still never makes the broker grow."""

import asyncio
import errno
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from compat import batches
from compat.requests import produce_request
from compat.wire import encode
from embedded.eventually import watch
from embedded.harness import Client, SlowDisk, broker_on, disk, door_of, run, until
from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest
from kafka.protocol.producer import ProduceResponse

from dmq.broker.backlog import Backlog
from dmq.doors.kafka import ACCEPT_REST_S
from dmq.storage.cleaner import FlushJob

__all__ = ["disk"]

MIB = 1 << 20
REQUEST_TIMED_OUT = 7


async def keep_sending(client: Client, send: Callable[[], None]) -> None:
    """Far more than any bound; whoever slows it leaves it waiting."""
    for _ in range(1000):
        send()
        await client.writer.drain()
    raise AssertionError("the sender was never slowed")


async def until_slowed(sending: "asyncio.Future[None]", backlog: Backlog, least: int) -> None:
    """The bytes in memory have reached the bound; then watch whether they go beyond."""
    await until(lambda: backlog.byte_count >= least or sending.done(), "the bound is reached")
    await watch(0.5)
    assert not sending.done()


def test_acks_0_is_slowed_while_the_disk_stands_still(tmp_path: Path, disk: SlowDisk) -> None:
    async def test() -> None:
        async with broker_on(tmp_path, connection_queued_max_bytes=4 * MIB) as runtime:
            client = await Client.to(runtime)
            await client.create("t")
            disk.hold()
            batch = batches.build([bytes(MIB // 2)])
            backlog = runtime.parts.backlog
            sending = asyncio.ensure_future(
                keep_sending(client, lambda: client.produce("t", batch, acks=0))
            )
            await until_slowed(sending, backlog, 4 * MIB)
            assert 4 * MIB <= backlog.byte_count <= 5 * MIB + len(batch)
            assert door_of(runtime).in_flight_bytes >= backlog.byte_count
            sending.cancel()
            disk.release()
            await client.writer.drain()
            await until(lambda: backlog.count == 0, "all are durable")
            assert backlog.byte_count == 0
            await until(lambda: door_of(runtime).in_flight_bytes == 0, "nothing is under way")
            client.close()

    run(test)


def test_a_producer_that_does_not_wait_is_slowed_too(tmp_path: Path, disk: SlowDisk) -> None:
    """Its requests are answered (REQUEST_TIMED_OUT), so only the bytes in memory can stop it."""
    small = {"queued_max_request_bytes": 8 * MIB, "socket_request_max_bytes": 8 * MIB}

    async def test() -> None:
        async with broker_on(tmp_path, **small) as runtime:
            client, other = await Client.to(runtime), await Client.to(runtime)
            await client.create("t")
            disk.hold()
            batch = batches.build([bytes(MIB // 2)])
            codes: list[int] = []

            async def keep_reading(tickets: "asyncio.Queue[Any]") -> None:
                while True:
                    code, _ = await client.produced(await tickets.get())
                    codes.append(code)

            tickets: asyncio.Queue[Any] = asyncio.Queue()
            reading = asyncio.ensure_future(keep_reading(tickets))

            def send() -> None:
                tickets.put_nowait(client.produce("t", batch, timeout_ms=1))

            backlog = runtime.parts.backlog
            sending = asyncio.ensure_future(keep_sending(client, send))
            await until_slowed(sending, backlog, 8 * MIB)
            assert 8 * MIB < backlog.byte_count <= 10 * MIB
            sending.cancel()
            await until(lambda: codes, "a first answer")
            assert set(codes) == {REQUEST_TIMED_OUT}
            # Those who bring no records notice nothing.
            assert (await other.call(MetadataRequest(topics=[]), 9)).topics == []
            disk.release()
            await until(lambda: backlog.count == 0, "all are durable")
            await client.writer.drain()
            reading.cancel()
            for one in (client, other):
                one.close()

    run(test)


def test_requests_under_way_are_counted_to_zero(tmp_path: Path) -> None:
    """A version of ApiVersions that nobody knows, behind a fetch that waits, before garbage."""

    async def test() -> None:
        async with broker_on(tmp_path) as runtime:
            client = await Client.to(runtime)
            await client.create("t")
            client.fetch("t", 0, max_wait_ms=200)
            strange = ApiVersionsRequest(client_software_name="a", client_software_version="1")
            ticket = client.send(strange, 3)
            client.send(MetadataRequest(topics=[]), 9)
            # ApiVersions version 99, then a frame that is no request.
            client.writer.write(bytes.fromhex("0000000c001200630000000700016100"))
            client.writer.write(b"\x00\x00\x00\x03abc")
            assert await client.is_closed_by_peer()
            assert ticket
            door = door_of(runtime)
            await until(lambda: len(door) == 0, "the connection is gone")
            assert door.in_flight_bytes == 0
            client.close()

    run(test)


def test_producers_wait_while_the_journal_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Segments can't be flushed: the journal must not grow for ever, nor must anything be lost."""
    free = threading.Event()
    original = FlushJob.run

    def held(job: FlushJob) -> None:
        assert free.wait(60)
        original(job)

    async def test() -> None:
        async with broker_on(tmp_path) as runtime:
            client, other = await Client.to(runtime), await Client.to(runtime)
            await client.create("t")
            monkeypatch.setattr(FlushJob, "run", held)
            batch = batches.build([bytes(MIB // 2)])
            tickets: asyncio.Queue[Any] = asyncio.Queue()
            offsets: list[int] = []

            async def read_answers() -> None:
                while True:
                    code, offset = await client.produced(await tickets.get())
                    assert code == 0
                    offsets.append(offset)

            async def send() -> None:
                while True:
                    tickets.put_nowait(client.produce("t", batch))
                    await client.writer.drain()

            reading = asyncio.ensure_future(read_answers())
            sending = asyncio.ensure_future(send())
            await until(lambda: runtime.store.pressure > 1, "the journal is full")
            seen = -1
            while seen != len(offsets):  # Until nothing moves any more.
                seen = len(offsets)
                await watch(0.5)
            journal = sum(file.stat().st_size for file in (tmp_path / "journal").iterdir())
            assert journal <= (16 + 2 * 4 + 16) * MIB, "its size, spares, what was under way"
            assert (await other.call(MetadataRequest(topics=[]), 9)).topics == []
            sending.cancel()
            free.set()
            await until(lambda: runtime.store.pressure < 1, "it is cleaned")
            await until(
                lambda: len(offsets) > seen or runtime.parts.backlog.count == 0, "it goes on"
            )
            await client.writer.drain()
            await until(lambda: runtime.parts.backlog.count == 0, "all are durable")
            assert offsets == list(range(len(offsets)))
            reading.cancel()
            for one in (client, other):
                one.close()

    try:
        run(test)
    finally:
        free.set()


class Refusing:
    """A listening socket of a process that has no descriptors left."""

    def __init__(self, sock: Any) -> None:
        self._sock = sock
        self.attempts = 0

    def fileno(self) -> int:
        return int(self._sock.fileno())

    def accept(self) -> Any:
        self.attempts += 1
        raise OSError(errno.EMFILE, "too many open files")


def test_a_process_without_descriptors_does_not_spin(tmp_path: Path) -> None:
    async def test() -> None:
        async with broker_on(tmp_path) as runtime:
            door = door_of(runtime)
            listening = door._sock
            door._sock = refusing = Refusing(listening)  # type: ignore[assignment]
            client = await Client.to(runtime)
            await until(lambda: refusing.attempts >= 3, "it tries again")
            began = asyncio.get_running_loop().time()
            before = refusing.attempts
            await watch(0.5)
            waited = asyncio.get_running_loop().time() - began
            assert refusing.attempts - before <= waited / ACCEPT_REST_S + 1
            door._sock = listening
            assert (await client.call(MetadataRequest(topics=[]), 9)).topics == []
            client.close()

    run(test)


def test_connections_are_counted_by_the_second(tmp_path: Path) -> None:
    async def test() -> None:
        async with broker_on(tmp_path, max_connection_creation_rate=6) as runtime:
            door = door_of(runtime)
            rests: list[float] = []
            rest = door._accept_again_at

            def watch(moment: float) -> None:
                rests.append(moment)
                rest(moment)

            door._accept_again_at = watch  # type: ignore[method-assign]
            clients = []
            for count in range(1, 6):
                clients.append(await Client.to(runtime))
                await until(lambda wanted=count: len(door) == wanted, "it is in")
            assert rests == [], "five in a second are fewer than six"
            for client in clients:
                client.close()

    run(test)


def test_requests_that_arrive_slowly_share_their_room(tmp_path: Path) -> None:
    """Twenty clients in the middle of 4 MiB each; there is room for 8: all get through at last."""

    async def test() -> None:
        small = {"queued_max_request_bytes": 8 * MIB, "socket_request_max_bytes": 8 * MIB}
        async with broker_on(tmp_path, **small, message_max_bytes=8 * MIB) as runtime:
            door, most = door_of(runtime), 0
            clients = [await Client.to(runtime) for _ in range(20)]
            await clients[0].create("t")
            request = produce_request("t", {0: batches.build([bytes(4 * MIB)])})
            request.API_VERSION = 9
            frame = encode(request, 1)
            halves = len(frame) - MIB // 2
            for client in clients:
                client.writer.write(frame[:halves])
            await until(lambda: door.unfinished_bytes > 8 * MIB, "there is no room")
            await watch(0.2)
            other = await Client.to(runtime)
            assert (await other.call(MetadataRequest(topics=[]), 9)).topics == []
            for client in clients:
                client.writer.write(frame[halves:])

            async def finish(client: Client) -> int:
                nonlocal most
                code, _ = await client.produced((ProduceResponse, 9, 1))
                most = max(most, door.unfinished_bytes)
                return code

            codes = await asyncio.gather(*map(finish, clients))
            assert set(codes) == {0}
            # The bound, a first buffer for each, and the one that goes on: not 20 times 4.
            assert most <= (8 + 20 * 1.1 + 4) * MIB
            assert (door.unfinished_bytes, door.in_flight_bytes) == (0, 0)
            clients[0].writer.write(frame[:halves])
            await until(lambda: door.unfinished_bytes, "it is half in")
            clients[0].close()
            await until(lambda: not door.unfinished_bytes, "and gone")
            for client in (*clients, other):
                client.close()

    run(test)
