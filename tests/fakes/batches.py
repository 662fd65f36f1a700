"""Record batches and stores for tests of storage: small, made in one line."""

import random
from uuid import UUID

from fakes.disk import FakeDisk

from dmq.records import Record, build_batch
from dmq.storage.files import Files
from dmq.storage.log import Log, LogSettings
from dmq.storage.store import Store, StoreSettings
from dmq.types import Voter

SMALL = StoreSettings(
    journal_bytes=8 * 4096,
    journal_file_bytes=4096,
    reserve_bytes=0,
    open_files_max=10,
    quarantine_ms=1000,
)
VOTERS = (Voter(1, UUID(int=1)),)


def batch(
    base: int, *, count: int = 1, epoch: int = 0, timestamp: int = 1000, size: int = 10
) -> bytearray:
    """A batch of `count` records; the n-th has `timestamp` + n."""
    records = [Record(base + n, timestamp + n, None, b"v" * size) for n in range(count)]
    return build_batch(records, leader_epoch=epoch)


def make_disk(seed: int = 1) -> FakeDisk:
    return FakeDisk(random.Random(seed))


def open_store(files: Files, settings: StoreSettings = SMALL, *, now: int = 0) -> Store:
    return Store.open(files, settings, now=now)


def make_log(store: Store, settings: LogSettings | None = None, *, partition: int = 0) -> Log:
    log = store.create(
        UUID(int=9), partition, voters=VOTERS, settings=settings or LogSettings(segment_bytes=1000)
    )
    turn(store)
    return log


def turn(store: Store, now: int = 0) -> list[Log]:
    """One whole turn; nothing if there is nothing to do."""
    begun = store.begin_turn(now)
    if begun is None:
        return []
    if begun.needs_sync:
        begun.sync()
    return store.end_turn(begun, now)


def run_jobs(store: Store, now: int = 0) -> int:
    """Run what is due and write the notes."""
    jobs = store.maintain(now)
    for job in jobs:
        job.run()
        store.done(job)
    turn(store, now)
    return len(jobs)


def fill(store: Store, log: Log, count: int, *, size: int = 10, now: int = 0) -> None:
    """`count` batches of one record, one turn each."""
    for _ in range(count):
        epoch = log.marks.last.epoch
        log.append(batch(log.end_offset, epoch=epoch, timestamp=1000 + log.end_offset, size=size))
        turn(store, now)


def offsets(log: Log, start: int | None = None) -> list[int]:
    """Base offsets of all batches that a reader sees."""
    from dmq.records import scan

    start = log.log_start if start is None else start
    found = []
    for part in log.read(start, 1 << 30, log.end_offset):
        found += [header.base_offset for _, header in scan(part.pread())]
    return found
