"""One log: staging, layout, reads. Recovery is the model's business."""

import gc
import os
import random
from pathlib import Path
from uuid import UUID

import pytest
from fakes.batches import (
    SMALL,
    batch,
    fill,
    make_disk,
    make_log,
    offsets,
    open_store,
    run_jobs,
    turn,
)

from dmq.errors import KafkaError, StorageError
from dmq.records import Record, build_batch, filler, read_header, scan
from dmq.storage.compaction_batch import empty_batch
from dmq.storage.files import OsFiles
from dmq.storage.log import Log, LogSettings
from dmq.storage.store import Store
from dmq.types import Mark, Position, Voter

VOTERS = (Voter(1, UUID(int=1)),)


@pytest.fixture
def store() -> Store:
    return open_store(make_disk())


@pytest.fixture
def log(store: Store) -> Log:
    return make_log(store, LogSettings(segment_bytes=1000, index_interval_bytes=100))


def headers(log: Log, offset: int, bytes_max: int, end: int) -> list[int]:
    raw = b"".join(part.pread() for part in log.read(offset, bytes_max, end))
    return [header.base_offset for _, header in scan(raw)]


# ---- staging


def test_nothing_is_written_before_the_turn(store: Store, log: Log) -> None:
    log.append(batch(0, count=3))
    assert log.end_offset == 3
    assert log.stable_end.offset == 0
    assert log.read(0, 100, 3) == []
    begun = store.begin_turn(0)
    assert begun is not None
    assert log.stable_end.offset == 0, "not before its sync"
    begun.sync()
    assert store.end_turn(begun, 0) == [log]
    assert log.stable_end == (0, 0, 3)


def test_one_turn_at_a_time_and_the_next_gathers(store: Store, log: Log) -> None:
    log.append(batch(0))
    first = store.begin_turn(0)
    assert first is not None
    log.append(batch(1))
    assert store.begin_turn(0) is None
    first.sync()
    store.end_turn(first, 0)
    assert log.stable_end.offset == 1
    turn(store)
    assert log.stable_end.offset == 2


def test_several_batches_in_one_append(store: Store, log: Log) -> None:
    log.append(bytes(batch(0, count=2)) + bytes(batch(2)) + bytes(batch(3, count=5)))
    turn(store)
    assert offsets(log) == [0, 2, 3]
    assert log.end_offset == 8


@pytest.mark.parametrize("bad", [batch(1), batch(0, epoch=7)])
def test_a_batch_must_be_stamped_with_its_place(log: Log, bad: bytearray) -> None:
    with pytest.raises(AssertionError):
        log.append(bad)


def test_marks_and_hard_state(store: Store, log: Log) -> None:
    log.set_hard(3, VOTERS[0])
    log.add_mark(Mark(3, 0, 0, VOTERS, 0))
    log.append(batch(0, epoch=3))
    assert log.end == (3, 0, 1)
    turn(store)
    assert log.stable_end == (3, 0, 1)
    assert (log.epoch, log.vote) == (3, VOTERS[0])
    with pytest.raises(AssertionError):
        log.set_hard(2, None)


# ---- layout


def test_segments_roll_by_size(store: Store, log: Log) -> None:
    fill(store, log, 30, size=50)
    infos = log.segments()
    assert len(infos) > 3
    assert all(info.size <= 1000 for info in infos)
    assert [info.is_active for info in infos] == [False] * (len(infos) - 1) + [True]
    assert sum(info.size for info in infos) == log.size_bytes
    assert offsets(log) == [*range(30)]


def test_a_batch_larger_than_a_segment_has_one_of_its_own(store: Store, log: Log) -> None:
    for size in (10, 3000, 10):
        log.append(batch(log.end_offset, size=size))
    turn(store)
    assert [info.base for info in log.segments()] == [0, 1, 2]


def test_segments_roll_by_time(store: Store) -> None:
    log = make_log(store, LogSettings(segment_ms=100))
    for timestamp in (1000, 1100, 1101, 1150, 1300):
        log.append(batch(log.end_offset, timestamp=timestamp))
        turn(store)
    assert [info.base for info in log.segments()] == [0, 2, 4]
    assert not log.due_roll(1400)
    assert log.due_roll(1401)


def test_roll_on_demand(store: Store, log: Log) -> None:
    fill(store, log, 1)
    log.roll()
    fill(store, log, 2)
    assert [info.base for info in log.segments()] == [0, 1]


