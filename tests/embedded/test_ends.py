"""How a broker ends: under load, with a slow disk, with a failed one; and what it leaves behind."""

import asyncio
import errno
import logging
import threading
from pathlib import Path

import pytest
from compat import batches
from embedded.harness import Client, SlowDisk, broker_on, disk, run, until

from dmq.broker import runtime as runtime_module
from dmq.broker.partition import Partition
from dmq.doors.serve import start_broker
from dmq.errors import FatalStorageError
from dmq.storage import layout
from dmq.storage.cleaner import FlushJob
from dmq.storage.reading import FileSlice
from dmq.storage.segment import SegmentFiles

__all__ = ["disk"]

STORAGE_ERROR = 56


def no_criticals(caplog: pytest.LogCaptureFixture) -> bool:
    return not [r for r in caplog.records if r.levelno >= logging.ERROR]


def test_a_stop_under_load_answers_what_was_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        answered = 0
        async with broker_on(tmp_path) as runtime:
            clients = [await Client.to(runtime) for _ in range(4)]
            await clients[0].create("t")

            async def load(client: Client) -> int:
                tickets, count = [], 0
                try:
                    while True:
                        tickets.append(client.produce("t", batches.build([b"v"])))
                        await client.writer.drain()
                        if len(tickets) > 20:
                            code, _ = await client.produced(tickets.pop(0))
                            assert code == 0
                            count += 1
                except (ConnectionError, asyncio.IncompleteReadError):
                    return count

            loads = [asyncio.ensure_future(load(client)) for client in clients]
            partition = await_partition(runtime, "t")
            await until(lambda: partition.high_watermark > 500, "load")
            await runtime.stop()
            assert runtime.failure is None
            answered = sum(await asyncio.gather(*loads))
            for client in clients:
                client.close()
        async with broker_on(tmp_path) as again:
            written = await_partition(again, "t").high_watermark
        # Each connection may have had a window of answers that its client did not come to read.
        assert answered <= written <= answered + 4 * 22

    run(test)
    assert no_criticals(caplog)


def await_partition(runtime: runtime_module.Runtime, topic: str) -> Partition:
    return runtime.parts.replicas.topics[topic].partitions[0]


def test_the_last_answers_leave_before_the_door_closes(tmp_path: Path, disk: SlowDisk) -> None:
    async def test() -> None:
        async with broker_on(tmp_path) as runtime:
            client = await Client.to(runtime)
            await client.create("t")
            disk.hold()
            ticket = client.produce("t", batches.build([b"v"]))
            await until(lambda: runtime.parts.backlog.count, "it is there")
            stopping = asyncio.ensure_future(runtime.stop())
            await asyncio.sleep(0)
            disk.release()
            assert await client.produced(ticket) == (0, 0)
            await stopping
            client.close()

    run(test)


