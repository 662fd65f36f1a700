"""Compaction against a model: random records and segments, cleaned again and again.

The model is the plain list of what was written. After every cleaning: what is there was written
exactly so, in order; every key has its last value; below the clean point no key is there twice;
a tombstone is gone only `delete.retention.ms` after a cleaning first reached it; a reader may begin
at any offset. And a crash anywhere leaves the log as it was, or as it was to be.
"""

import contextlib
import copy
import random
from dataclasses import dataclass, field

from fakes.broker import FakeBroker
from fakes.compactor import Kept
from fakes.disk import Crash, FakeDisk
from hypothesis import given, settings
from hypothesis import strategies as st

from dmq.broker.partition import Partition
from dmq.records import BatchHeader, Record, build_batch, iterate, scan
from dmq.storage.compaction_job import Job, Swap
from dmq.storage.compaction_run import compact

TOMBSTONE_MS = 1000
SETTINGS: dict[str, object] = {"log.cleaner.backoff.ms": 0}
KEYS = [b"a", b"b", b"c", b"a key of more than sixteen bytes", b""]


@dataclass
class Story:
    """What one run does, drawn by hypothesis as a seed and a few sizes."""

    seed: int
    segment_bytes: int
    keys_max: int
    step_ms: int
    rounds: int
    rng: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)