def test_trim_drops_whole_segments(store: Store, log: Log) -> None:
    fill(store, log, 30, size=50)
    bases = [info.base for info in log.segments()]
    log.commit = log.stable_end
    log.trim(bases[2] + 1)
    turn(store)
    assert log.log_start == bases[2] + 1
    assert [info.base for info in log.segments()] == bases[2:]
    assert offsets(log) == [*range(bases[2] + 1, 30)]
    with pytest.raises(KafkaError, match="OFFSET_OUT_OF_RANGE"):
        log.read(bases[2], 100, 30)


def test_trim_to_the_end_leaves_an_empty_log(store: Store, log: Log) -> None:
    fill(store, log, 5)
    log.trim(5, log.stable_end)
    turn(store)
    assert log.size_bytes == 0
    assert log.read(5, 100, 5) == []
    fill(store, log, 2)
    assert offsets(log) == [5, 6]


def test_files_that_are_kept_stay_below_the_log_start_until_they_may_go(
    store: Store, log: Log
) -> None:
    fill(store, log, 30, size=50)
    bases = [info.base for info in log.segments()]
    log.trim(bases[3], log.stable_end)
    log.keep_files(bases[1] + 1)
    turn(store)
    assert [info.base for info in log.segments()] == bases[1:]
    assert offsets(log) == [*range(bases[3], 30)]
    store._files.kill()  # type: ignore[attr-defined]
    store = open_store(store._files)
    (log,) = store.logs.values()
    assert log.log_start == bases[3]
    assert [info.base for info in log.segments()] == bases[1:]
    removed = log.read_removed(bases[1] + 1, bases[3])
    assert sum(len([*scan(part.pread())]) for part in removed) == bases[3] - bases[1] - 1
    log.keep_files(bases[2])
    turn(store)
    assert [info.base for info in log.segments()] == bases[2:]
    log.keep_files(None)
    turn(store)
    assert [info.base for info in log.segments()] == bases[3:]
    log.keep_files(None)
    assert not store.has_work()


@pytest.mark.parametrize("more", [0, 2])
def test_files_that_are_kept_of_a_log_that_is_trimmed_to_its_end(
    store: Store, log: Log, more: int
) -> None:
    fill(store, log, 5)
    log.trim(5, log.stable_end)
    log.keep_files(0)
    turn(store)
    assert log.size_bytes
    fill(store, log, more)
    assert offsets(log) == [*range(5, 5 + more)]
    log.keep_files(None)
    turn(store)
    assert [info.base for info in log.segments()] == [5]
    store._files.kill()  # type: ignore[attr-defined]
    (again,) = open_store(store._files).logs.values()
    assert (again.log_start, offsets(again)) == (5, [*range(5, 5 + more)])


def test_files_of_the_log_before_a_reset_are_not_read(store: Store, log: Log) -> None:
    fill(store, log, 5)
    log.reset(Mark(1, 0, 3, VOTERS, 3), 3)
    with pytest.raises(StorageError):
        log.read_removed(0, 3)


def test_cut_drops_records_and_marks(store: Store, log: Log) -> None:
    fill(store, log, 20, size=50)
    log.add_mark(Mark(1, 0, 20, VOTERS, 0))
    log.append(batch(20, epoch=1))
    turn(store)
    log.cut(Position(0, 0, 7))
    assert log.end == (0, 0, 7)
    assert log.stable_end == (0, 0, 7)
    turn(store)
    assert offsets(log) == [*range(7)]
    fill(store, log, 3)
    assert offsets(log) == [*range(10)]


def test_a_log_that_is_cut_writes_nothing_before_its_turn_is_durable(
    store: Store, log: Log
) -> None:
    fill(store, log, 10)
    files = log._host.pool.files
    before = {name: files.open(f"{log.directory}/{name}").read_at(0, 9999) for name in
              files.list(log.directory) if name.endswith(".log")}  # fmt: skip
    log.cut(Position(0, 0, 4))
    log.append(batch(4, size=77))
    begun = store.begin_turn(0)
    assert begun is not None
    for name, data in before.items():
        assert files.open(f"{log.directory}/{name}").read_at(0, len(data)) == data
    assert headers(log, 0, 9999, 99) == [0, 1, 2, 3], "readers stop at the cut"
    begun.sync()
    store.end_turn(begun, 0)
    assert offsets(log) == [0, 1, 2, 3, 4]


def test_what_is_staged_and_cut_never_happens(store: Store, log: Log) -> None:
    fill(store, log, 3)
    log.append(batch(3))
    log.append(batch(4))
    log.cut(Position(0, 0, 4))
    turn(store)
    assert offsets(log) == [0, 1, 2, 3]


