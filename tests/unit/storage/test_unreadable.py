"""Sectors that the disk gives not back: as good as rot where bytes of ours were, nothing elsewhere."""

import errno

import pytest
from fakes.batches import batch, fill, make_disk, make_log, offsets, open_store, run_jobs
from fakes.disk import FakeDisk, FakeFile

from dmq.errors import CorruptError, StorageError
from dmq.storage.files import read_around
from dmq.storage.journal import file_name
from dmq.storage.log import Log, LogSettings
from dmq.storage.store import Store, StoreSettings

WIDE = StoreSettings(journal_bytes=512 * 1024, journal_file_bytes=64 * 1024, reserve_bytes=0)
"""Files of many sectors."""


def forget(log: Log) -> None:
    for segment in log.segments_list:
        segment.index, segment.trusted_bytes = None, 0
        segment.hints.clear()


def written(count: int = 12, settings: LogSettings | None = None) -> tuple[FakeDisk, Store, Log]:
    disk = make_disk()
    store = open_store(disk, WIDE)
    log = make_log(store, settings or LogSettings(segment_bytes=1 << 20, index_interval_bytes=100))
    fill(store, log, count, size=1000)
    return disk, store, log


def test_what_can_be_read_is_read_and_the_rest_is_damage() -> None:
    disk, store, log = written()
    store.request_flush(log)
    run_jobs(store)
    size = len(batch(0, size=1000))
    disk.spoil(log.segments_list[0].name(), 7 * size + 5)
    forget(log)
    assert log.read(0, 100, 12)
    with pytest.raises(StorageError):
        log.read(9, 100, 12)
    assert [(d.segment, d.start) for d in log.damage] == [(0, 7 * size)]
    assert store.take_damaged() == [log]


def test_any_other_failure_is_no_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, log = written()
    forget(log)
    with monkeypatch.context() as patch:

        def refused(file: FakeFile, position: int, length: int) -> bytes:
            raise OSError(errno.ENOMEM, "not now")

        patch.setattr(FakeFile, "read_at", refused)
        with pytest.raises(OSError, match="not now"):
            log.read(9, 100, 12)
        with pytest.raises(OSError, match="not now"):
            log.can_cut(9)
    assert not log.is_damaged
    assert offsets(log) == list(range(12))


def test_a_log_can_end_before_what_can_not_be_read_but_not_behind_it() -> None:
    disk, _, log = written()
    disk.spoil(log.segments_list[0].name(), 7 * len(batch(0, size=1000)))
    forget(log)
    assert log.can_cut(6)
    assert log.can_cut(7)
    assert not log.can_cut(9)


def test_an_index_file_that_can_not_be_read_is_made_anew() -> None:
    disk, store, log = written()
    segment = log.segments_list[0]
    store.close(0)
    for suffix in ("index", "timeindex"):
        disk.spoil(segment.name(suffix), 3)
    (log,) = open_store(disk, WIDE).logs.values()
    assert offsets(log, 9) == [9, 10, 11]


def journal_end(disk: FakeDisk) -> tuple[str, int]:
    """The newest journal file, and where its records end."""
    name = file_name(max(int(n) for n in disk.list("journal") if n.isdigit()))
    data = disk.open(name).read_at(0, 1 << 20)
    return name, len(data.rstrip(b"\0"))


@pytest.mark.parametrize("is_clean", [False, True])
def test_a_sector_of_the_journal_that_nobody_wrote_keeps_nobody_from_starting(
    is_clean: bool,
) -> None:
    disk, store, _ = written()
    name, end = journal_end(disk)
    disk.spoil(name, end + 5000, 100)
    if is_clean:
        store.close(0)
    disk.kill()
    again = open_store(disk, WIDE)
    (log,) = again.logs.values()
    assert offsets(log) == list(range(12))
    assert again.recovery.rotten is None


@pytest.mark.parametrize("back", [-4, 20, 5000])
def test_a_sector_that_may_have_had_the_last_promise_is_rot(back: int) -> None:
    """A torn write can be read; what can't may have been many turns."""
    disk, _, _ = written()
    disk.kill()
    name, end = journal_end(disk)
    disk.spoil(name, end - back)
    with pytest.raises(CorruptError, match="lost what it promised"):
        open_store(disk, WIDE)
    again = Store.open(disk, WIDE, now=0, accept_rotten=True)
    assert again.recovery.rotten is not None
    (log,) = again.logs.values()
    assert log.is_forgotten


def test_an_async_log_is_read_on_to_what_can_not_be_read() -> None:
    settings = LogSettings(segment_bytes=1 << 20, is_async=True)
    disk, _, log = written(settings=settings)
    name = log.segments_list[0].name()
    disk.kill()
    disk.spoil(name, 7 * len(batch(0, size=1000)) + 500)
    (log,) = open_store(disk, WIDE).logs.values()
    assert offsets(log) == list(range(7))


def test_zeros_stand_for_what_can_not_be_read() -> None:
    disk = make_disk()
    file = disk.open("some", create=True)
    file.write_at(0, [b"x" * 30_000])
    disk.spoil("some", 9000)
    disk.spoil("some", 20_480, 4096)
    expected = bytearray(b"x" * 30_000)
    expected[8192:12_288] = bytes(4096)
    expected[20_480:24_576] = bytes(4096)
    for start, length in ((0, 40_000), (100, 29_000), (29_999, 5), (30_000, 1)):
        assert read_around(file, start, length) == expected[start : start + length]


def test_a_write_makes_it_readable_again() -> None:
    disk = make_disk()
    file = disk.open("some", create=True)
    file.write_at(0, [b"x" * 100])
    disk.spoil("some", 10, 20)
    with pytest.raises(OSError, match="nothing back"):
        file.read_at(0, 11)
    file.write_at(5, [b"y" * 10])
    assert file.read_at(0, 15) == b"x" * 5 + b"y" * 10
    with pytest.raises(OSError, match="nothing back"):
        file.read_at(0, 16)


def test_a_spare_journal_file_that_can_not_be_read_keeps_nobody_from_starting() -> None:
    disk, store, log = written()
    spares = [*store._journal.spares]
    assert spares, "there is one, or this test says nothing"
    for name in spares:
        disk.spoil(name, 0)
    disk.kill()
    again = open_store(disk, WIDE)
    assert offsets(again.logs[log.uid]) == [*range(12)]
