"""The fake disk after a sync that failed: what is shown, what is there, what a later sync saves."""

import random

import pytest
from fakes.disk import FakeDisk, FakeFile


def failed(seed: int) -> tuple[FakeDisk, FakeFile]:
    """A file with 64 good bytes and 640 of which the sync failed."""
    disk = FakeDisk(random.Random(seed))
    file = disk.open("file", create=True)
    file.write_at(0, [b"a" * 64])
    file.sync()
    disk.sync_dir(".")
    file.write_at(64, [b"b" * 640])
    disk.is_sync_failing = True
    with pytest.raises(OSError, match="sync failed"):
        file.sync()
    disk.is_sync_failing = False
    return disk, file


@pytest.mark.parametrize("seed", range(20))
def test_a_failed_sync_leaves_pages_that_lie_until_the_cache_is_forgotten(seed: int) -> None:
    disk, file = failed(seed)
    shown = file.read_at(0, 1000)
    assert shown == b"a" * 64 + b"b" * 640
    file.sync()
    disk.kill()
    assert file.read_at(0, 1000) == shown
    file.forget_cache()
    there = file.read_at(0, 1000)
    assert len(there) == len(shown)
    assert there[:64] == b"a" * 64
    assert set(there[64:]) <= {0, ord("b")}
    disk.power_cut()
    assert file.read_at(0, 1000) == there


def test_a_failed_sync_takes_some_pages_and_keeps_some() -> None:
    left = []
    for seed in range(20):
        _, file = failed(seed)
        file.forget_cache()
        left.append(file.read_at(0, 1000).count(b"b"))
    assert min(left) == 0
    assert max(left) == 640
    assert len(set(left)) > 5


@pytest.mark.parametrize("seed", range(20))
def test_what_is_written_after_a_failed_sync_is_synced_and_nothing_else(seed: int) -> None:
    disk, file = failed(seed)
    file.write_at(704, [b"c" * 64])
    file.forget_cache()  # Pages that are to be written stay.
    assert file.read_at(704, 64) == b"c" * 64
    file.sync()
    before = file.read_at(0, 1000)
    disk.power_cut()
    assert file.read_at(0, 1000) == before
