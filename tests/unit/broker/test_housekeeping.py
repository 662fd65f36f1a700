"""Housekeeping on a fake disk: rounds, slices, settings, and what happens meanwhile."""

import logging
import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from fakes.broker import FakeBroker
from fakes.compactor import Kept
from fakes.disk import FakeDisk

from dmq.broker import compaction, housekeeping
from dmq.broker.compaction import Stage
from dmq.broker.partition import Partition
from dmq.config.settings import Settings
from dmq.records import DELETE_HORIZON, Record, build_batch, iterate, scan
from dmq.storage import compaction_points
from dmq.storage.cleaner import Job as StoreJob
from dmq.storage.compaction_job import Job
from dmq.types import NIL_UUID

CHECK_MS = 1000
SETTINGS = {"log.retention.check.interval.ms": CHECK_MS, "log.cleaner.backoff.ms": 0}
HOUR = 3_600_000


@pytest.fixture
def kept() -> Kept:
    return kept_on(FakeDisk(random.Random(1)))


def kept_on(disk: FakeDisk, **settings: object) -> Kept:
    return Kept(
        FakeBroker(disk, **(SETTINGS | {k.replace("_", "."): v for k, v in settings.items()}))
    )


def put(kept: Kept, partition: Partition, key: bytes, value: bytes | None, ago_ms: int = 0) -> None:
    record = Record(0, kept.broker.now - ago_ms, key, value)
    partition.append(memoryview(build_batch([record])), kept.broker.now)
    kept.broker.turn()


def offsets(partition: Partition) -> list[int]:
    pieces = partition.read(partition.log_start_offset, 1 << 20, whole_first_batch=True)
    data = b"".join(piece.pread() for piece in pieces)
    return [r.offset for at, header in scan(data) for r in iterate(data, at, header)]


def check_retention(kept: Kept) -> None:
    """Past one whole interval, and through the queue."""
    kept.tick()
    kept.broker.pass_time(CHECK_MS)
    for _ in range(10):
        kept.tick()


# ---- retention


def test_old_segments_go_with_a_committed_start(kept: Kept) -> None:
    (partition,) = kept.broker.create("t", internal_segment_bytes="1", retention_ms=str(HOUR))
    for ago_ms in (3 * HOUR, 2 * HOUR, 0):
        put(kept, partition, b"k", b"v", ago_ms)
    kept.tick()
    assert partition.log_start_offset == 0, "not before the interval is over"
    check_retention(kept)
    assert partition.log_start_offset == 2
    assert partition.log.marks.last.log_start == 2
    assert [segment.base for segment in partition.log.segments()] == [2]
    assert offsets(partition) == [2]


def test_an_idle_log_that_is_too_old_is_emptied_and_goes_on(kept: Kept) -> None:
    (partition,) = kept.broker.create("t", retention_ms=str(HOUR))
    put(kept, partition, b"k", b"v")
    check_retention(kept)
    assert partition.log_start_offset == 0
    kept.broker.pass_time(HOUR)
    check_retention(kept)
    assert (partition.log_start_offset, partition.log_end_offset) == (1, 1)
    put(kept, partition, b"k", b"w")
    assert offsets(partition) == [1]


