"""A segment's greatest timestamp after a crash: too low, and retention would take records early."""

import pytest
from fakes.batches import VOTERS, batch, make_disk, make_log, open_store, run_jobs, turn

from dmq.storage.log import Log, LogSettings
from dmq.storage.store import Store
from dmq.types import Mark, Position

SMALL = LogSettings(segment_bytes=3000, index_interval_bytes=100)


def append(store: Store, log: Log, timestamp: int) -> None:
    log.append(batch(log.end_offset, epoch=log.marks.last.epoch, timestamp=timestamp))
    turn(store)


def times(log: Log) -> list[int]:
    return [segment.max_timestamp for segment in log.segments()]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("is_flushed", [False, True])
def test_it_is_what_it_was_though_the_log_was_cut(is_async: bool, is_flushed: bool) -> None:
    disk = make_disk()
    store = open_store(disk)
    log = make_log(store, LogSettings(is_async=is_async))
    log.add_mark(Mark(1, 0, 0, VOTERS, 0))
    for timestamp in (9000, 9001, 5):
        append(store, log, timestamp)
    log.cut(Position(1, 0, 2))
    log.add_mark(Mark(2, 0, 2, VOTERS, 0))
    turn(store)
    if is_flushed:
        store.request_flush(log)
        run_jobs(store)
    append(store, log, 100)
    disk.kill()
    (log,) = open_store(disk).logs.values()
    assert log.end_offset == 3
    assert times(log) == [9001]
    found = log.find_timestamp(5000, 3)
    assert found is not None
    assert found.base_offset == 0


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("kept", [0, 12, 24])
def test_it_is_what_it_was_though_an_index_file_was_lost(kept: int, is_known: bool) -> None:
    """Neither index is synced: after a loss of power one may be there and the other not, or in part."""
    disk = make_disk()
    store = open_store(disk)
    log = make_log(store, SMALL)
    for timestamp in (100, 200, *range(300, 310), 9999, *range(310, 400)):
        append(store, log, timestamp)
    before, segment = times(log), log.segments_list[0]
    assert before[0] == 9999
    store.close(0)
    disk.open(segment.name("timeindex")).cut(kept)
    (log,) = open_store(disk).logs.values()
    log.configure(SMALL)
    if not is_known:
        log.segments_list[0].max_timestamp = -2
    assert times(log) == before
    newest = log.find_max_timestamp(log.end_offset)
    assert newest is not None
    assert (newest.base_offset, newest.max_timestamp) == (12, 9999)
    assert times(log) == before
