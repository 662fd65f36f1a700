"""Snapshots of producers as files: the newest counts, a crash leaves the old or the new one."""

import random

import pytest
from fakes.disk import FakeDisk

from dmq.errors import StorageError
from dmq.storage.producer_files import DIRECTORY, ProducerFiles


def saved(disk: FakeDisk, uid: int, offset: int, data: bytes) -> ProducerFiles:
    files = ProducerFiles(disk)
    files.write(uid, offset, data)
    files.written(uid, offset)
    return files


def test_the_newest_is_found_again_and_the_one_before_is_gone() -> None:
    disk = FakeDisk(random.Random(1))
    assert ProducerFiles(disk).offset(3) is None
    saved(disk, 3, 10, b"ten")
    saved(disk, 3, 20, b"twenty")
    saved(disk, 4, 5, b"five")
    files = ProducerFiles(disk)
    assert (files.offset(3), files.read(3, 20)) == (20, b"twenty")
    assert (files.offset(4), files.read(4, 5)) == (5, b"five")
    assert len(disk.list(DIRECTORY)) == 2


def test_what_was_written_survives_a_loss_of_power() -> None:
    disk = FakeDisk(random.Random(2))
    disk.make_dir(DIRECTORY)
    disk.sync_dir(".")
    saved(disk, 3, 10, b"ten")
    disk.power_cut()
    files = ProducerFiles(disk)
    assert files.offset(3) == 10
    assert files.read(3, 10) == b"ten"


def test_leftovers_of_a_crash_are_cleared() -> None:
    disk = FakeDisk(random.Random(3))
    saved(disk, 3, 10, b"ten")
    ProducerFiles(disk).write(3, 20, b"twenty")  # The process ended before the old one went.
    disk.open(f"{DIRECTORY}/3-30.tmp", create=True).write_at(0, [b"thir"])
    assert ProducerFiles(disk).offset(3) == 20
    assert disk.list(DIRECTORY) == ["3-00000000000000000020.snap"]


def test_logs_that_are_gone_take_theirs_along() -> None:
    disk = FakeDisk(random.Random(4))
    saved(disk, 3, 10, b"ten")
    files = saved(disk, 4, 5, b"five")
    files.keep_only({4})
    assert (files.offset(3), files.offset(4)) == (None, 5)
    files.forget(4)
    assert disk.list(DIRECTORY) == []


def test_a_full_disk_leaves_nothing_behind() -> None:
    disk = FakeDisk(random.Random(5))
    files = saved(disk, 3, 10, b"ten")
    disk.capacity = disk.used_bytes()
    with pytest.raises(StorageError):
        files.write(3, 20, b"x" * 10_000)
    assert files.offset(3) == 10
    assert disk.list(DIRECTORY) == ["3-00000000000000000010.snap"]
