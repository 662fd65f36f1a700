"""The operating system behind `Files`, for real."""

import contextlib
import errno
import gc
import mmap
import os
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from fakes.batches import fill, make_log, offsets, open_store

from dmq.storage import files as module
from dmq.storage.files import Buffer, OsFiles
from dmq.storage.log import LogSettings


@pytest.fixture
def disk(tmp_path: Path) -> OsFiles:
    return OsFiles(str(tmp_path / "data"))


def test_writes_land_where_they_should(disk: OsFiles) -> None:
    file = disk.open("file", create=True)
    file.write_at(0, [b"0123456789"])
    file.write_at(4, [b"ab", bytearray(b"cd"), memoryview(b"ef")])
    assert file.read_at(0, 100) == b"0123abcdef"
    assert file.read_at(8, 2) == b"ef"
    assert file.read_at(50, 2) == b""
    assert file.size() == 10


def test_more_parts_than_the_system_takes_at_once(disk: OsFiles) -> None:
    parts = [bytes([n % 251]) * (n % 3) for n in range(module.IOV_MAX * 2 + 5)]
    file = disk.open("file", create=True)
    file.write_at(7, parts)
    assert file.read_at(7, 10_000) == b"".join(parts)


def test_a_short_write_is_finished(disk: OsFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda fd, parts, at, flags: real(fd, [parts[0][:1]], at))
    file = disk.open("file", create=True)
    file.write_at(3, [b"hello", b" ", b"world"])
    assert file.read_at(3, 100) == b"hello world"


PAGE = mmap.PAGESIZE


@pytest.fixture
def can_drop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAY_DROP", True)


