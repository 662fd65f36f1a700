"""A change of voters in an async log: promised only when no loss of power can take it."""

from uuid import UUID

import pytest
from fakes.batches import VOTERS, batch, fill, make_disk, make_log, open_store, run_jobs, turn

from dmq.storage.log import Log, LogSettings
from dmq.storage.store import Store
from dmq.types import Mark, Position, Voter

ASYNC = LogSettings(is_async=True, flush_ms=10_000, segment_bytes=1000)
MORE = (*VOTERS, Voter(2, UUID(int=2)))


@pytest.fixture
def store() -> Store:
    return open_store(make_disk())


@pytest.fixture
def log(store: Store) -> Log:
    made = make_log(store, ASYNC)
    fill(store, made, 4)
    return made


def change(store: Store, log: Log, voters: tuple[Voter, ...] = MORE) -> Position:
    """Add a mark with these voters; where the log ends then."""
    last = log.marks.last
    log.add_mark(Mark(last.epoch, last.change + 1, log.end_offset, voters, 0))
    turn(store)
    return log.end


def test_a_change_and_what_follows_it_wait_for_a_flush(store: Store, log: Log) -> None:
    change(store, log)
    fill(store, log, 2)
    assert log.stable_end == (0, 0, 4)
    assert run_jobs(store) == 1
    assert log.stable_end == log.end == (0, 1, 6)
    fill(store, log, 1)
    assert log.stable_end == (0, 1, 7)
    assert run_jobs(store) == 0


def test_the_turn_that_notes_the_flush_says_whose_promises_move(store: Store, log: Log) -> None:
    change(store, log)
    (job,) = store.maintain(0)
    job.run()
    store.done(job)
    begun = store.begin_turn(0)
    assert begun is not None
    assert begun.released == [log]
    assert log.stable_end == (0, 0, 4), "the note is not durable yet"
    begun.sync()
    assert store.end_turn(begun, 0) == [log]
    assert log.stable_end == (0, 1, 4)


def test_other_marks_wait_for_nothing(store: Store, log: Log) -> None:
    log.add_mark(Mark(1, 0, 4, VOTERS, 0))
    turn(store)
    assert log.stable_end == (1, 0, 4)
    assert run_jobs(store) == 0


def test_a_change_with_nothing_unflushed_below_it_waits_for_nothing() -> None:
    store = open_store(make_disk())
    log = make_log(store, ASYNC)
    assert change(store, log) == log.stable_end
    fill(store, log, 3)
    store.request_flush(log)
    run_jobs(store)
    assert change(store, log, VOTERS) == log.stable_end == (0, 2, 3)


def test_a_sync_log_waits_for_nothing() -> None:
    store = open_store(make_disk())
    log = make_log(store)
    fill(store, log, 3)
    assert change(store, log) == log.stable_end
    log.configure(ASYNC)
    assert change(store, log, VOTERS) == log.stable_end, "the journal has all below it"
    fill(store, log, 1)
    assert change(store, log) != log.stable_end


def test_a_change_to_sync_brings_the_flush_that_was_waited_for(store: Store, log: Log) -> None:
    change(store, log)
    log.configure(LogSettings(segment_bytes=1000))
    run_jobs(store)
    run_jobs(store)
    assert not log.is_async
    assert log.stable_end == (0, 1, 4)


def test_a_change_that_is_cut_holds_nothing_back(store: Store, log: Log) -> None:
    change(store, log)
    log.cut(Position(0, 0, 4))
    log.add_mark(Mark(1, 0, 4, VOTERS, 0))
    log.append(batch(4, epoch=1))
    turn(store)
    assert log.stable_end == (1, 0, 5)


def test_a_flush_that_a_cut_overtakes_is_asked_for_again(store: Store, log: Log) -> None:
    store.request_flush(log)
    (early,) = store.maintain(0)
    log.cut(Position(0, 0, 2))
    fill(store, log, 3)
    change(store, log)
    early.run()
    store.done(early)
    turn(store)
    assert log.stable_end == (0, 0, 5)
    run_jobs(store)
    assert log.stable_end == (0, 1, 5)


def test_a_change_after_the_flush_began_waits_for_the_next(store: Store, log: Log) -> None:
    change(store, log)
    (early,) = store.maintain(0)
    fill(store, log, 1)
    change(store, log, VOTERS)
    early.run()
    store.done(early)
    turn(store)
    assert log.stable_end == (0, 1, 5)
    run_jobs(store)
    assert log.stable_end == (0, 2, 5)


def test_a_flush_of_a_log_that_is_replaced_says_nothing_of_the_new_one(
    store: Store, log: Log
) -> None:
    change(store, log)
    (early,) = store.maintain(0)
    early.run()
    store.done(early)
    log.reset(Mark(0, 0, 1, VOTERS, 1), 1)
    log.append(batch(1))
    log.add_mark(Mark(1, 0, 2, MORE, 1))
    turn(store)  # It has the note too.
    assert log.stable_end == (0, 0, 2)
    run_jobs(store)
    assert log.stable_end == (1, 0, 2)


def test_no_loss_of_power_takes_a_change_that_was_promised() -> None:
    kept = 0
    for seed in range(40):
        disk = make_disk(seed)
        store = open_store(disk)
        log = make_log(store, ASYNC)
        for step in range(seed % 8):
            fill(store, log, 3)
            change(store, log, MORE if step % 2 == 0 else VOTERS)
            if step % 3:
                run_jobs(store)
        promised = log.stable_end
        disk.power_cut()
        (found,) = open_store(disk).logs.values()
        marks = {mark[:2]: mark for mark in found.marks}
        for mark in log.marks:
            if (mark.epoch, mark.change) <= promised[:2]:
                kept += 1
                assert marks[mark[:2]] == mark, (seed, promised)
    assert kept > 40
