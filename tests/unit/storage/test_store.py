"""The facade: identity, turns of many logs, full disks, failing syncs, async logs, the end."""

from pathlib import Path
from uuid import UUID

import pytest
from fakes.batches import (
    SMALL,
    VOTERS,
    batch,
    fill,
    make_disk,
    make_log,
    offsets,
    open_store,
    run_jobs,
    turn,
)
from fakes.disk import FakeDisk

from dmq.errors import CorruptError, FatalStorageError, StorageError
from dmq.storage import compaction_points, journal
from dmq.storage.files import OsFiles
from dmq.storage.log import Log, LogSettings
from dmq.storage.store import Store, StoreSettings
from dmq.types import Mark, Position, Voter

ASYNC = LogSettings(is_async=True, flush_ms=100, segment_bytes=1000)


def restarted(store: Store, *, power: bool = False) -> Store:
    disk = store._files
    assert isinstance(disk, FakeDisk)
    if power:
        disk.power_cut()
    else:
        disk.kill()
    return open_store(disk)


# ---- identity


def test_a_new_directory_gets_an_id_that_stays(tmp_path: Path) -> None:
    store = open_store(OsFiles(str(tmp_path)))
    assert store.recovery.is_new
    made = store.directory_id
    store.identify("cluster", 4)
    store.close(0)
    again = open_store(OsFiles(str(tmp_path)))
    assert (again.directory_id, again.cluster_id, again.node_id) == (made, "cluster", 4)
    with pytest.raises(CorruptError):
        again.identify("other", 4)


def test_a_directory_is_for_one_store(tmp_path: Path) -> None:
    store = open_store(OsFiles(str(tmp_path)))
    with pytest.raises(StorageError, match="in use"):
        open_store(OsFiles(str(tmp_path)))
    store.close(0)
    open_store(OsFiles(str(tmp_path))).close(0)


def test_a_journal_without_a_meta_file_is_not_formatted_over() -> None:
    disk = make_disk()
    make_log(open_store(disk))
    disk.unlink("meta")
    disk.kill()
    with pytest.raises(CorruptError, match="no meta file"):
        open_store(disk)


def test_logs_without_a_meta_file_are_not_taken_for_an_empty_directory() -> None:
    disk = make_disk()
    store = open_store(disk)
    fill(store, make_log(store), 1)
    logs = disk.list("logs")
    disk.unlink("meta")
    disk.kill()
    for name in disk.list(journal.DIRECTORY):
        disk.unlink(f"{journal.DIRECTORY}/{name}")
    with pytest.raises(CorruptError, match="the folder logs has files"):
        open_store(disk)
    assert disk.list("logs") == logs


def test_a_failed_open_lets_go_of_the_lock() -> None:
    disk = make_disk()
    open_store(disk)
    disk.unlink("meta")
    disk.kill()
    for _ in range(2):
        with pytest.raises(CorruptError):
            open_store(disk)


# ---- turns


def test_one_record_and_one_sync_for_all_logs() -> None:
    disk = make_disk()
    store = open_store(disk)
    logs = [make_log(store, partition=n) for n in range(20)]
    for log in logs:
        log.append(batch(0))
    seq, syncs = store.seq, disk.sync_count
    assert turn(store) == logs
    assert store.seq == seq + 1
    assert disk.sync_count == syncs + 1


def test_what_does_not_fit_a_turn_waits_for_the_next() -> None:
    store = open_store(make_disk(), StoreSettings(
        journal_bytes=8 * 4096, journal_file_bytes=4096, turn_bytes_max=300, reserve_bytes=0
    ))  # fmt: skip
    logs = [make_log(store, partition=n) for n in range(4)]
    for log in logs:
        log.append(batch(0, size=150))
    assert turn(store) == logs[:2]
    assert store.has_work()
    assert turn(store) == logs[2:]
    assert not store.has_work()


def test_logs_survive_in_order() -> None:
    store = open_store(make_disk())
    for n in range(5):
        log = make_log(store, partition=n)
        log.set_hard(n, Voter(n, UUID(int=3)))
        fill(store, log, n)
    again = restarted(store, power=True)
    assert [log.partition for log in again.logs.values()] == [*range(5)]
    assert [log.epoch for log in again.logs.values()] == [*range(5)]
    assert [offsets(log) for log in again.logs.values()] == [[*range(n)] for n in range(5)]


