"""At each bound the sender waits: a disk that stands still never makes the broker grow."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from compat import batches
from embedded.harness import Client, SlowDisk, broker_on, disk, door_of, run, until
from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest

__all__ = ["disk"]

MIB = 1 << 20
REQUEST_TIMED_OUT = 7


async def send_until_slowed(client: Client, topic: str, batch: bytes, **options: Any) -> int:
    """Send requests until the socket takes no more for a while; how many were written whole."""
    sent = 0
    while sent < 1000:
        client.produce(topic, batch, **options)
        try:
            await asyncio.wait_for(client.writer.drain(), 0.5)
        except TimeoutError:
            return sent
        sent += 1
    raise AssertionError("the sender was never slowed")


def test_acks_0_is_slowed_while_the_disk_stands_still(tmp_path: Path, disk: SlowDisk) -> None:
    async def test() -> None:
        async with broker_on(tmp_path, connection_queued_max_bytes=4 * MIB) as runtime:
            client = await Client.to(runtime)
            await client.create("t")
            disk.hold()
            batch = batches.build([bytes(MIB // 2)])
            await send_until_slowed(client, "t", batch, acks=0)
            backlog = runtime.node.backlog
            assert 4 * MIB <= backlog.byte_count <= 5 * MIB + len(batch)
            assert door_of(runtime).in_flight_bytes >= backlog.byte_count
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

            async def keep_sending() -> None:
                for _ in range(200):
                    tickets.put_nowait(client.produce("t", batch, timeout_ms=1))
                    await asyncio.wait_for(client.writer.drain(), 1.0)

            with pytest.raises(TimeoutError):
                await keep_sending()
            backlog = runtime.node.backlog
            assert 8 * MIB < backlog.byte_count <= 10 * MIB
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
