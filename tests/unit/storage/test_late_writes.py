"""Large writes happen in the worker that syncs the turn; nobody sees or promises them before."""

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from fakes.batches import SMALL, batch, make_disk, make_log, offsets, open_store, turn
from fakes.disk import FakeDisk

from dmq.errors import FatalStorageError
from dmq.storage.files import OsFiles
from dmq.storage.log import Log, LogSettings
from dmq.storage.store import Store
from dmq.types import Mark, Position, Voter

LARGE = 500
VOTERS = (Voter(1, UUID(int=1)), Voter(2, UUID(int=2)))


@pytest.fixture
def disk() -> FakeDisk:
    return make_disk()


@pytest.fixture
def store(disk: FakeDisk) -> Store:
    return open_store(disk, replace(SMALL, late_bytes_min=300))


@pytest.fixture
def log(store: Store) -> Log:
    return make_log(store, LogSettings(segment_bytes=100_000, index_interval_bytes=100))


def test_a_large_batch_is_read_when_its_turn_has_ended(store: Store, log: Log) -> None:
    log.append(batch(0))
    turn(store)
    log.append(batch(1, size=LARGE))
    begun = store.begin_turn(0)
    assert begun is not None
    assert offsets(log) == [0]
    begun.sync()
    assert offsets(log) == [0], "a reader may look while the worker writes"
    assert store.end_turn(begun, 0) == [log]
    assert offsets(log) == [0, 1]


def test_a_small_batch_before_a_large_one_waits_with_it(store: Store, log: Log) -> None:
    log.append(batch(0))
    turn(store)
    log.append(batch(1))
    log.add_mark(Mark(1, 0, 2, VOTERS[:1], 0))
    log.append(batch(2, epoch=1, size=LARGE))
    begun = store.begin_turn(0)
    assert begun is not None
    assert offsets(log) == [0]
    begun.sync()
    store.end_turn(begun, 0)
    assert offsets(log) == [0, 1, 2]


def test_a_small_batch_behind_a_large_one_leaves_no_hole(store: Store, log: Log) -> None:
    log.append(batch(0, size=LARGE))
    log.add_mark(Mark(1, 0, 1, VOTERS, 0))
    log.append(batch(1, epoch=1))
    begun = store.begin_turn(0)
    assert begun is not None
    assert offsets(log) == []
    begun.sync()
    store.end_turn(begun, 0)
    assert offsets(log) == [0, 1]


def test_times_are_looked_up_while_a_worker_writes(store: Store, log: Log) -> None:
    for offset in range(8):
        log.append(batch(offset, timestamp=1000 + offset, size=100))
        turn(store)
    for offset in range(8, 16):
        log.append(batch(offset, timestamp=1000 + offset, size=LARGE))
    begun = store.begin_turn(0)
    assert begun is not None
    found = [log.find_timestamp(1000 + offset, 8) for offset in range(16)]
    assert [f.base_offset if f else None for f in found] == [*range(8), *[None] * 8]
    newest = log.find_max_timestamp(8)
    assert newest is not None
    assert newest.base_offset == 7
    begun.sync()
    store.end_turn(begun, 0)
    late = log.find_timestamp(1012, 16)
    assert late is not None
    assert late.base_offset == 12


def test_an_async_log_promises_it_when_it_is_written(store: Store) -> None:
    log = make_log(store, LogSettings(is_async=True))
    log.append(batch(0, size=LARGE))
    begun = store.begin_turn(0)
    assert begun is not None
    assert begun.needs_sync
    assert not begun.has_record
    assert begun.stable == []
    assert log.stable_end.offset == 0
    begun.sync()
    assert store.end_turn(begun, 0) == [log]
    assert log.stable_end.offset == 1
    assert offsets(log) == [0]


def test_who_has_followers_has_it_in_the_file_at_once(store: Store) -> None:
    log = store.create(UUID(int=9), 0, voters=VOTERS, settings=LogSettings())
    turn(store)
    log.append(batch(0, size=LARGE))
    begun = store.begin_turn(0)
    assert begun is not None
    assert log.readable_end == 1
    begun.sync()
    store.end_turn(begun, 0)


def test_a_full_disk_refuses_it_before_it_is_promised(
    disk: FakeDisk, store: Store, log: Log
) -> None:
    log.append(batch(0, size=LARGE))
    turn(store)
    disk.capacity = disk.used_bytes() + 100
    log.append(batch(1, size=4 * LARGE))
    begun = store.begin_turn(0)
    assert begun is not None
    assert [(r.log, r.end) for r in begun.refused] == [(log, Position(0, 0, 1))]
    begun.sync()
    store.end_turn(begun, 0)
    assert offsets(log) == [0]
    disk.capacity = None
    log.append(batch(1, size=LARGE))
    turn(store)
    assert offsets(log) == [0, 1]


def test_what_is_reserved_can_be_written_on_a_full_disk(
    disk: FakeDisk, store: Store, log: Log
) -> None:
    log.append(batch(0, size=LARGE))
    begun = store.begin_turn(0)
    assert begun is not None
    disk.capacity = disk.used_bytes()
    begun.sync()
    store.end_turn(begun, 0)
    assert offsets(log) == [0]


def test_a_write_that_fails_all_the_same_stops_the_broker(
    store: Store, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.append(batch(0, size=LARGE))
    begun = store.begin_turn(0)
    assert begun is not None

    def fail(*_args: object) -> None:
        raise OSError(5, "input/output error")

    monkeypatch.setattr("fakes.disk.FakeFile.write_at", fail)
    with pytest.raises(FatalStorageError):
        begun.sync()


def test_a_failing_disk_is_noticed_by_the_first_who_asks_it(
    disk: FakeDisk, store: Store, log: Log
) -> None:
    log.append(batch(0, size=LARGE))
    begun = store.begin_turn(0)
    assert begun is not None
    disk.is_sync_failing = True
    with pytest.raises(FatalStorageError):
        begun.sync()


def test_blocks_are_reserved_ahead_and_given_back(tmp_path: Path) -> None:
    store = open_store(OsFiles(str(tmp_path)), replace(SMALL, late_bytes_min=10_000))
    log = make_log(store, LogSettings(segment_bytes=1 << 20))
    log.append(batch(0, size=100_000))
    turn(store)
    first = tmp_path / log.directory / f"{0:020d}.log"
    assert first.stat().st_size == log.size_bytes
    assert first.stat().st_blocks * 512 >= 2 * log.size_bytes
    log.roll()
    log.append(batch(1, size=100_000))
    turn(store)
    assert first.stat().st_blocks * 512 < 2 * log.segments_list[0].size
    store.close(0)