def test_a_turn_that_ends_after_a_staged_cut_promises_no_more_than_both_have(
    store: Store, log: Log
) -> None:
    fill(store, log, 3)
    log.append(batch(3, count=16))
    begun = store.begin_turn(0)
    assert begun is not None
    begun.sync()
    log.cut(Position(0, 0, 2))
    log.add_mark(Mark(0, 1, 2, VOTERS, 0))
    store.end_turn(begun, 0)
    assert log.stable_end == (0, 0, 2)
    turn(store)
    assert log.stable_end == (0, 1, 2)


def test_offsets_that_are_staged_again_after_a_cut_are_not_promised(store: Store, log: Log) -> None:
    log.append(batch(0, count=4))
    begun = store.begin_turn(0)
    assert begun is not None
    begun.sync()
    log.cut(Position(0, 0, 0))
    log.append(batch(0, count=4, size=99))
    store.end_turn(begun, 0)
    assert log.stable_end == (0, 0, 0)
    turn(store)
    assert log.stable_end == (0, 0, 4)


def test_reset_begins_an_empty_log_elsewhere(store: Store, log: Log) -> None:
    fill(store, log, 10)
    log.reset(Mark(4, 0, 100, VOTERS, 100), 100)
    assert log.stable_end.epoch == -1
    turn(store)
    assert log.end == log.stable_end == (4, 0, 100)
    log.append(batch(100, epoch=4))
    turn(store)
    assert offsets(log) == [100]
    disk = store._files
    disk.kill()  # type: ignore[attr-defined]
    (again,) = open_store(disk).logs.values()
    assert offsets(again) == [100]


# ---- reading


def test_reads_begin_at_the_batch_that_holds_the_offset(store: Store, log: Log) -> None:
    for base in (0, 5, 10, 15):
        log.append(batch(base, count=5))
    turn(store)
    for offset in range(20):
        assert headers(log, offset, 1, 20) == [offset - offset % 5]


def test_reads_stop_at_the_high_watermark(store: Store, log: Log) -> None:
    fill(store, log, 20, size=50)
    assert headers(log, 0, 1 << 20, 11) == [*range(11)]
    assert headers(log, 11, 1 << 20, 11) == []
    assert log.read(20, 100, 20) == []
    with pytest.raises(KafkaError):
        log.read(21, 100, 20)


def test_a_bound_within_a_batch_stops_before_it(store: Store, log: Log) -> None:
    log.append(batch(0, count=5))
    log.append(batch(5, count=5))
    turn(store)
    assert headers(log, 0, 1 << 20, 7) == [0]


def test_size_bounds_cut_anywhere_but_in_the_first_batch(store: Store, log: Log) -> None:
    fill(store, log, 5)
    size = read_header(log.read(0, 1, 5)[0].pread()).size
    assert len(log.read(0, 1, 5)[0]) == size
    assert len(log.read(0, size + 7, 5)[0]) == size + 7
    assert sum(map(len, log.read(0, 7, 5, whole_first_batch=False))) == 7
    assert sum(map(len, log.read(0, 0, 5, whole_first_batch=False))) == 0


def test_reads_cross_segments(store: Store, log: Log) -> None:
    fill(store, log, 30, size=50)
    assert len(log.read(0, 1 << 20, 30)) == len(log.segments())
    assert headers(log, 0, 1 << 20, 30) == [*range(30)]


def test_random_reads_agree_with_a_scan_after_a_restart(store: Store, log: Log) -> None:
    for n in range(40):
        log.append(batch(log.end_offset, count=n % 4 + 1, size=20))
        turn(store)
    expected = {offset: headers(log, offset, 1, log.end_offset) for offset in range(log.end_offset)}
    store._files.kill()  # type: ignore[attr-defined]
    (again,) = open_store(store._files).logs.values()
    for offset in reversed(range(again.end_offset)):
        assert headers(again, offset, 1, again.end_offset) == expected[offset]


def test_timestamps(store: Store, log: Log) -> None:
    for n, timestamp in enumerate((100, 300, 200, 500, 400, 500)):
        log.append(batch(n, timestamp=timestamp, size=100))
        turn(store)

    def first(timestamp: int, end: int = 6) -> int | None:
        found = log.find_timestamp(timestamp, end)
        return None if found is None else found.base_offset

    assert [first(t) for t in (0, 100, 101, 300, 301, 500, 501)] == [0, 0, 1, 1, 3, 3, None]
    assert first(301, end=3) is None
    newest = log.find_max_timestamp(6)
    assert newest is not None
    assert (newest.base_offset, newest.max_timestamp) == (3, 500)
    newest = log.find_max_timestamp(3)
    assert newest is not None
    assert newest.max_timestamp <= 300
    assert read_header(newest.slice.pread()).base_offset == newest.base_offset
    assert log.segments()[0].max_timestamp == 500