@pytest.mark.usefixtures("can_drop")
@pytest.mark.parametrize("error", [None, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS])
def test_bytes_that_nobody_reads_soon_land_too(
    disk: OsFiles, monkeypatch: pytest.MonkeyPatch, error: int | None
) -> None:
    real, flagged = os.pwritev, list[tuple[int, int]]()

    def pwritev(fd: int, parts: Sequence[Buffer], at: int, flags: int = 0) -> int:
        if flags:
            flagged.append((at, at + sum(map(len, parts))))
            if error is not None:
                raise OSError(error, "not here")
            flags = 0  # The system may not have it, and short writes are what counts.
            parts = [parts[0][: len(parts[0]) // 2 + 1]]
        return real(fd, parts, at, flags)

    monkeypatch.setattr(os, "pwritev", pwritev)
    file = disk.open("file", create=True)
    parts = [bytes([n % 251]) * (n % 11 + 1) for n in range(module.IOV_MAX + 5)]
    size = sum(map(len, parts))
    assert size % PAGE
    for start in (3, 3 + size):
        file.write_at(start, parts, is_cached=False)
    assert file.read_at(3, 2 * size) == 2 * b"".join(parts)
    ends = [(3 + size) // PAGE * PAGE, (3 + 2 * size) // PAGE * PAGE]
    if error is None:
        assert [end for _, end in flagged if end % PAGE == 0] == ends, "the last page stays"
    else:
        assert len(flagged) == 1, "a system that can't is asked once"


@pytest.mark.parametrize("start", [0, 1, PAGE - 1, PAGE])
@pytest.mark.parametrize("size", [1, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE])
def test_wherever_the_pages_begin(disk: OsFiles, start: int, size: int) -> None:
    file = disk.open("file", create=True)
    data = bytes(n % 251 for n in range(size))
    file.write_at(start, [data[:7], memoryview(data)[7:]], is_cached=False)
    assert file.read_at(start, size) == data
    assert file.size() == start + size


@pytest.mark.parametrize(
    ("release", "may"),
    [
        ("6.18.44-fc-v669", True),
        ("6.16.0", True),
        ("7.0", True),
        ("10.1.2", True),
        ("6.15.11-200.fc42.x86_64", False),
        ("6.14.0", False),
        ("6.1.0-28-amd64", False),
        ("5.15.167.4-microsoft-standard-WSL2", False),
        ("unknown", False),
    ],
)
def test_only_kernels_that_do_it_right_are_asked(release: str, may: bool) -> None:
    assert module._may_drop(release) is may


def test_other_kernels_are_not_asked(disk: OsFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAY_DROP", False)
    real, asked = os.pwritev, list[int]()

    def pwritev(fd: int, parts: Sequence[Buffer], at: int, flags: int = 0) -> int:
        asked.append(flags)
        return real(fd, parts, at, flags)

    monkeypatch.setattr(os, "pwritev", pwritev)
    file = disk.open("file", create=True)
    file.write_at(0, [bytes(PAGE), b"x"], is_cached=False)
    assert asked == [0]
    assert file.read_at(0, 2 * PAGE) == bytes(PAGE) + b"x"


@pytest.mark.usefixtures("can_drop")
def test_other_errors_of_such_a_write_are_told(
    disk: OsFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pwritev(*_args: object) -> int:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "pwritev", pwritev)
    with pytest.raises(OSError, match="full"):
        disk.open("file", create=True).write_at(0, [bytes(PAGE)], is_cached=False)


def test_what_nobody_reads_soon_leaves_the_page_cache(disk: OsFiles) -> None:
    file = disk.open("file", create=True)
    file.write_at(0, [bytes(PAGE)], is_cached=False)
    if not file._may_drop:
        pytest.skip("this system or file system has no such writes")
    size = 4 << 20
    for start in range(0, size, 1 << 20):
        file.write_at(start, [bytes(1 << 20)], is_cached=False)
    file.sync()
    deadline = time.monotonic() + 30
    while file.is_cached(0, size):
        assert time.monotonic() < deadline
    assert file.read_at(0, size) == bytes(size)


def test_cut_and_allocate(disk: OsFiles) -> None:
    file = disk.open("file", create=True)
    file.allocate(8192)
    assert file.size() == 8192
    file.cut(10)
    assert file.size() == 10
    file.sync()
    file.forget_cache()


def test_cached_ranges(disk: OsFiles) -> None:
    file = disk.open("file", create=True)
    file.write_at(0, [bytes(1 << 20)])
    assert file.is_cached(0, 1 << 20)
    assert file.is_cached(0, 0)


def test_names(disk: OsFiles) -> None:
    disk.make_dir("a")
    disk.make_dir("a")
    disk.open("a/two", create=True).write_at(0, [b"xy"])
    disk.open("a/one", create=True)
    assert disk.list("a") == ["one", "two"]
    assert disk.sizes("a") == {"one": 0, "two": 2}
    assert disk.list("nowhere") == []
    assert disk.sizes("nowhere") == {}
    disk.rename("a/two", "three")
    assert disk.exists("three")
    assert not disk.exists("a/two")
    disk.unlink("a/one")
    disk.sync_dir("a")
    disk.remove_dir("a")
    disk.sync_dir(".")
    assert not disk.exists("a")
    with pytest.raises(FileNotFoundError):
        disk.open("nothing")


def test_one_may_hold_the_lock(disk: OsFiles) -> None:
    disk.lock()
    other = OsFiles(disk.root)
    with pytest.raises(BlockingIOError):
        other.lock()
    disk.unlock()
    other.lock()


def test_the_machine(disk: OsFiles) -> None:
    assert disk.free_bytes() > 0
    assert disk.boot_id() == OsFiles(disk.root).boot_id()
    assert disk.new_id() != disk.new_id()
    disk.sync_all()


def test_a_file_closes_with_its_last_reference(disk: OsFiles) -> None:
    file = disk.open("file", create=True)
    fd = file.fileno()
    same = file
    del file
    os.fstat(fd)
    del same
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_reserved_blocks_make_no_file_longer(disk: OsFiles) -> None:
    file = disk.open("file", create=True)
    file.write_at(0, [b"hello"])
    if not file.reserve(1 << 20):
        pytest.skip("this file system can't")
    assert file.size() == 5
    assert os.fstat(file.fileno()).st_blocks * 512 >= 1 << 20


def test_a_full_disk_is_told_by_a_reservation(disk: OsFiles) -> None:
    file = disk.open("file", create=True)
    with pytest.raises(OSError, match="file"):
        file.reserve(1 << 62)


def test_bytes_may_go_to_the_disk_before_the_sync(disk: OsFiles) -> None:
    file = disk.open("file", create=True)
    file.write_at(0, [b"hello"])
    file.start_sync()
    file.start_sync(0, 5, waits=True)
    file.sync()
    assert file.read_at(0, 5) == b"hello"


@contextlib.contextmanager
def no_descriptors() -> Iterator[Callable[[], None]]:
    """All that the process may have are taken; call it to take those that came free since, such as a
    former test's that was collected."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    first = os.open("/dev/null", os.O_RDONLY)
    resource.setrlimit(resource.RLIMIT_NOFILE, (first + 50, hard))

    def take() -> None:
        gc.collect()
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.dup(first))

    try:
        take()
        yield take
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in (first, *taken):
            os.close(fd)


def test_directories_are_synced_though_there_is_no_descriptor_left(disk: OsFiles) -> None:
    for name in ("journal", "logs", "logs/7"):
        disk.make_dir(name)
    with no_descriptors() as take:
        for _ in range(10):
            for name in (".", "journal", "logs", "logs/7"):
                disk.sync_dir(name)
        take()
        with pytest.raises(OSError, match="Too many open files"):
            disk.open("logs/7/file", create=True)


def test_the_journal_goes_on_in_its_next_file_though_there_is_no_descriptor_left(
    disk: OsFiles,
) -> None:
    store = open_store(disk)
    log = make_log(store, LogSettings(segment_bytes=1 << 20))
    fill(store, log, 3)
    number = store._journal.files[-1].number
    with no_descriptors():
        fill(store, log, 60)
    assert store._journal.files[-1].number >= number + 2
    assert offsets(log) == list(range(63))


def test_descriptors_are_given_back(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    disk = OsFiles(str(tmp_path / "data"))
    for name in ("journal", "logs", "logs"):
        disk.make_dir(name)
    disk.sync_dir("logs")
    del disk
    assert len(list(Path("/proc/self/fd").iterdir())) == before