def test_a_uid_is_never_given_twice() -> None:
    store = open_store(make_disk())
    for n in range(40):
        log = make_log(store)
        assert log.uid == n + 1
        store.drop(log)
        turn(store)
        run_jobs(store)
    store = restarted(store)
    assert make_log(store).uid == 41
    store.close(0)
    assert make_log(open_store(store._files)).uid == 42


# ---- dropping


def test_a_dropped_log_waits_in_quarantine() -> None:
    disk = make_disk()
    store = open_store(disk)
    log = make_log(store)
    fill(store, log, 3)
    store.drop(log)
    assert log.uid not in store.logs
    assert disk.list("logs") == ["1"]
    turn(store, now=5)
    assert disk.list("logs") == []
    assert disk.list("quarantine") == ["1"]
    assert store.maintain(1004) == []
    assert run_jobs(store, 1005) == 1
    assert disk.list("quarantine") == []
    assert dict(restarted(store).logs) == {}


def test_a_crash_between_drop_and_move_ends_in_quarantine() -> None:
    disk = make_disk()
    store = open_store(disk)
    log = make_log(store)
    fill(store, log, 3)
    store.drop(log)
    begun = store.begin_turn(0)
    assert begun is not None
    begun.sync()
    again = restarted(store)
    assert dict(again.logs) == {}
    assert disk.list("quarantine") == ["1"]
    assert again.recovery.lost_found == []


# ---- disks that fail


@pytest.mark.parametrize("fails_at", ["turn", "flush"])
def test_a_failed_sync_is_fatal(fails_at: str) -> None:
    disk = make_disk()
    store = open_store(disk)
    log = make_log(store)
    fill(store, log, 3)
    log.append(batch(3))
    begun = store.begin_turn(0)
    assert begun is not None
    if fails_at == "turn":
        disk.is_sync_failing = True
        with pytest.raises(FatalStorageError, match="sync failed"):
            begun.sync()
        return
    begun.sync()
    store.end_turn(begun, 0)
    store.request_flush(log)
    (job,) = store.maintain(0)
    disk.is_sync_failing = True
    with pytest.raises(FatalStorageError, match="flush failed"):
        job.run()


def test_a_full_disk_refuses_batches_and_nothing_else() -> None:
    disk = make_disk()
    store = open_store(disk)
    log = make_log(store, LogSettings(segment_bytes=1 << 20))
    other = make_log(store, partition=1)
    fill(store, log, 3)
    fill(store, other, 3)
    disk.capacity = disk.used_bytes() + 100
    log.append(batch(3, size=500))
    log.append(batch(4))
    log.set_hard(9, None)
    other.trim(2, other.stable_end)
    begun = store.begin_turn(0)
    assert begun is not None
    ((refused, end, error),) = begun.refused
    assert refused is log
    assert end == log.end == (0, 0, 3)
    assert isinstance(error, StorageError)
    begun.sync()
    store.end_turn(begun, 0)
    assert (log.epoch, other.log_start) == (9, 2)
    disk.capacity = None
    fill(store, log, 2)
    assert offsets(log) == [0, 1, 2, 3, 4]
    again = restarted(store, power=True)
    assert [offsets(log) for log in again.logs.values()] == [[0, 1, 2, 3, 4], [2]]
    assert [log.epoch for log in again.logs.values()] == [9, 0]


def test_a_refusal_leaves_an_empty_segment_that_the_journal_knows() -> None:
    disk = make_disk()
    store = open_store(disk)
    log = make_log(store)
    fill(store, log, 20, size=50)
    base = log.segments()[1].base
    log.cut(Position(0, 0, base))
    turn(store)
    store.request_flush(log)
    run_jobs(store)
    disk.capacity = disk.used_bytes() + 10
    log.append(batch(base, size=50))
    turn(store)
    assert log.end_offset == base
    assert [(info.base, info.size > 0) for info in log.segments()] == [(0, True), (base, False)]
    disk.capacity = None
    fill(store, log, 2)
    (again,) = restarted(store, power=True).logs.values()
    assert offsets(again) == [*range(base + 2)]
    assert [info.base for info in again.segments()] == [0, base]