def test_a_log_that_is_too_large_loses_its_oldest(kept: Kept) -> None:
    (partition,) = kept.broker.create(
        "t", internal_segment_bytes="1", retention_ms="-1", retention_bytes="200"
    )
    for _ in range(5):
        put(kept, partition, b"k", b"v" * 10)
    size = partition.log.segments()[0].size
    check_retention(kept)
    assert partition.log_start_offset == 5 - (200 // size + bool(200 % size))


def test_a_topic_that_only_compacts_keeps_old_records(kept: Kept) -> None:
    (partition,) = kept.broker.create(
        "t", cleanup_policy="compact", internal_segment_bytes="1", retention_ms="1"
    )
    put(kept, partition, b"a", b"v", HOUR)
    put(kept, partition, b"b", b"v", HOUR)
    check_retention(kept)
    assert offsets(partition) == [0, 1]


def test_a_topic_that_does_both_does_both(kept: Kept) -> None:
    (partition,) = kept.broker.create(
        "t",
        cleanup_policy="compact,delete",
        internal_segment_bytes="1",
        retention_ms=str(HOUR),
        min_cleanable_dirty_ratio="0",
    )
    for key, ago_ms in ((b"old", 2 * HOUR), (b"a", 0), (b"a", 0), (b"b", 0)):
        put(kept, partition, key, b"v", ago_ms)
    check_retention(kept)
    kept.clean()
    assert partition.log_start_offset == 1
    assert offsets(partition) == [2, 3]


def test_records_without_time_go_when_they_were_seen_long_enough(kept: Kept) -> None:
    (partition,) = kept.broker.create("t", internal_segment_bytes="1", retention_ms=str(HOUR))
    for _ in range(2):
        partition.append_admitted(memoryview(build_batch([Record(0, -1, b"k", b"v")])), -1)
        kept.broker.turn()
    check_retention(kept)
    kept.broker.pass_time(HOUR - CHECK_MS)
    check_retention(kept)
    assert partition.log_start_offset == 0
    check_retention(kept)
    assert partition.log_start_offset == 2


def test_records_without_time_that_keep_coming_stay(kept: Kept) -> None:
    (partition,) = kept.broker.create("t", retention_ms=str(HOUR))
    for _ in range(4):
        partition.append_admitted(memoryview(build_batch([Record(0, -1, b"k", b"v")])), -1)
        kept.broker.turn()
        check_retention(kept)
        kept.broker.pass_time(HOUR // 2)
    assert partition.log_start_offset == 0


def test_one_start_at_a_time(kept: Kept, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dmq.broker")
    (partition,) = kept.broker.create("t", internal_segment_bytes="1", retention_ms=str(HOUR))
    put(kept, partition, b"k", b"v", 2 * HOUR)
    put(kept, partition, b"k", b"v")
    for _ in range(12):  # No turn between: nothing commits.
        kept.broker.now += CHECK_MS
        kept.housekeeping.tick(kept.broker.now)
    assert partition.log.end.change == 1
    assert caplog.text.count("past its retention") == 1
    kept.broker.turn()
    assert partition.log_start_offset == 1


def test_a_tick_looks_at_a_slice(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(housekeeping, "SLICE", 3)
    partitions = kept.broker.create(
        "t", 8, internal_segment_bytes="1", retention_ms=str(HOUR), cleanup_policy="delete"
    )
    for partition in partitions:
        put(kept, partition, b"k", b"v", 2 * HOUR)
    kept.tick()
    kept.broker.pass_time(CHECK_MS)
    done = []
    for _ in range(5):
        kept.tick()
        done.append(sum(partition.log_start_offset for partition in partitions))
    assert done == [0, 2, 5, 8, 8], "the metadata log is in the first slice"


def test_settings_are_read_anew_each_time(kept: Kept) -> None:
    (partition,) = kept.broker.create("t", internal_segment_bytes="1")
    put(kept, partition, b"k", b"v", HOUR)
    put(kept, partition, b"k", b"v")
    check_retention(kept)
    assert partition.log_start_offset == 0
    broker = kept.broker
    broker.replicas.settings = Settings(broker.config, {"log.retention.ms": str(HOUR // 2)})
    broker.replicas.bring_in(broker.machine.state.topics["t"])
    check_retention(kept)
    assert partition.log_start_offset == 1


def test_a_clock_that_was_set_back_stops_nothing(kept: Kept) -> None:
    (partition,) = kept.broker.create("t", internal_segment_bytes="1", retention_ms=str(HOUR))
    check_retention(kept)
    kept.broker.now -= 24 * HOUR
    put(kept, partition, b"k", b"v", 2 * HOUR)
    put(kept, partition, b"k", b"v")
    check_retention(kept)
    assert partition.log_start_offset == 1


# ---- compaction


def compacted(kept: Kept, name: str = "t", **configs: str) -> Partition:
    defaults = {
        "cleanup_policy": "compact",
        "internal_segment_bytes": "1",
        "min_cleanable_dirty_ratio": "0",
    }
    (partition,) = kept.broker.create(name, **(defaults | configs))
    return partition


def test_a_compacted_topic_shows_the_last_of_each_key(kept: Kept) -> None:
    partition = compacted(kept)
    for key in (b"a", b"b", b"a", b"c"):
        put(kept, partition, key, b"v")
    kept.clean()
    assert offsets(partition) == [1, 2, 3]
    assert kept.housekeeping.stage is Stage.RESTING


def test_the_clean_point_is_remembered_over_a_restart(kept: Kept) -> None:
    partition = compacted(kept)
    for key in (b"a", b"a", b"b"):
        put(kept, partition, key, b"v")
    kept.clean()
    kept.broker.store.close(kept.broker.now)
    assert compaction_points.load(kept.broker.disk)[partition.log.uid] == 2
    again = kept_on(kept.broker.disk)
    again.clean()
    assert [job.uid for job in again.compactor.jobs if job.uid == partition.log.uid] == []
    put(again, again.broker.find("t"), b"b", b"v")
    again.clean()
    assert [j.first_dirty for j in again.compactor.jobs if j.uid == partition.log.uid] == [2]
    assert offsets(again.broker.find("t")) == [1, 2, 3]


@pytest.mark.parametrize(
    "end",
    [None, lambda broker: broker.store.close(broker.now), lambda broker: broker.disk.kill()],
    ids=["goes on", "stopped", "killed"],
)
def test_the_clean_point_of_a_log_that_began_again_does_not_count(
    kept: Kept, end: Callable[[FakeBroker], None] | None
) -> None:
    """Of the log that came in its place nothing is clean: one leader may have sent what a tombstone
    deletes, before it compacted, and the next one the tombstone, long after it did."""
    partition = compacted(kept)
    for key in (b"a", b"b", b"c", b"d"):
        put(kept, partition, key, b"v")
    kept.clean()
    found = partition.log
    found.reset(found.marks.base, 0)
    epoch, now = found.marks.last.epoch, kept.broker.now
    horizon = Record(1, now - HOUR, b"a", None)
    for batch in (
        build_batch([Record(0, now - HOUR, b"a", b"deleted")], leader_epoch=epoch),
        build_batch([horizon], leader_epoch=epoch, attributes=DELETE_HORIZON),
        build_batch([Record(2, now, b"b", b"w")], leader_epoch=epoch),
        build_batch([Record(3, now, b"b", b"x")], leader_epoch=epoch),
        build_batch([Record(4, now, b"b", b"y")], leader_epoch=epoch),
    ):
        found.append(batch)
        kept.broker.turn()
    if end is not None:
        end(kept.broker)
        kept = kept_on(kept.broker.disk)
    kept.clean()
    assert 0 not in offsets(kept.broker.find("t"))


def test_the_dirtiest_log_is_first(kept: Kept) -> None:
    little, much = compacted(kept, "little"), compacted(kept, "much")
    for partition in (little, much):
        for _ in range(6):
            put(kept, partition, b"a", b"v" * 50)
    kept.clean()
    for partition, count in ((little, 1), (much, 5)):
        for _ in range(count):
            put(kept, partition, b"a", b"v" * 50)
    kept.compactor.jobs.clear()
    kept.clean()
    mine = [job.uid for job in kept.compactor.jobs]
    assert mine[:2] == [much.log.uid, little.log.uid]


def test_a_log_that_is_clean_enough_waits(kept: Kept) -> None:
    partition = compacted(kept, min_cleanable_dirty_ratio="0.9")
    for _ in range(5):
        put(kept, partition, b"a", b"v")
    kept.clean()
    done = len(kept.compactor.jobs)
    put(kept, partition, b"a", b"v")
    put(kept, partition, b"a", b"v")
    kept.clean()
    assert [job for job in kept.compactor.jobs[done:] if job.uid == partition.log.uid] == []


def test_the_cleaner_can_be_off() -> None:
    kept = kept_on(FakeDisk(random.Random(1)), log_cleaner_enable="false")
    partition = compacted(kept)
    for _ in range(3):
        put(kept, partition, b"a", b"v")
    for _ in range(50):
        kept.tick()
    assert kept.compactor.jobs == []


def test_a_full_disk_is_not_filled_with_copies(kept: Kept) -> None:
    partition = compacted(kept)
    for _ in range(3):
        put(kept, partition, b"a", b"v")
    kept.broker.store.is_full = True
    for _ in range(20):
        kept.housekeeping.tick(kept.broker.now)
    assert kept.compactor.jobs == []


def test_the_metadata_log_is_compacted_too(kept: Kept) -> None:
    metadata = kept.broker.metadata_partition
    for _ in range(3):
        kept.broker.create("t")
        deleted = kept.broker.service.admin.delete_topics([("t", NIL_UUID)])
        kept.broker.turn()
        assert [result.error for result in deleted.get()] == [None]
        metadata.log.roll()
    kept.broker.create("last")
    kept.clean()
    assert metadata.log.uid in [job.uid for job in kept.compactor.jobs]
    kept.broker.store.close(kept.broker.now)
    again = kept_on(kept.broker.disk)
    assert [*again.broker.replicas.topics] == ["last"]


def test_what_was_deleted_is_told_to_brokers_that_are_back_weeks_later() -> None:
    """Whatever topics do by default, and however often the metadata log is compacted meanwhile."""
    kept = kept_on(FakeDisk(random.Random(1)), log_cleaner_delete_retention_ms=0)
    metadata = kept.broker.metadata_partition
    kept.broker.create("t")
    topic_id = kept.broker.replicas.topics["t"].topic_id
    deleted = kept.broker.service.admin.delete_topics([("t", NIL_UUID)])
    kept.broker.turn()
    assert [result.error for result in deleted.get()] == [None]
    for size in (1, 4, 16):  # Each time most of the log is new.
        for number in range(size):
            kept.broker.create(f"other-{size}-{number}")
        metadata.log.roll()
        kept.broker.create(f"last-{size}")
        kept.clean()
    jobs = [job for job in kept.compactor.jobs if job.uid == metadata.log.uid]
    assert len(jobs) > 1
    assert {job.delete_retention_ms for job in jobs} == {30 * 24 * HOUR}
    deleted_keys = {
        record.key
        for data in (piece.pread() for piece in metadata.log.read(0, 1 << 20, 1 << 40))
        for position, header in scan(data)
        for record in iterate(data, position, header)
        if record.value is None
    }
    key = topic_id.hex.encode()
    assert deleted_keys == {b"topic/%s" % key, b"partition/%s/0" % key}


def run_jobs(broker: FakeBroker) -> None:
    for job in broker.store.maintain(broker.now):
        job.run()
        broker.store.done(job)


def test_a_point_is_not_saved_before_the_swap_is_durable(kept: Kept) -> None:
    partition = compacted(kept)
    for _ in range(3):
        put(kept, partition, b"a", b"v")
    broker = kept.broker
    broker.store.request_flush(partition.log)
    run_jobs(broker)
    broker.turn()
    for _ in range(20):
        kept.housekeeping.tick(broker.now)
    assert kept.housekeeping.stage is Stage.SWAPPING
    run_jobs(broker)  # The new file gets a name of its own.
    turn = broker.begin()
    assert turn is not None
    for _ in range(5):
        kept.housekeeping.tick(broker.now)
    assert kept.housekeeping.stage is Stage.SWAPPING
    assert partition.log.uid not in compaction_points.load(broker.disk)
    assert offsets(partition) == [1, 2], "readers have the new file already"
    broker.end(turn)
    kept.housekeeping.tick(broker.now)
    assert compaction_points.load(broker.disk)[partition.log.uid] == 2


def swap_under_way(kept: Kept, partition: Partition) -> None:
    """Compacted; the first new file has the name that the journal will know."""
    broker = kept.broker
    broker.store.request_flush(partition.log)
    run_jobs(broker)
    broker.turn()
    for _ in range(20):
        kept.housekeeping.tick(broker.now)
    assert kept.housekeeping.stage is Stage.SWAPPING
    run_jobs(broker)


@pytest.mark.parametrize("step_ms", [-5, -HOUR, 60_000, 24 * HOUR])
@pytest.mark.parametrize("is_begun", [True, False])
def test_a_clock_that_is_set_while_a_file_takes_its_place_takes_no_file_away(
    kept: Kept, step_ms: int, is_begun: bool
) -> None:
    """A slow disk: either the turn that says SWAP is being synced, or a worker has the job."""
    partition = compacted(kept)
    for _ in range(4):
        put(kept, partition, b"a", b"v")
    broker = kept.broker
    jobs: list[StoreJob] = []
    if is_begun:
        swap_under_way(kept, partition)
    else:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(broker.store, "add_job", jobs.append)
            swap_under_way(kept, partition)
        assert jobs
    turn = broker.begin()
    job_count = len(kept.compactor.jobs)
    for tick in range(20):
        kept.housekeeping.tick(broker.now + step_ms + 50 * tick)
    assert kept.housekeeping.stage is Stage.SWAPPING
    assert len(kept.compactor.jobs) == job_count
    if turn is not None:
        broker.end(turn)
    for job in jobs:
        job.run()
        broker.store.done(job)
    kept.clean()
    assert offsets(partition) == [2, 3]
    broker.disk.power_cut()
    after = kept_on(broker.disk).broker
    assert not any(log.is_damaged for log in after.store.logs.values())
    assert offsets(after.find("t")) == [2, 3]


def test_a_swap_that_came_to_nothing_ends_the_round(kept: Kept) -> None:
    """Half of what the first file stands for is trimmed when its turn comes. The tombstone in the
    second one must not go without what it deletes."""
    partition = compacted(kept, delete_retention_ms="0")
    partition.log.configure(replace(partition.log.settings, segment_bytes=250))
    values = ((b"x", b"1"), (b"a", b"2"), (b"x", b"3"), (b"a", None), (b"y", b"4"), (b"z", b"5"))
    for key, value in values:
        put(kept, partition, key, value)
        partition.log.roll()
    swap_under_way(kept, partition)
    (result,) = [r for r in kept.compactor.results if r.uid == partition.log.uid]
    assert len(result.swaps) > 1
    assert result.swaps[0].bases[:2] == (0, 1)
    partition.log.trim(1, partition.log.commit)
    partition.log.stage_swap(partition.log._ops.pop(0)[1])  # Which the trim came before.
    kept.broker.turn()
    assert partition.log.segments()[0].base == 1
    kept.housekeeping.tick(kept.broker.now)
    assert kept.housekeeping.stage is not Stage.SWAPPING
    assert partition.log.uid not in compaction_points.load(kept.broker.disk)
    assert swap_files(kept, partition) == []


def test_files_that_a_stop_left_before_the_journal_spoke_of_them_go(kept: Kept) -> None:
    partition = compacted(kept)
    for _ in range(4):
        put(kept, partition, b"a", b"v")
    name = f"{partition.log.directory}/{0:020d}.7.swap"
    kept.broker.disk.open(name, create=True)
    kept.clean()
    assert offsets(partition) == [2, 3]
    assert swap_files(kept, partition) == []


def test_nothing_above_the_high_watermark_is_compacted(kept: Kept) -> None:
    partition = compacted(kept)
    for _ in range(4):
        put(kept, partition, b"a", b"v")
    partition.replica.high_watermark = 2  # As with followers that have no more yet.
    kept.clean()
    assert [(job.end, len(job.segments)) for job in kept.compactor.jobs] == [(2, 2)]


def run_with(kept: Kept, partition: Partition, meanwhile: Callable[[], object]) -> None:
    """Clean; something happens while the first job of this log is at work."""

    def on_answer(job: Job) -> None:
        if job.uid == partition.log.uid:
            kept.compactor.before_answer = lambda job: None
            meanwhile()

    kept.compactor.before_answer = on_answer
    kept.clean()


def swap_files(kept: Kept, partition: Partition) -> list[str]:
    return [name for name in kept.broker.disk.list(partition.log.directory) if "swap" in name]


def test_a_topic_that_is_deleted_meanwhile_stays_deleted(kept: Kept) -> None:
    partition = compacted(kept)
    for _ in range(3):
        put(kept, partition, b"a", b"v")
    run_with(kept, partition, lambda: kept.broker.replicas.remove(partition.topic_id))
    kept.broker.turn()
    assert len(kept.compactor.results) == 1
    assert not kept.broker.disk.exists(partition.log.directory)


TURNS = pytest.mark.parametrize("turns", [0, 1, 2])
"""A start is written as a mark, committed, and then taken by the log with one turn more."""


def trim(kept: Kept, partition: Partition, log_start: int, turns: int) -> None:
    partition.trim(log_start)
    for _ in range(turns):
        turn = kept.broker.begin()
        assert turn is not None
        kept.broker.end(turn)


@TURNS
def test_what_is_trimmed_meanwhile_stays_trimmed(kept: Kept, turns: int) -> None:
    partition = compacted(kept)
    for key in (b"a", b"b", b"a", b"b", b"c"):
        put(kept, partition, key, b"v")
    run_with(kept, partition, lambda: trim(kept, partition, 2, turns))
    assert [segment.base for segment in partition.log.segments()] == [2, 3, 4]
    assert offsets(partition) == [2, 3, 4]
    assert swap_files(kept, partition) == []


@TURNS
def test_a_file_for_segments_of_which_some_are_trimmed_meanwhile_is_not_used(
    kept: Kept, turns: int
) -> None:
    partition = compacted(kept, delete_retention_ms="0")
    for key, value in ((b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"a", None), (b"c", b"4")):
        put(kept, partition, key, value)
        partition.log.roll()
    partition.log.configure(replace(partition.log.settings, segment_bytes=10_000))
    run_with(kept, partition, lambda: trim(kept, partition, 1, turns))
    first, *later = [r for r in kept.compactor.results if r.uid == partition.log.uid]
    assert first.swaps[0].bases == (0, 1, 2, 3)
    if turns:
        # Else the swap came before the trim, in the same turn, and all of it is as it should be.
        assert later[0].swaps[0].bases == (1, 2, 3)
    assert offsets(partition) == [1, 3, 4]
    assert swap_files(kept, partition) == []


def test_a_job_that_fails_is_not_tried_at_once(kept: Kept) -> None:
    partition = compacted(kept)
    for _ in range(3):
        put(kept, partition, b"a", b"v")
    name = partition.log.segments_list[0].name()
    position = partition.log.segments_list[0].size - 1
    kept.broker.disk.flip(name, position)
    kept.clean()
    assert len([job for job in kept.compactor.jobs if job.uid == partition.log.uid]) == 1
    assert [segment.base for segment in partition.log.segments()] == [0, 1, 2]
    kept.broker.disk.flip(name, position)
    kept.broker.pass_time(compaction.RETRY_MS)
    kept.clean()
    assert offsets(partition) == [1, 2]


def test_what_it_did_is_in_the_log(kept: Kept, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dmq.broker")
    partition = compacted(kept)
    for _ in range(3):
        put(kept, partition, b"a", b"v")
    kept.clean()
    assert "compacted Partition(t-0" in caplog.text
    assert "1 of 2 records" in caplog.text


def test_a_log_that_can_not_be_read_when_it_is_to_be_compacted_stops_nobody(
    kept: Kept, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor does it keep others waiting, though it is the dirtiest in each round."""
    partition, other = compacted(kept), compacted(kept, name="u")
    for log in (partition, other):
        for key in (b"a", b"b", b"a", b"c"):
            put(kept, log, key, b"v" * 100)
    first = partition.log.segments_list[0]
    first.max_timestamp, first.index, first.trusted_bytes = -2, None, 0  # As after a cut.
    kept.broker.disk.spoil(first.name(), 0, 100)
    for _ in range(20):
        kept.broker.pass_time(CHECK_MS)
        kept.tick()
    assert "t-0, epoch=1) can't be compacted" in caplog.text
    assert {job.uid for job in kept.compactor.jobs} == {other.log.uid}


def test_a_log_that_begins_again_under_the_compactor_is_not_clean(kept: Kept) -> None:
    """The job was for the log before it, which nobody has any more."""
    partition = compacted(kept, internal_segment_bytes="100")
    for number in range(6):
        put(kept, partition, b"key%d" % number, b"v" * 300)
    old = partition.log

    def begin_again(job: Job) -> None:
        if job.uid == old.uid:
            kept.broker.node._repairs.give_up(partition.replica)
            kept.compactor.before_answer = lambda job: None

    kept.compactor.before_answer = begin_again
    for _ in range(40):
        kept.broker.pass_time(100)
        kept.tick()
    assert partition.log.uid != old.uid
    assert [result.swaps for result in kept.compactor.results] == [()]
    assert partition.log.uid not in kept.housekeeping._compaction._points
