"""Settings that change while the broker runs and is used: each takes effect, nothing is lost."""

import asyncio
import logging
from pathlib import Path
from typing import Any

from compat import batches
from embedded.harness import Client, broker_on, run, until

from dmq.broker.admin import BROKER, TOPIC, ConfigChange
from dmq.broker.runtime import Runtime
from dmq.doors.kafka_api.k33_alter_configs import SET

STORAGE_ERROR = 56
MESSAGE_TOO_LARGE = 10


async def alter(runtime: Runtime, kind: int, name: str, **values: str) -> None:
    configs = tuple((key.replace("_", "."), SET, value) for key, value in values.items())
    done = asyncio.get_running_loop().create_future()
    answer = runtime.service.admin.alter_configs(
        [ConfigChange(kind, name, configs)], replace=False, validate_only=False
    )
    answer.on_done(lambda altered: done.set_result(altered.get()))
    (altered,) = await done
    assert altered.error is None, altered.error


async def produce(client: Client, *values: bytes) -> tuple[int, int]:
    return await client.produced(client.produce("t", batches.build(list(values))))


def test_broker_settings_take_effect(tmp_path: Path) -> None:
    async def test() -> None:
        async with broker_on(tmp_path) as runtime:
            client = await Client.to(runtime)
            await client.create("t")
            assert await produce(client, b"v") == (0, 0)
            await alter(runtime, BROKER, "", message_max_bytes="100")
            assert (await produce(client, bytes(200)))[0] == MESSAGE_TOO_LARGE
            await alter(runtime, BROKER, "", message_max_bytes="1000000")
            assert await produce(client, bytes(200)) == (0, 1)
            await alter(runtime, BROKER, "", disk_reserve_bytes=str(1 << 60))
            await until(lambda: runtime.store.is_full, "the reserve counts")
            assert (await produce(client, b"v"))[0] == STORAGE_ERROR
            await alter(runtime, BROKER, "", disk_reserve_bytes="0")
            await until(lambda: not runtime.store.is_full, "there is room")
            assert await produce(client, b"v") == (0, 2)
            logger = logging.getLogger("dmq")
            before = logger.level
            await alter(runtime, BROKER, "", logging_level="error")
            assert logger.level == logging.ERROR
            logger.setLevel(before)
            await alter(runtime, BROKER, "", max_connections="1")
            other = await Client.to(runtime)
            assert await other.is_closed_by_peer()
            for one in (client, other):
                one.close()

    run(test)


def test_durability_changes_under_load(tmp_path: Path) -> None:
    async def test() -> None:
        async with broker_on(tmp_path) as runtime:
            client, admin = await Client.to(runtime), runtime
            await client.create("t")
            is_done = False

            async def load() -> int:
                count, window = 0, []
                while not is_done or window:
                    while not is_done and len(window) < 10:
                        window.append(client.produce("t", batches.build([b"v"])))
                    code, offset = await client.produced(window.pop(0))
                    assert (code, offset) == (0, count), "in order, none lost, none twice"
                    count += 1
                return count

            loading = asyncio.ensure_future(load())
            partition: Any = runtime.parts.replicas.topics["t"].partitions[0]
            for mode in ("async", "sync") * 3:
                await alter(admin, TOPIC, "t", durability=mode)
                wanted = partition.high_watermark + 50
                await until(lambda end=wanted: partition.high_watermark >= end, "it goes on")
                await until(lambda m=mode: partition.log.is_async == (m == "async"), "it changed")
            is_done = True
            count = await loading
            assert partition.high_watermark == count
            client.close()
        async with broker_on(tmp_path) as again:
            assert again.parts.replicas.topics["t"].partitions[0].high_watermark == count

    run(test)


def test_settings_that_change_touch_no_topic_that_is_not_committed(tmp_path: Path) -> None:
    async def test() -> None:
        async with broker_on(tmp_path) as runtime:
            client = await Client.to(runtime)
            await client.create("t")
            first = alter(runtime, BROKER, "", message_max_bytes="1000")
            waiting = asyncio.ensure_future(first)
            await asyncio.sleep(0)
            seen: list[bool] = []
            replicas = runtime.parts.replicas
            configure = replicas._configure

            def watch(*args: Any) -> None:
                seen.append("later" in replicas.topics)
                configure(*args)

            replicas._configure = watch  # type: ignore[method-assign]
            created = client.create("later")
            await waiting
            await created
            assert seen == [False]
            client.close()

    run(test)
