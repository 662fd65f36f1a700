"""What is good of a damaged log is adopted: what must be on disk by then."""

import pytest
from fakes.batches import SMALL, fill, make_disk, make_log, offsets, open_store, turn
from fakes.disk import FakeDisk

from dmq.records import scan
from dmq.storage.cleaner import FlushJob
from dmq.storage.items import Damage
from dmq.storage.log import Log, LogSettings
from dmq.storage.salvage import SalvageJob
from dmq.storage.store import Store


def fail(error: OSError) -> None:
    raise error


def flush(store: Store, log: Log) -> None:
    store.request_flush(log)
    for job in store.maintain(0):
        job.run()
        store.done(job)
    turn(store)


def damage(store: Store, disk: FakeDisk, log: Log, at: int) -> None:
    """The first byte of this segment rots, and somebody finds it."""
    segment = log.segments_list[at]
    disk.flip(segment.name(), 3)
    log.damage = (*log.damage, Damage(segment.base, 0, segment.size))
    store.note_damaged(log)


def made(disk: FakeDisk, *, flushed: int = 2, more: int = 3) -> tuple[Store, Log]:
    """One batch per segment; some flushed, then some that only the journal has."""
    store = open_store(disk)
    log = make_log(store, LogSettings(segment_bytes=1))
    fill(store, log, flushed)
    flush(store, log)
    fill(store, log, more)
    return store, log


@pytest.mark.parametrize("seed", range(10))
def test_nothing_that_a_flush_has_yet_to_sync_counts_as_flushed(seed: int) -> None:
    """The worker that has the flush hangs in the disk, while another one salvages."""
    disk = make_disk(seed)
    store, log = made(disk)
    damage(store, disk, log, 0)
    (hanging,) = store.maintain(0)
    assert isinstance(hanging, FlushJob)
    store.salvage(log, fail)
    for job in store.maintain(0):
        job.run()
        store.done(job)
    turn(store)
    disk.power_cut()
    (found,) = Store.open(disk, SMALL, now=0).logs.values()
    assert found.damage == (), "the note of what was found was lost, nothing else"
    assert offsets(found, 1) == [*range(1, 5)]


def test_it_is_salvaged_when_the_flush_has_ended() -> None:
    disk = make_disk()
    store, log = made(disk)
    damage(store, disk, log, 0)
    (flushing,) = store.maintain(0)
    store.salvage(log, fail)
    assert store.maintain(0) == []
    flushing.run()
    store.done(flushing)
    turn(store)
    store.salvage(log, fail)
    (job,) = store.maintain(0)
    assert isinstance(job, SalvageJob)
    job.run()
    store.done(job)
    turn(store)
    assert not log.is_damaged
    disk.power_cut()
    (found,) = Store.open(disk, SMALL, now=0).logs.values()
    assert not found.is_damaged
    assert offsets(found) == [*range(5)]


def test_what_others_have_sent_meanwhile_is_not_given_up() -> None:
    disk = make_disk()
    store, log = made(disk)
    flush(store, log)
    damage(store, disk, log, 0)
    flush(store, log)
    store.salvage(log, fail)
    (job,) = store.maintain(0)
    job.run()
    disk.flip(log.segments_list[0].name(), 3)  # As it was; see `Repair._finish`.
    log.damage = ()
    log.unsynced[log.segments_list[0]] = None
    store.request_flush(log)
    store.done(job)
    turn(store)
    assert log.gaps == ()
    assert offsets(log) == [*range(5)]
    data = b"".join(part.pread() for part in log.read(0, 1000, 5))
    assert [header.record_count for _, header in scan(data)] == [1] * 5
    assert not any(name.endswith(".swap") for name in disk.list(log.directory))


@pytest.mark.parametrize("seed", range(5))
def test_a_folder_that_was_made_anew_is_durable(seed: int) -> None:
    disk = make_disk(seed)
    store, log = made(disk, more=0)
    for name in disk.list(log.directory):
        disk.unlink(f"{log.directory}/{name}")
    disk.remove_dir(log.directory)
    disk.sync_dir("logs")
    log.damage = tuple(Damage(each.base, 0, each.size) for each in log.segments_list)
    for segment in log.segments_list:
        store.pool.forget(segment)
    store.salvage(log, fail)
    (job,) = store.maintain(0)
    job.run()
    store.done(job)
    turn(store)
    assert not log.is_damaged
    disk.power_cut()
    (found,) = Store.open(disk, SMALL, now=0).logs.values()
    assert not found.is_damaged
    assert found.end_offset == 2