def test_a_trim_goes_on_when_the_batch_before_it_is_refused() -> None:
    disk = make_disk()
    store = open_store(disk)
    log = make_log(store)
    fill(store, log, 5)
    log.roll()
    disk.capacity = disk.used_bytes() + 10
    log.append(batch(5, size=50))
    log.trim(5, log.stable_end)
    turn(store)
    assert (log.log_start, log.end_offset) == (5, 5)
    disk.capacity = None
    fill(store, log, 2)
    (again,) = restarted(store, power=True).logs.values()
    assert (again.log_start, offsets(again)) == (5, [5, 6])


def test_below_the_reserve_appends_are_refused_until_space_returns() -> None:
    disk = make_disk()
    settings = StoreSettings(journal_bytes=8 * 4096, journal_file_bytes=4096, reserve_bytes=10_000)
    store = open_store(disk, settings)
    log = make_log(store)
    fill(store, log, 1)
    disk.capacity = disk.used_bytes() + 9_999
    store.maintain(1000)
    with pytest.raises(StorageError, match="reserve"):
        log.append(batch(1))
    log.set_hard(5, None)
    turn(store, 1000)
    disk.capacity += 1
    store.maintain(2000)
    log.append(batch(1))
    turn(store, 2000)
    assert offsets(log) == [0, 1]


def test_votes_go_on_when_the_disk_is_full_for_long() -> None:
    disk = make_disk()
    store = open_store(disk)
    log = make_log(store)
    fill(store, log, 3)
    disk.capacity = disk.used_bytes()
    for epoch in range(1, 400):
        log.set_hard(epoch, Voter(1, UUID(int=1)))
        turn(store)
        run_jobs(store)
    (again,) = restarted(store).logs.values()
    assert again.epoch == 399


def test_a_segment_that_is_too_short_is_damage_and_stays() -> None:
    disk = make_disk()
    store = open_store(disk)
    log = make_log(store)
    fill(store, log, 5)
    store.request_flush(log)
    run_jobs(store)
    fill(store, log, 2)
    name = f"{log.directory}/{0:020d}.log"
    disk.open(name).cut(100)
    disk.kill()
    again = open_store(disk)
    assert again.recovery.damaged == [log.uid]
    (found,) = again.logs.values()
    assert found.is_damaged
    assert found.end == (0, 0, 7), "it still knows its positions"
    with pytest.raises(StorageError, match="damaged"):
        found.read(0, 100, 7)
    with pytest.raises(StorageError, match="damaged"):
        found.append(batch(7))
    found.set_hard(3, None)
    turn(again)
    third = restarted(again)
    assert third.recovery.damaged == [log.uid], "the hole was filled, the damage is not forgotten"
    third.close(0)
    (fourth,) = open_store(disk).logs.values()
    assert fourth.is_damaged


def test_a_segment_lost_after_a_clean_stop_is_damage_when_it_is_met() -> None:
    disk = make_disk()
    store = open_store(disk)
    log = make_log(store)
    fill(store, log, 5)
    store.close(0)
    disk.unlink(f"{log.directory}/{0:020d}.log")
    again = open_store(disk)
    (found,) = again.logs.values()
    found.append(batch(5))
    begun = again.begin_turn(0)
    assert begun is not None
    assert [refusal.log for refusal in begun.refused] == [found]
    assert found.is_damaged


def test_what_nobody_knows_goes_to_lost_and_found() -> None:
    disk = make_disk()
    store = open_store(disk)
    log = make_log(store)
    fill(store, log, 1)
    disk.make_dir("logs/77")
    disk.open("logs/77/file", create=True)
    disk.open(f"{log.directory}/what.is.this", create=True)
    again = restarted(store)
    assert sorted(again.recovery.lost_found) == ["lost+found/1-what.is.this", "lost+found/77"]
    assert disk.exists("lost+found/77/file")
    assert offsets(again.logs[log.uid]) == [0]


# ---- async logs


def test_async_batches_need_no_sync_and_are_stable_at_once() -> None:
    disk = make_disk()
    store = open_store(disk)
    log = make_log(store, ASYNC)
    turn(store, 50)
    syncs, seq = disk.sync_count, store.seq
    log.append(batch(0))
    begun = store.begin_turn(60)
    assert begun is not None
    assert not begun.needs_sync
    assert begun.stable == [log]
    assert log.stable_end.offset == 1
    assert store.end_turn(begun, 60) == [log]
    assert (disk.sync_count, store.seq) == (syncs, seq)
    assert store.idle_deadline() == 160


