"""After a failed sync the page cache is not believed, though the boot is the same."""

import pytest
from fakes.batches import fill, make_disk, make_log, open_store, run_jobs
from fakes.disk import FakeDisk

from dmq.errors import FatalStorageError
from dmq.storage import distrust
from dmq.storage.log import Log, LogSettings
from dmq.storage.store import Store

ASYNC = LogSettings(is_async=True, flush_ms=100, segment_bytes=1000)


def life(disk: FakeDisk) -> tuple[Store, Log]:
    """A store in which one sync of an async log has failed."""
    store = open_store(disk)
    log = make_log(store, ASYNC)
    fill(store, log, 12, size=50)
    disk.is_sync_failing = True
    with pytest.raises(FatalStorageError):
        run_jobs(store, 100)
    disk.kill()
    disk.is_sync_failing = False
    return store, log


def test_an_async_log_has_lost_its_tail_when_a_sync_failed() -> None:
    disk = make_disk()
    life(disk)
    assert distrust.is_noted(disk)
    store = open_store(disk)
    (found,) = store.logs.values()
    assert found.is_recovering
    assert not store.recovery.is_same_boot


def test_the_next_start_is_told_once_and_remembers() -> None:
    disk = make_disk()
    life(disk)
    open_store(disk)
    assert not distrust.is_noted(disk)
    disk.kill()
    store = open_store(disk)
    (found,) = store.logs.values()
    assert store.recovery.is_same_boot
    assert found.is_recovering


def test_a_start_whose_own_sync_fails_tells_the_next_one() -> None:
    disk = make_disk()
    store = open_store(disk)
    fill(store, make_log(store, ASYNC), 12, size=50)
    disk.kill()
    disk.is_sync_failing = True
    with pytest.raises((OSError, FatalStorageError)):
        open_store(disk)
    disk.kill()
    disk.is_sync_failing = False
    (found,) = open_store(disk).logs.values()
    assert found.is_recovering


def test_a_disk_that_takes_not_even_the_mark_changes_nothing() -> None:
    disk = make_disk()

    def refuse(name: str, *, create: bool = False) -> None:
        raise OSError(30, "read-only file system", name)

    disk.open = refuse  # type: ignore[assignment, method-assign]
    distrust.note(disk)
    assert not distrust.is_noted(disk)