stories = st.builds(
    Story,
    seed=st.integers(0, 2**32),
    segment_bytes=st.sampled_from([1, 150, 400, 1500]),
    keys_max=st.sampled_from([1, 2, 3, 1000]),
    step_ms=st.sampled_from([1, TOMBSTONE_MS // 2, TOMBSTONE_MS + 1]),
    rounds=st.integers(1, 5),
)


class World:
    """One compacted partition and the list of all that was written to it."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.kept = Kept(
            FakeBroker(FakeDisk(random.Random(story.seed)), **SETTINGS), story.keys_max
        )
        (self.partition,) = self.broker.create(
            "t",
            cleanup_policy="compact",
            internal_segment_bytes=str(story.segment_bytes),
            min_cleanable_dirty_ratio="0",
            delete_retention_ms=str(TOMBSTONE_MS),
            index_interval_bytes="100",
        )
        self.written: dict[int, Record] = {}
        self.headers: dict[int, BatchHeader] = {}
        self.reached_at: dict[int, int] = {}
        """Offset -> time of the first cleaning whose clean point lies above it."""
        self.clean_point = 0

    @property
    def broker(self) -> FakeBroker:
        return self.kept.broker

    def append(self) -> None:
        rng, partition = self.story.rng, self.partition
        records = []
        for delta in range(rng.choice([1, 1, 2, 6])):
            key = None if rng.random() < 0.05 else rng.choice(KEYS)
            value = None if rng.random() < 0.3 else rng.randbytes(rng.choice([0, 5, 40]))
            time = self.broker.now - rng.choice([0, 5, 5000])
            headers = (("h", rng.choice([None, b"x"])),) if rng.random() < 0.3 else ()
            records.append(Record(delta, time, key, value, headers))
        producer = rng.choice([-1, 7, 8])
        batch = build_batch(
            records,
            codec=rng.choice([0, 0, 1, 2, 3, 4]),
            producer_id=producer,
            producer_epoch=-1 if producer < 0 else 0,
            base_sequence=-1 if producer < 0 else partition.log_end_offset,
        )
        # As it was when the topic was not compacted yet: then records without keys were taken.
        base = partition.replica.append(memoryview(batch), -1, -1, self.broker.now).base_offset
        for record in records:
            self.written[base + record.offset] = record._replace(offset=base + record.offset)
        header = next(iter(scan(batch)))[1]
        self.headers[base] = header._replace(base_offset=base)

    def clean(self) -> None:
        """Clean until there is nothing to do; note what that reached, even if it ends in a crash."""
        results = self.kept.compactor.results
        before = len(results)
        try:
            self.kept.clean()
            # A point may come twice after a crash: the file that keeps them is not synced.
            self.clean_point = max([self.clean_point, *self.points(before)])
        finally:
            reached = max(self.points(before), default=0)
            for offset in self.written:
                if offset < reached:
                    self.reached_at.setdefault(offset, self.broker.now)

    def points(self, first: int) -> list[int]:
        mine = self.partition.log.uid
        return [r.clean_point for r in self.kept.compactor.results[first:] if r.uid == mine]

    # ---- what must hold

    def check(self) -> None:
        found = read(self.partition, 0)
        assert found == [self.written[record.offset] for record in found], "as it was written"
        offsets = [record.offset for record in found]
        assert offsets == sorted(set(offsets))
        self.check_keys(found)
        self.check_uncleaned(offsets)
        self.check_batches()

    def check_keys(self, found: list[Record]) -> None:
        now = self.broker.now
        assert state_of(found) == state_of(list(self.written.values()))
        there = {record.offset for record in found}
        last = {record.key: record for record in self.written.values() if record.key is not None}
        for record in last.values():
            if record.value is None and record.offset not in there:
                assert now >= self.reached_at[record.offset] + TOMBSTONE_MS, "gone too early"
        cleaned = [r for r in found if r.offset < self.clean_point]
        keys = [record.key for record in cleaned]
        assert len(keys) == len(set(keys)), "no key twice below the clean point"
        assert None not in keys

    def check_uncleaned(self, offsets: list[int]) -> None:
        above = [offset for offset in self.written if offset >= self.clean_point]
        assert [offset for offset in offsets if offset >= self.clean_point] == above
        log = self.partition.log
        assert self.clean_point <= log.segments()[-1].base <= self.partition.high_watermark

    def check_batches(self) -> None:
        following = 0
        for header in batches(self.partition):
            assert header.base_offset == following, "no hole"
            following = header.next_offset
            if not header.record_count and header.producer_id < 0:
                continue  # It stands for many.
            before = self.headers[header.base_offset]
            same = (
                "last_offset_delta",
                "producer_id",
                "producer_epoch",
                "base_sequence",
            )
            assert [getattr(header, f) for f in same] == [getattr(before, f) for f in same]
            assert header.codec in (before.codec, 0)
            assert header.codec == before.codec or header.record_count == 0
        assert batches(self.partition)[-1].next_offset == self.partition.log_end_offset

    def check_reading_from_anywhere(self) -> None:
        found = read(self.partition, 0)
        for offset in range(self.partition.log_end_offset):
            assert read(self.partition, offset, bytes_max=1) == [
                record for record in found if record.offset >= offset
            ], f"from {offset}"


def state_of(records: list[Record]) -> dict[bytes, bytes]:
    last = {record.key: record.value for record in records if record.key is not None}
    return {key: value for key, value in last.items() if value is not None}


def read(partition: Partition, offset: int, bytes_max: int = 1 << 20) -> list[Record]:
    """As a consumer reads: batch by batch, with the offset after the last one it got."""
    records = []
    while offset < partition.high_watermark:
        pieces = partition.read(offset, bytes_max, whole_first_batch=True)
        data = b"".join(piece.pread() for piece in pieces)
        before = offset
        for position, header in scan(data):
            records += [r for r in iterate(data, position, header) if r.offset >= offset]
            offset = max(offset, header.next_offset)
        assert offset > before, f"a reader is stuck at {offset}"
    return records


def batches(partition: Partition) -> list[BatchHeader]:
    pieces = partition.read(0, 1 << 30, whole_first_batch=True)
    return [header for _, header in scan(b"".join(piece.pread() for piece in pieces))]


@settings(max_examples=60, deadline=None)
@given(stories)
def test_cleaning_again_and_again_keeps_what_counts(story: Story) -> None:
    world = World(story)
    for _ in range(story.rounds):
        for _ in range(story.rng.randint(1, 12)):
            world.append()
            world.broker.turn()
        world.broker.pass_time(story.step_ms)
        world.clean()
        world.check()
    world.check_reading_from_anywhere()


@settings(max_examples=60, deadline=None)
@given(stories, st.integers(0, 60), st.booleans())
def test_a_crash_leaves_the_log_as_it_was_or_as_it_was_to_be(
    story: Story, operations: int, is_power_cut: bool
) -> None:
    world = World(story)
    for _ in range(story.rounds):
        for _ in range(story.rng.randint(2, 12)):
            world.append()
            world.broker.turn()
        world.broker.pass_time(story.step_ms)
        world.clean()
        world.append()
        world.broker.turn()
        crash_while_cleaning(world, operations, is_power_cut)
        world.check_keys(read(world.partition, 0))


def crash_while_cleaning(world: World, operations: int, is_power_cut: bool) -> None:
    """Run into a crash after so many operations on the disk, start again, and compare."""
    broker = world.broker
    states = [read(world.partition, 0)]

    def foresee(job: Job) -> None:
        if job.uid == world.partition.log.uid:
            states.extend(after(world.partition, broker.disk, job))

    world.kept.compactor.before_answer = foresee
    broker.disk.budget = operations
    with contextlib.suppress(Crash):
        world.clean()
    broker.disk.budget = None
    now = broker.now
    if is_power_cut:
        broker.disk.power_cut()
    else:
        broker.disk.kill()
    world.kept = Kept(FakeBroker(broker.disk, **SETTINGS), world.story.keys_max)
    world.broker.now = now
    world.partition = world.broker.find("t")
    assert not world.partition.log.is_damaged
    assert read(world.partition, 0) in states
    assert world.broker.store.recovery.lost_found == []


def after(partition: Partition, disk: FakeDisk, job: Job) -> list[list[Record]]:
    """What the log will show while this job's swaps are done, one after the other."""
    disk = copy.deepcopy(disk)
    disk.budget = None
    result = compact(disk, job, lambda byte_count: None)
    return [
        content(partition, disk, job, result.swaps[:count])
        for count in range(1, len(result.swaps) + 1)
    ]


def content(
    partition: Partition, disk: FakeDisk, job: Job, swaps: tuple[Swap, ...]
) -> list[Record]:
    replaced = {base: swap for swap in swaps for base in swap.bases}
    records: list[Record] = []
    for segment in partition.log.segments_list:
        swap = replaced.get(segment.base)
        if swap is not None and segment.base != swap.bases[0]:
            continue
        name = segment.name() if swap is None else job.swap_name(segment.base)
        size = segment.size if swap is None else swap.size
        data = disk.open(name).read_at(0, size)
        for position, header in scan(data):
            records += iterate(data, position, header)
    return records