def test_async_survives_a_kill_and_is_well() -> None:
    store = open_store(make_disk())
    log = make_log(store, ASYNC)
    fill(store, log, 30, size=50)
    again = restarted(store)
    (found,) = again.logs.values()
    assert offsets(found) == [*range(30)]
    assert not found.is_recovering
    assert found.is_async


def test_async_keeps_what_was_flushed_through_a_power_cut_and_is_recovering() -> None:
    for seed in range(20):
        disk = make_disk(seed)
        store = open_store(disk)
        log = make_log(store, ASYNC)
        fill(store, log, 12, size=50)
        assert run_jobs(store, 100) == 1
        fill(store, log, 6, size=50)
        again = restarted(store, power=True)
        (found,) = again.logs.values()
        assert found.is_recovering
        kept = offsets(found)
        assert kept == [*range(len(kept))]
        assert len(kept) >= 12


@pytest.mark.parametrize("is_clean", [False, True])
def test_async_stays_recovering_until_somebody_says_that_it_is_well(is_clean: bool) -> None:
    """A restart of the process alone, crashed or in order, brings nothing back."""
    store = open_store(make_disk())
    fill(store, make_log(store, ASYNC), 5)
    again = restarted(store, power=True)
    if is_clean:
        again.close(0)
    third = restarted(again, power=False)
    (found,) = third.logs.values()
    assert third.recovery.is_clean is is_clean
    assert found.is_recovering
    found.is_recovering = False
    third.request_flush(found)
    run_jobs(third, 100)
    turn(third, 100)
    (found,) = restarted(third, power=False).logs.values()
    assert not found.is_recovering


def test_async_after_a_clean_stop_is_well() -> None:
    store = open_store(make_disk())
    log = make_log(store, ASYNC)
    fill(store, log, 5)
    store.close(0)
    disk = store._files
    assert isinstance(disk, FakeDisk)
    disk.power_cut()
    (found,) = open_store(disk).logs.values()
    assert not found.is_recovering
    assert offsets(found) == [*range(5)]


def test_async_marks_beyond_a_lost_tail_go_with_it() -> None:
    from dmq.types import Mark

    for seed in range(20):
        disk = make_disk(seed)
        store = open_store(disk)
        log = make_log(store, ASYNC)
        fill(store, log, 4, size=50)
        log.add_mark(Mark(1, 0, 4, (), 0))
        turn(store)
        fill(store, log, 4, size=50)
        again = restarted(store, power=True)
        (found,) = again.logs.values()
        assert all(mark.offset <= found.end_offset for mark in found.marks)
        third = restarted(again, power=True)
        (later,) = third.logs.values()
        assert later.end == found.end, "what was lost once is told to the journal"


def test_a_change_to_sync_waits_for_a_flush() -> None:
    disk = make_disk()
    store = open_store(disk)
    log = make_log(store, ASYNC)
    fill(store, log, 5)
    log.configure(LogSettings(segment_bytes=1000))
    log.append(batch(5))
    turn(store)
    assert log.is_async
    assert log.stable_end.offset == 5
    run_jobs(store)
    turn(store)
    assert not log.is_async
    assert log.stable_end.offset == 6
    (found,) = restarted(store, power=True).logs.values()
    assert offsets(found) == [*range(6)]
    assert not found.is_recovering


def test_a_change_to_sync_waits_for_a_flush_of_its_own() -> None:
    """One that somebody else asked for may have begun before the last records came."""
    disk = make_disk()
    store = open_store(disk)
    log = make_log(store, ASYNC)
    fill(store, log, 5)
    store.request_flush(log)
    (early,) = store.maintain(0)
    fill(store, log, 5)
    log.configure(LogSettings(segment_bytes=1000))
    early.run()
    store.done(early)
    turn(store)
    assert log.is_async
    run_jobs(store)
    turn(store)
    assert not log.is_async
    (found,) = restarted(store, power=True).logs.values()
    assert offsets(found) == [*range(10)]


