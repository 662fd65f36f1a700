"""A broker that is alone and accepts its rotten journal: what becomes of the metadata, what is said."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from embedded.harness import SETTINGS, broker_on, run, until

from dmq.broker.runtime import Runtime
from dmq.config.broker import BrokerConfig
from dmq.doors.serve import Accepted, start_broker
from dmq.errors import CorruptError, StorageError
from dmq.storage import journal
from dmq.storage.files import OsFiles
from dmq.storage.journal import Place


def directory_id(data_dir: Path) -> UUID:
    found = re.search(r"directory\.id=(\S+)", (data_dir / "meta").read_text())
    assert found is not None
    return UUID(found[1])


def rot(data_dir: Path, choose: Callable[[list[Place]], Place]) -> None:
    """Flip a byte of a record of the journal, while no broker runs there."""
    salt = journal.salt_of(directory_id(data_dir))
    number = max(int(path.name) for path in data_dir.glob("journal/0*"))
    file = OsFiles(str(data_dir)).open(journal.file_name(number))
    place = choose([place for place, _ in journal.read_records(file, number, salt)])
    bad = file.read_at(place.position, 1)[0] ^ 0xFF
    file.write_at(place.position, [bytes([bad])])


async def started(data_dir: Path, accepted: UUID | None = None) -> Runtime:
    return await start_broker(
        BrokerConfig.of(SETTINGS | {"log.dirs": str(data_dir)}), Accepted(accepted)
    )


def first_after_open(places: list[Place]) -> Place:
    """It holds the mark of the epoch in which all that follows was written."""
    opened = max(n for n, place in enumerate(places) if place.flags & journal.FLAG_OPEN)
    return places[opened + 1]


async def killed_after_a_producer(data_dir: Path) -> int:
    """Two lives; the second gives an id to a producer, and `data_dir` is as a kill would leave it."""
    original = data_dir.with_name("original")
    async with broker_on(original):
        pass
    async with broker_on(original) as runtime:
        answer = runtime.service.next_producer_id()
        await until(lambda: answer.is_done, "the id is given")
        shutil.copytree(original, data_dir)
    return answer.get()


def test_ids_of_producers_are_not_given_twice_though_the_metadata_forgot_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        data_dir = tmp_path / "killed"
        given = await killed_after_a_producer(data_dir)
        before = directory_id(data_dir)
        rot(data_dir, first_after_open)
        with pytest.raises(CorruptError, match=f"--accept-rotten {before}"):
            await started(data_dir)
        runtime = await started(data_dir, before)
        try:
            assert directory_id(data_dir) != before
            assert runtime.parts.machine.state.producer_id_next > given
        finally:
            await runtime.stop()
        async with broker_on(data_dir) as runtime:
            assert runtime.parts.metadata.replica.is_leader

    run(test)
    assert "go on with what is left of them, up to offset " in caplog.text


def test_metadata_that_are_lost_are_told(tmp_path: Path) -> None:
    async def test() -> None:
        data_dir = tmp_path / "killed"
        async with broker_on(tmp_path / "original"):
            shutil.copytree(tmp_path / "original", data_dir)
        before = directory_id(data_dir)
        rot(data_dir, lambda places: places[1])  # That the log of the metadata exists.
        for accepted in (before, None):
            with pytest.raises(StorageError, match="the metadata are lost: restore a backup"):
                await started(data_dir, accepted)

    run(test)


def test_who_was_renamed_and_did_not_come_to_lead_is_told_its_old_name(tmp_path: Path) -> None:
    """A crash between the new name and the metadata's first word under it."""

    async def test() -> None:
        data_dir = tmp_path / "killed"
        await killed_after_a_producer(data_dir)
        before = directory_id(data_dir)
        rot(data_dir, first_after_open)
        config = BrokerConfig.of(SETTINGS | {"log.dirs": str(data_dir), "host": "192.0.2.1"})
        with pytest.raises(OSError, match="assign"):
            await start_broker(config, Accepted(before))
        assert directory_id(data_dir) != before
        with pytest.raises(StorageError, match=f"--accept-rotten {before}"):
            await started(data_dir)
        runtime = await started(data_dir, before)
        await runtime.stop()
        async with broker_on(data_dir) as runtime:
            assert runtime.parts.metadata.replica.is_leader

    run(test)
