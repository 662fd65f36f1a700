"""Compacted files take their places: what may come between, and what is left of it."""

import pytest
from fakes.batches import SMALL, batch, fill, make_disk, make_log, offsets, open_store, turn
from fakes.disk import FakeDisk

from dmq.errors import StorageError
from dmq.storage.items import Damage
from dmq.storage.log import Log, SwapJob
from dmq.storage.store import Store
from dmq.types import Mark


@pytest.fixture
def store() -> Store:
    return open_store(make_disk())


@pytest.fixture
def log(store: Store) -> Log:
    """Segments from 0, 1, 2 and 3 on; all but the last flushed."""
    log = make_log(store)
    for _ in range(4):
        fill(store, log, 1)
        log.roll()
    store.request_flush(log)
    for job in store.maintain(0):
        job.run()
        store.done(job)
    turn(store)
    return log


def disk_of(store: Store) -> FakeDisk:
    disk = store._files
    assert isinstance(disk, FakeDisk)
    return disk


def swap(store: Store, log: Log) -> SwapJob:
    """The first two segments are to become one."""
    disk = disk_of(store)
    file = disk.open(log.swap_name(0), create=True)
    raw = bytes(batch(0, size=3)) + bytes(batch(1, size=3))
    file.write_at(0, [raw])
    file.sync()
    disk.open(f"{log.directory}/{0:020d}.index.swap", create=True)
    disk.sync_dir(log.directory)
    log.replace_segments([0, 1], len(raw), 1000)
    (job,) = store.maintain(0)
    assert isinstance(job, SwapJob)
    return job


def swap_files(store: Store, log: Log) -> list[str]:
    return [name for name in disk_of(store).list(log.directory) if name.endswith("swap")]


def restarted(store: Store) -> Log:
    disk = disk_of(store)
    disk.power_cut()
    (log,) = Store.open(disk, SMALL, now=0).logs.values()
    assert not log.is_damaged
    return log


def test_one_file_takes_the_place_of_two(store: Store, log: Log) -> None:
    job = swap(store, log)
    assert log.is_swapping
    job.run()
    store.done(job)
    assert log.is_swapping
    turn(store)
    assert not log.is_swapping
    assert [segment.base for segment in log.segments()] == [0, 2, 3]
    assert swap_files(store, log) == []
    assert offsets(log) == offsets(restarted(store)) == [0, 1, 2, 3]


def test_a_file_that_is_not_there_is_not_spoken_of(store: Store, log: Log) -> None:
    job = swap(store, log)
    disk_of(store).unlink(log.swap_name(0))
    job.run()
    store.done(job)
    turn(store)
    assert [segment.base for segment in log.segments()] == [0, 1, 2, 3]
    assert offsets(log) == offsets(restarted(store)) == [0, 1, 2, 3]


def test_nothing_goes_before_what_stands_for_it_is_in_its_place(store: Store, log: Log) -> None:
    """Somebody takes the new file away: the broker must stop, but the old ones are there."""
    job = swap(store, log)
    job.run()
    store.done(job)
    begun = store.begin_turn(0)
    assert begun is not None
    begun.sync()
    disk = disk_of(store)
    disk.unlink(f"{log.directory}/{0:020d}.{job.swap.token}.swap")
    with pytest.raises((OSError, StorageError)):
        store.end_turn(begun, 0)
    logs = [name for name in disk.list(log.directory) if name.endswith(".log")]
    assert logs == [f"{base:020d}.log" for base in range(4)]


@pytest.mark.parametrize("is_staged", [False, True])
def test_a_log_that_is_damaged_meanwhile_keeps_its_files(
    store: Store, log: Log, is_staged: bool
) -> None:
    """What is bad is known by its place in the old files: a repair would write there into the new."""
    job = swap(store, log)
    job.run()
    if is_staged:
        store.done(job)
    log.damage = (Damage(1, 0, log.segments_list[1].size),)
    store.note_damaged(log)
    if not is_staged:
        store.done(job)
    turn(store)
    assert [segment.base for segment in log.segments()] == [0, 1, 2, 3]
    assert swap_files(store, log) == []


@pytest.mark.parametrize("comes", ["before the job", "before its end", "staged"])
def test_a_log_that_begins_again_takes_no_file_of_the_one_before(
    store: Store, log: Log, comes: str
) -> None:
    job = swap(store, log)
    for moment in ("before the job", "before its end", "staged"):
        if moment == comes:
            log.reset(Mark(3, 0, 50, log.marks.last.voters, 50), 50)
        if moment == comes != "staged":
            turn(store)
        if moment == "before the job":
            job.run()
        elif moment == "before its end":
            store.done(job)
    turn(store)
    assert swap_files(store, log) == []
    assert restarted(store).log_start == 50