def test_a_stop_waits_for_a_sync_of_any_length(
    tmp_path: Path,
    disk: SlowDisk,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(runtime_module, "STOP_PATIENCE_S", 0.05)

    async def test() -> None:
        async with broker_on(tmp_path) as runtime:
            client = await Client.to(runtime)
            await client.create("t")
            disk.hold()
            client.produce("t", batches.build([b"v"]))
            await until(lambda: runtime.parts.backlog.count, "it is there")
            stopping = asyncio.ensure_future(runtime.stop())
            assert await client.is_closed_by_peer(), "patience has an end"
            assert not stopping.done()
            disk.release()
            await stopping
            assert runtime.failure is None
            client.close()
        async with broker_on(tmp_path) as again:
            assert await_partition(again, "t").high_watermark == 1

    run(test)
    assert no_criticals(caplog)


def test_a_failed_sync_stops_the_broker_and_acknowledges_nothing(
    tmp_path: Path, disk: SlowDisk
) -> None:
    async def test() -> None:
        async with broker_on(tmp_path) as runtime:
            client = await Client.to(runtime)
            await client.create("t")
            disk.error = FatalStorageError("journal sync failed")
            client.produce("t", batches.build([b"v"]))
            await runtime.stopped.wait()
            assert isinstance(runtime.failure, FatalStorageError)
            assert await client.reader.read() == b"", "closed without an answer"
            client.close()
            await runtime.stop()
            disk.error = None
            async with broker_on(tmp_path) as again:  # The directory is free.
                assert await_partition(again, "t").high_watermark in (0, 1)

    run(test)


def test_a_flush_that_fails_while_the_broker_stops_is_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, leave = threading.Event(), threading.Event()
    original = FlushJob.run

    def fail_once(job: FlushJob) -> None:
        if entered.is_set():
            original(job)  # A second sync of the same file says that all is well: it is not.
            return
        entered.set()
        leave.wait(10)
        raise FatalStorageError("flush failed")

    async def test() -> None:
        async with broker_on(tmp_path, durability="async", log_flush_interval_ms=10) as runtime:
            client = await Client.to(runtime)
            await client.create("t")
            monkeypatch.setattr(FlushJob, "run", fail_once)
            assert await client.produced(client.produce("t", batches.build([b"v"]))) == (0, 0)
            await until(entered.is_set, "a flush is under way")
            threading.Timer(0.05, leave.set).start()
            await runtime.stop()
            assert isinstance(runtime.failure, FatalStorageError)
            client.close()

    run(test)


def test_a_flush_that_ends_while_the_broker_stops_is_no_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    entered, leave = threading.Event(), threading.Event()
    original = FlushJob.run

    def slow(job: FlushJob) -> None:
        entered.set()
        leave.wait(10)
        original(job)

    async def test() -> None:
        async with broker_on(tmp_path, durability="async", log_flush_interval_ms=10) as runtime:
            client = await Client.to(runtime)
            await client.create("t")
            monkeypatch.setattr(FlushJob, "run", slow)
            assert await client.produced(client.produce("t", batches.build([b"v"]))) == (0, 0)
            await until(entered.is_set, "a flush is under way")
            threading.Timer(0.05, leave.set).start()
            await runtime.stop()
            client.close()
            for _ in range(10):
                await asyncio.sleep(0)  # What the threads reported has its say.
            assert runtime.failure is None

    run(test)
    assert no_criticals(caplog)


def test_an_exception_that_nobody_expected_stops_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with broker_on(tmp_path) as runtime:

            def broken(now: int) -> None:
                raise ZeroDivisionError

            monkeypatch.setattr(runtime._housekeeping, "tick", broken)
            await runtime.stopped.wait()
            assert isinstance(runtime.failure, ZeroDivisionError)

    run(test)


def test_a_start_that_fails_late_leaves_no_thread(tmp_path: Path) -> None:
    async def test() -> None:
        async with broker_on(tmp_path / "one") as runtime:
            ((_, port),) = runtime.service.endpoints.values()
            before = threading.active_count()
            config = runtime.config.of(
                {
                    "log.dirs": str(tmp_path / "two"),
                    "listeners": f"A://127.0.0.1:0,B://127.0.0.1:{port}",
                    "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
                    "disk.reserve.bytes": 0,
                }
            )
            with pytest.raises(OSError, match="in use"):
                await start_broker(config)
            assert threading.active_count() == before
        async with broker_on(tmp_path / "two"):
            pass

    run(test)


def test_a_full_disk_ends_the_connection_of_a_producer_without_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with broker_on(tmp_path) as runtime:
            client, other = await Client.to(runtime), await Client.to(runtime)
            await client.create("t")

            def full(*args: object) -> None:
                raise OSError(errno.ENOSPC, "no space left")

            monkeypatch.setattr(layout.Layout, "_opened", full)
            client.produce("t", batches.build([b"v"]), acks=0)
            assert await client.is_closed_by_peer()
            code, _ = await other.produced(other.produce("t", batches.build([b"v"])))
            assert code == STORAGE_ERROR
            assert runtime.failure is None
            assert runtime.parts.backlog.count == 0
            for one in (client, other):
                one.close()

    run(test)


def test_a_log_that_can_not_be_opened_is_an_error_of_its_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fetch that waits reads when nobody is there to catch it."""

    async def test() -> None:
        async with broker_on(tmp_path) as runtime:
            client = await Client.to(runtime)
            await client.create("t")
            ticket = client.fetch("t", 0, max_wait_ms=60_000, min_bytes=1)
            await until(lambda: runtime.service.fetcher.parked_count, "it waits")

            def refused(*args: object) -> None:
                raise OSError(errno.EMFILE, "too many open files")

            other = await Client.to(runtime)
            monkeypatch.setattr(SegmentFiles, "get", refused)
            monkeypatch.setattr(layout.Layout, "reader", refused)
            assert await other.produced(other.produce("t", batches.build([b"v"]))) == (0, 0)
            assert (await client.fetched(ticket)).error_code == STORAGE_ERROR
            assert runtime.failure is None
            for one in (client, other):
                one.close()
            monkeypatch.undo()

    run(test)


def test_a_page_that_can_not_be_read_ends_one_connection_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with broker_on(tmp_path) as runtime:
            client, other = await Client.to(runtime), await Client.to(runtime)
            await client.create("t")
            assert await client.produced(client.produce("t", batches.build([b"v"]))) == (0, 0)

            def rotten(piece: FileSlice) -> bytes:
                raise OSError(errno.EIO, "input/output error")

            monkeypatch.setattr(FileSlice, "is_cached", lambda piece: False)
            monkeypatch.setattr(FileSlice, "pread", rotten)
            client.fetch("t", 0)
            assert await client.is_closed_by_peer()
            assert await other.produced(other.produce("t", batches.build([b"v"]))) == (0, 1)
            assert runtime.failure is None
            for one in (client, other):
                one.close()

    run(test)


@pytest.mark.parametrize("jump_s", [-3600, 3600])
def test_a_wall_clock_that_jumps_changes_no_deadline(
    tmp_path: Path, disk: SlowDisk, monkeypatch: pytest.MonkeyPatch, jump_s: int
) -> None:
    async def test() -> None:
        async with broker_on(tmp_path) as runtime:
            client, reader = await Client.to(runtime), await Client.to(runtime)
            await client.create("t")
            time_ns = runtime_module.time.time_ns
            disk.hold()
            produced = client.produce("t", batches.build([b"v"]), timeout_ms=20_000)
            fetched = reader.fetch("t", 0, max_wait_ms=300)
            await until(lambda: runtime.service.fetcher.parked_count, "it waits")
            monkeypatch.setattr(
                runtime_module.time, "time_ns", lambda: time_ns() + jump_s * 1_000_000_000
            )
            assert (await reader.fetched(fetched)).error_code == 0
            disk.release()
            assert await client.produced(produced) == (0, 0), "not REQUEST_TIMED_OUT"
            flushed = runtime.store.seq
            await until(lambda: runtime.store.seq > flushed, "an idle broker covers its last turn")
            for one in (client, reader):
                one.close()

    run(test)