def emptied(base: int, *, timestamp: int) -> bytearray:
    """A batch whose records compaction took, and whose sequence it kept."""
    raw = batch(base, timestamp=timestamp)
    return empty_batch(read_header(raw))


def test_batches_without_records_have_no_record_of_any_time(store: Store, log: Log) -> None:
    for n, timestamp in enumerate((100, 900, 300)):
        made = emptied(n, timestamp=timestamp) if n == 1 else batch(n, timestamp=timestamp)
        log.append(made)
    log.roll()
    log.append(emptied(3, timestamp=800))
    log.roll()
    log.append(batch(4, timestamp=400))
    turn(store)
    found = [log.find_timestamp(timestamp, 5) for timestamp in (100, 200, 301, 500)]
    assert [each and each.base_offset for each in found] == [0, 2, 4, None]
    newest = log.find_max_timestamp(5)
    assert newest is not None
    assert (newest.base_offset, newest.max_timestamp) == (4, 400)
    newest = log.find_max_timestamp(4)
    assert newest is not None
    assert newest.base_offset == 2


@pytest.mark.parametrize("is_restarted", [False, True])
def test_what_stands_for_compacted_batches_is_not_of_long_ago(
    store: Store, is_restarted: bool
) -> None:
    """It has no time: what follows is not too late for its segment, nor for what looks at its age."""
    log = make_log(store, LogSettings(segment_ms=100))
    log.append(filler(0, 5, 0))
    turn(store)
    for n, timestamp in enumerate((1000, 1050, 1101)):
        if is_restarted:
            log.segments_list[-1].first_timestamp = None
        assert not log.due_roll(1050)
        log.append(batch(5 + n, timestamp=timestamp))
        turn(store)
    assert [info.base for info in log.segments()] == [0, 7]
    assert log.reader(log.segments_list[0]).first_timestamp() == 1000


def test_timestamps_below_the_log_start_do_not_count(store: Store, log: Log) -> None:
    fill(store, log, 6)
    log.trim(3, log.stable_end)
    turn(store)
    found = log.find_timestamp(0, 6)
    assert found is not None
    assert found.base_offset == 3


def test_timestamps_of_files_that_are_kept_do_not_count(store: Store, log: Log) -> None:
    for n, timestamp in enumerate((900, 800, 300, 200)):
        log.append(batch(n, timestamp=timestamp, size=10))
        log.roll()
        turn(store)
    log.trim(2, log.stable_end)
    log.keep_files(0)
    turn(store)
    assert [info.base for info in log.segments()] == [0, 1, 2, 3]
    newest = log.find_max_timestamp(4)
    assert newest is not None
    assert (newest.base_offset, newest.max_timestamp) == (2, 300)
    found = log.find_timestamp(100, 4)
    assert found is not None
    assert found.base_offset == 2
    assert log.find_timestamp(700, 4) is None