@pytest.mark.parametrize("to_async", [False, True])
def test_a_change_of_mode_outlives_a_reset_before_its_turn(to_async: bool) -> None:
    store = open_store(make_disk())
    log = make_log(store, LogSettings(is_async=not to_async))
    other = make_log(store, partition=1)
    fill(store, log, 3)
    log.configure(LogSettings(is_async=to_async))
    if not to_async:
        other.append(batch(0))
        store._turn_bytes_max = 10  # The turn that notes the flush has no room for the change.
        run_jobs(store)
    assert log.is_async is not to_async
    log.reset(Mark(3, 0, 50, VOTERS, 50), 50)
    turn(store)
    assert log.is_async is to_async
    found = next(x for x in restarted(store).logs.values() if x.uid == log.uid)
    assert found.is_async is to_async
    assert found.log_start == 50


def test_a_change_to_async_is_remembered() -> None:
    store = open_store(make_disk())
    log = make_log(store)
    fill(store, log, 5)
    log.configure(ASYNC)
    fill(store, log, 5)
    (found,) = restarted(store).logs.values()
    assert found.is_async
    assert offsets(found) == [*range(10)]


# ---- the journal in use


def test_the_cleaner_keeps_the_journal_small() -> None:
    store = open_store(make_disk())
    logs = [make_log(store, partition=n) for n in range(3)]
    for _ in range(100):
        for log in logs:
            fill(store, log, 1, size=100)
        run_jobs(store)
        assert store.pressure < 1
    assert store._journal.next_number > 20, "it went round"
    again = restarted(store, power=True)
    assert [offsets(log) for log in again.logs.values()] == [[*range(100)]] * 3


def test_many_files_are_synced_at_once_when_room_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    from dmq.storage import cleaner

    monkeypatch.setattr(cleaner, "SYNC_FILES_MAX", 2)
    monkeypatch.setattr(cleaner, "CLEAN_FROM", 0.8)
    disk = make_disk()
    store = open_store(disk)
    logs: list[Log] = [make_log(store, partition=n) for n in range(6)]
    while store.pressure < 0.8:
        for log in logs:
            fill(store, log, 1, size=100)
    (job,) = store.maintain(0)
    assert isinstance(job, cleaner.FlushJob)
    assert job.is_whole_disk
    job.run()
    store.done(job)
    turn(store)
    turn(store, 1000)
    assert store.pressure < 0.5


def test_a_clean_stop_leaves_one_file_to_read() -> None:
    disk = make_disk()
    store = open_store(disk)
    log = make_log(store)
    fill(store, log, 30, size=100)
    store.close(0)
    again = open_store(disk)
    assert again.recovery.is_clean
    assert again.recovery.replayed_bytes == 0
    assert len(again._journal.files) == 1
    assert offsets(again.logs[log.uid]) == [*range(30)]


def test_two_spares_are_kept() -> None:
    store = open_store(make_disk())
    log = make_log(store)
    for _ in range(20):
        fill(store, log, 1, size=1000)
        run_jobs(store)
        assert len(store._journal.spares) >= journal.SPARES_MIN


def test_a_journal_needs_room_for_four_files() -> None:
    with pytest.raises(StorageError, match="four"):
        open_store(make_disk(), StoreSettings(journal_bytes=3000, journal_file_bytes=1000))


def test_close_writes_what_is_staged() -> None:
    disk = make_disk()
    store = open_store(disk)
    log = make_log(store)
    log.append(batch(0))
    paused = make_log(store, ASYNC, partition=1)
    fill(store, paused, 2)
    paused.configure(LogSettings())
    paused.append(batch(2))
    store.close(0)
    disk.power_cut()
    again = open_store(disk)
    assert [offsets(log) for log in again.logs.values()] == [[0], [0, 1, 2]]
    assert [log.is_async for log in again.logs.values()] == [False, False]


@pytest.mark.parametrize("seed", range(6))
def test_clean_points_of_a_log_that_began_again_do_not_come_back(seed: int) -> None:
    disk = make_disk(seed)
    store = open_store(disk)
    log = make_log(store)
    fill(store, log, 3)
    compaction_points.save(disk, {log.uid: 2})
    disk.sync_all()
    log.reset(Mark(3, 0, 50, VOTERS, 50), 50)
    turn(store)
    store.close(0)
    disk.power_cut()
    again = open_store(disk)
    assert again.recovery.is_clean
    assert compaction_points.load(disk) == {}


def test_settings_have_sane_defaults() -> None:
    assert StoreSettings().journal_bytes // StoreSettings().journal_file_bytes == 16
    assert SMALL.open_files_max == 10
