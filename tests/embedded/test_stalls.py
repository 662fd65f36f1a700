"""No request holds the loop up: what takes long is done beside it or in slices, in order."""

import asyncio
import os
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from compat import batches
from embedded.harness import Client, broker_on, run
from kafka.protocol.admin import CreateTopicsRequest
from kafka.protocol.consumer import ListOffsetsRequest
from kafka.protocol.metadata import MetadataRequest

from dmq.broker import service as service_module
from dmq.records import Record, build_batch, iterate, scan

T = TypeVar("T")
MIB = 1 << 20
INVALID_RECORD = 87


async def create(client: Client, *names: str, **configs: str) -> None:
    kind = CreateTopicsRequest.CreatableTopic
    named = [
        kind.CreatableTopicConfig(name=name.replace("_", "."), value=value)
        for name, value in configs.items()
    ]
    topics = [
        kind(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=named)
        for name in names
    ]
    request = CreateTopicsRequest(topics=topics, timeout_ms=30_000, validate_only=False)
    answer = await client.call(request, 5)
    assert {topic.error_code for topic in answer.topics} == {0}


async def passes_during(work: Awaitable[T]) -> tuple[T, int]:
    """What `work` gave, and how often the loop came round meanwhile."""
    count = 0

    async def count_passes() -> None:
        nonlocal count
        while True:
            await asyncio.sleep(0)
            count += 1

    counting = asyncio.ensure_future(count_passes())
    try:
        return await work, count
    finally:
        counting.cancel()


def small_records(count: int, *, codec: int = 0, key: bytes | None = b"k") -> bytes:
    now = int(time.time() * 1000)
    return bytes(build_batch([Record(n, now, key, b"v") for n in range(count)], codec=codec))


@pytest.mark.parametrize(
    "config",
    [{"cleanup_policy": "compact"}, {"compression_type": "gzip"}, {"record_validation": "full"}],
)
def test_a_batch_that_must_be_opened_keeps_its_place(
    tmp_path: Path, config: dict[str, str]
) -> None:
    """Large ones are opened beside the loop; a small one behind them waits, as do other requests."""

    async def test() -> None:
        async with broker_on(tmp_path) as runtime:
            client, other = await Client.to(runtime), await Client.to(runtime)
            await create(client, "t", **config)
            sizes = [20_000, 1, 5_000, 3]
            tickets = [client.produce("t", small_records(size)) for size in sizes]
            answers, passes = await passes_during(
                asyncio.gather(other.call(MetadataRequest(topics=[]), 9), collect(client, tickets))
            )
            assert [offset for _, offset in answers[1]] == [0, 20_000, 20_001, 25_001]
            assert {code for code, _ in answers[1]} == {0}
            assert passes > 3
            part = await client.fetched(client.fetch("t", 0))
            assert part.high_watermark == sum(sizes)
            data = bytes(part.records)
            found = [r.offset for at, header in scan(data) for r in iterate(data, at, header)]
            assert found == list(range(sum(sizes)))
            for one in (client, other):
                one.close()

    run(test)


async def collect(client: Client, tickets: list[Any]) -> list[tuple[int, int]]:
    return [await client.produced(ticket) for ticket in tickets]


def test_a_batch_without_keys_is_refused_wherever_it_is_opened(tmp_path: Path) -> None:
    async def test() -> None:
        async with broker_on(tmp_path) as runtime:
            client = await Client.to(runtime)
            await create(client, "t", cleanup_policy="compact")
            for size in (1, 5_000):
                bad = client.produce("t", small_records(size, key=None))
                good = client.produce("t", small_records(size))
                assert (await client.produced(bad))[0] == INVALID_RECORD
                assert (await client.produced(good))[0] == 0
            client.produce("t", small_records(5_000, key=None), acks=0)
            assert await client.is_closed_by_peer()
            client.close()

    run(test)


def test_a_connection_that_goes_while_its_batch_is_opened(tmp_path: Path) -> None:
    async def test() -> None:
        async with broker_on(tmp_path) as runtime:
            client, other = await Client.to(runtime), await Client.to(runtime)
            await create(client, "t", cleanup_policy="compact")
            for _ in range(3):
                client.produce("t", small_records(20_000))
            await client.writer.drain()
            client.writer.transport.abort()
            code, offset = await other.produced(other.produce("t", small_records(2_000)))
            other.close()
            # Each batch of the one that went is there as a whole or not at all, before it or behind.
            assert (code, offset % 20_000) == (0, 0)
            partition = runtime.parts.replicas.topics["t"].partitions[0]
            assert partition.high_watermark % 20_000 == 2_000

    run(test)


def test_a_time_is_sought_beside_the_loop(tmp_path: Path) -> None:
    async def test() -> None:
        async with broker_on(tmp_path) as runtime:
            client = await Client.to(runtime)
            await create(client, "t")
            first_ms = int(time.time() * 1000) - 1_000_000
            records = [Record(n, first_ms + n, None, b"") for n in range(100_000)]
            batch = bytes(build_batch(records, codec=4))
            assert await client.produced(client.produce("t", batch)) == (0, 0)
            kind = ListOffsetsRequest.ListOffsetsTopic
            part = kind.ListOffsetsPartition(
                partition_index=0, current_leader_epoch=-1, timestamp=first_ms + 99_000
            )
            request = ListOffsetsRequest(
                replica_id=-1, isolation_level=0, topics=[kind(name="t", partitions=[part])]
            )
            answer, passes = await passes_during(client.call(request, 5))
            assert answer.topics[0].partitions[0].offset == 99_000
            assert passes > 3
            client.close()

    run(test)


def test_many_topics_are_told_in_slices(tmp_path: Path) -> None:
    async def test() -> None:
        async with broker_on(tmp_path) as runtime:
            client = await Client.to(runtime)
            names = sorted(f"t{n}" for n in range(1_200))
            await create(client, *names)
            ticket = client.send(MetadataRequest(topics=None), 9)
            behind = client.send(MetadataRequest(topics=[]), 9)
            answer, passes = await passes_during(client.receive(ticket))
            assert sorted(topic.name for topic in answer.topics) == names
            assert {topic.error_code for topic in answer.topics} == {0}
            assert passes >= len(names) // service_module.SLICE
            assert (await client.receive(behind)).topics == []
            client.close()

    run(test)


def test_large_values_stay_plain(tmp_path: Path) -> None:
    """What need not be opened is not: no detour for the usual batch."""

    async def test() -> None:
        async with broker_on(tmp_path) as runtime:
            client = await Client.to(runtime)
            await create(client, "t")
            asked: list[object] = []
            runtime.service.beside = asked.append  # type: ignore[assignment, method-assign]
            batch = batches.build([os.urandom(MIB // 2)])
            assert await client.produced(client.produce("t", batch)) == (0, 0)
            assert asked == []
            client.close()

    run(test)