def test_an_index_file_that_lies_is_made_anew(store: Store, log: Log) -> None:
    fill(store, log, 60, size=20)
    store.close(0)
    disk = store._files
    names = [n for n in disk.list(log.directory) if n.endswith(".index")]
    assert names
    for name in names:
        file = disk.open(f"{log.directory}/{name}")
        file.write_at(0, [b"\0\0\0\1\0\0\0\7" * (file.size() // 8)])
    again = open_store(disk)
    (log,) = again.logs.values()
    log.configure(LogSettings(index_interval_bytes=100))
    for offset in range(60):
        assert headers(log, offset, 1, 60) == [offset]


def test_few_indexes_stay_in_memory(store: Store, log: Log) -> None:
    fill(store, log, 900, size=200)
    closed = log.segments_list[:-1]
    assert len(closed) > 100
    assert [segment for segment in closed if segment.index is not None] == []
    for offset in range(0, 900, 3):
        assert headers(log, offset, 1, 900) == [offset]
    assert len([segment for segment in closed if segment.index is not None]) <= 64


def test_an_offset_that_rotted_is_no_entry_of_an_index(store: Store, log: Log) -> None:
    fill(store, log, 4, size=150)
    store.close(0)
    disk = store._files
    third = 2 * len(batch(0, size=150))
    disk.flip(log.segments_list[0].name("log"), third, 0x80)  # type: ignore[attr-defined]
    disk.unlink(log.segments_list[0].name("index"))
    (log,) = open_store(disk).logs.values()
    with pytest.raises(StorageError, match="no batch at"):
        log.read(3, 100, 4)


def test_bad_bytes_below_the_end_are_damage_and_stay(store: Store, log: Log) -> None:
    fill(store, log, 20, size=20)
    run_jobs(store)
    store.close(0)
    disk = store._files
    name = f"{log.directory}/{0:020d}.log"
    size = disk.open(name).size()
    for position in range(150, 300):
        disk.flip(name, position, 0xFF)  # type: ignore[attr-defined]
    (log,) = open_store(disk).logs.values()
    log.configure(LogSettings(index_interval_bytes=1 << 30))
    with pytest.raises(StorageError, match="no batch at"):
        log.read(2, 1, 20)
    assert log.is_damaged
    assert disk.open(name).size() == size
    with pytest.raises(StorageError, match="damaged"):
        log.append(batch(20))
    with pytest.raises(StorageError, match="damaged"):
        log.read(0, 1, 20)


# ---- slices on a real disk


def test_a_slice_keeps_its_bytes_when_the_segment_is_gone(tmp_path: Path) -> None:
    store = open_store(OsFiles(str(tmp_path)))
    log = make_log(store)
    fill(store, log, 3)
    (part,) = log.read(0, 1 << 20, 3)
    expected = part.pread()
    log.trim(3, log.stable_end)
    turn(store)
    assert not (tmp_path / log.directory / f"{0:020d}.log").exists()
    assert part.pread() == expected
    assert os.pread(part.fileno(), part.length, part.position) == expected
    assert part.is_cached()
    assert part.part(5, 10).pread() == expected[5:15]
    fd = part.fileno()
    del part
    gc.collect()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_a_slice_outlives_the_pool_of_open_files(tmp_path: Path) -> None:
    store = open_store(OsFiles(str(tmp_path)))
    logs = [make_log(store, partition=n) for n in range(SMALL.open_files_max * 2)]
    for log in logs:
        log.append(batch(0, timestamp=log.partition))
    turn(store)
    parts = [log.read(0, 1000, 1)[0] for log in logs]
    for log in logs:
        log.append(batch(1, timestamp=log.partition))
    turn(store)
    for log, part in zip(logs, parts, strict=True):
        assert read_header(part.pread()).max_timestamp == log.partition
        assert offsets(log) == [0, 1]


def test_the_files_of_a_log_come_with_its_first_record() -> None:
    disk = make_disk()
    store = open_store(disk)
    logs = [make_log(store, partition=n) for n in range(5)]
    turn(store)
    assert disk.list("logs") == []
    fill(store, logs[3], 1)
    assert disk.list("logs") == [str(logs[3].uid)]


# ---- who wrote


def from_producer(base: int, epoch: int) -> bytearray:
    records = [Record(base, 1000, None, b"v" * 10)]
    return build_batch(
        records, leader_epoch=epoch, producer_id=7, producer_epoch=0, base_sequence=0
    )


@pytest.mark.parametrize("seed", range(30))
def test_where_only_producers_without_ids_wrote_is_known(seed: int) -> None:
    rng = random.Random(seed)
    disk = make_disk(seed)
    store = open_store(disk)
    log = make_log(store, LogSettings(segment_bytes=400))
    told = 0
    for _ in range(120):
        dice = rng.random()
        epoch = log.marks.last.epoch
        if dice < 0.2:
            log.append(from_producer(log.end_offset, epoch))
        elif dice < 0.7:
            log.append(batch(log.end_offset, epoch=epoch))
        elif dice < 0.75 and log.end_offset > log.log_start:
            to = rng.randint(log.log_start + 1, log.end_offset)
            mark = log.marks.at(to - 1)
            log.cut(Position(mark.epoch, mark.change, to))
            log.add_mark(Mark(epoch + 1, 0, log.end_offset, VOTERS, log.log_start))
        elif dice < 0.77:
            start = log.end_offset + rng.randint(0, 3)
            log.reset(Mark(epoch + 1, 0, start, VOTERS, start), start)
        disk.capacity = disk.used_bytes() if rng.random() < 0.1 else None
        turn(store)
        disk.capacity = None
        end = log.end_offset
        offset = min(max(log.plain_from, log.log_start), end)
        raw = b"".join(part.pread() for part in log.read(offset, 1 << 20, end))
        assert all(header.producer_id < 0 for _, header in scan(raw))
        told += bool(raw)
    assert told > 20
    store.close(0)
    (reopened,) = open_store(disk).logs.values()
    assert reopened.plain_from == reopened.end_offset, "nothing is known of former times"
