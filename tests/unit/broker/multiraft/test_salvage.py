"""A damaged log that an operator orders a group to go on with: what is good is kept, and it serves."""

import contextlib
from collections.abc import Callable

import pytest
from fakes.disk import Crash, FakeDisk
from unit.broker.multiraft.wiring import Broker, World, produce, values

from dmq.broker.multiraft import cargo
from dmq.errors import ErrorCode, StorageError
from dmq.records import filler, scan

COUNT = 12


def value(n: int) -> bytes:
    return b"%d" % n * 100


def alone() -> tuple[World, Broker]:
    """The only voter of a group: segments 0, 5 and 10, all flushed."""
    world = World(1)
    broker = world.elected()
    for n in range(COUNT):
        produce(broker, value(n))
        world.settle()
    broker.store.request_flush(broker.replica.log)
    world.pass_time(300)
    assert [s.base for s in broker.replica.log.segments_list] == [0, 5, 10]
    return world, broker


def reopened(world: World, broker: Broker) -> None:
    broker.restart()
    world.reopen(broker)
    world.pass_time(1000)


def order(world: World, broker: Broker) -> None:
    epoch = broker.replica.core.epoch + 1000
    assert broker.replica.ordered(broker.me, epoch, world.now)
    assert broker.replica.ordered(broker.me, epoch, world.now), "it is under way"


def expected(*lost: int) -> list[bytes]:
    return [value(n) for n in range(COUNT) if n not in lost]


def name_of(broker: Broker, segment: int) -> str:
    return broker.replica.log.segments_list[segment].name()


def places(broker: Broker, segment: int) -> list[int]:
    """Bytes at which the segment's batches begin."""
    found = broker.replica.log.segments_list[segment]
    raw = broker.disk.open(found.name()).read_at(0, found.size)
    return [at for at, _ in scan(raw)]


def forget(broker: Broker) -> None:
    """As after a restart: nothing is remembered of where batches lie."""
    for segment in broker.replica.log.segments_list:
        segment.index, segment.trusted_bytes = None, 0
        segment.hints.clear()


def half(broker: Broker, segment: int) -> Callable[[FakeDisk], None]:
    name, at = name_of(broker, segment), places(broker, segment)[1]

    def crash(disk: FakeDisk) -> None:
        disk.kill()
        file = disk.open(name)
        file.cut(at + 20)
        file.sync()

    return crash


def gone(broker: Broker, segment: int) -> Callable[[FakeDisk], None]:
    name = name_of(broker, segment)

    def crash(disk: FakeDisk) -> None:
        disk.kill()
        disk.unlink(name)
        disk.sync_dir(name.rpartition("/")[0])

    return crash


@pytest.mark.parametrize("crash", [FakeDisk.kill, FakeDisk.power_cut])
@pytest.mark.parametrize(
    ("damage", "segment", "lost"),
    [
        (half, 0, (1, 2, 3, 4)),
        (half, 2, (11,)),
        (gone, 1, (5, 6, 7, 8, 9)),
        (gone, 2, (10, 11)),
    ],
)
def test_a_log_without_some_of_its_bytes_goes_on_without_their_records(
    damage: Callable[[Broker, int], Callable[[FakeDisk], None]],
    segment: int,
    lost: tuple[int, ...],
    crash: Callable[[FakeDisk], None],
) -> None:
    world, broker = alone()
    broker.kill(damage(broker, segment))
    reopened(world, broker)
    assert broker.replica.core.is_damaged
    assert not broker.replica.is_leader, "not before it is ordered"
    order(world, broker)
    world.until(lambda: broker.replica.is_leader)
    assert broker.replica.log.gaps == ((lost[0], lost[-1] + 1),)
    reply = produce(broker, b"after")
    world.settle()
    assert reply.code is ErrorCode.NONE
    assert values(broker) == [*expected(*lost), b"after"]
    broker.kill(crash)
    reopened(world, broker)
    assert not broker.replica.core.is_damaged
    assert world.leader() is broker, "without another order"
    assert values(broker) == [*expected(*lost), b"after"]


@pytest.mark.parametrize("byte", [9, 16, 24, 80])
def test_one_bad_batch_takes_no_other_one_with_it(byte: int) -> None:
    """9: its length, so that nobody knows where the next one begins; 80: only the CRC can tell."""
    world, broker = alone()
    log = broker.replica.log
    broker.disk.flip(name_of(broker, 1), places(broker, 1)[2] + byte)
    forget(broker)
    with pytest.raises(StorageError) as raised:
        cargo.read_piece(log, 7, COUNT, 1 << 20)
    broker.replica.note_damage(raised.value, world.now)
    world.pass_time(1000)
    assert not broker.replica.is_leader
    order(world, broker)
    world.until(lambda: broker.replica.is_leader)
    assert log.gaps == ((7, 8),)
    assert values(broker) == expected(7)


def test_a_compacted_file_that_the_journal_does_not_know_of_is_taken_as_it_is() -> None:
    """A rotten journal lost the swap: no offset is missing, and nothing is lost."""
    world, broker = alone()
    first, second, *_ = broker.replica.log.segments_list
    kept = filler(first.base, second.base, broker.replica.log.marks.last.epoch)
    broker.kill()
    file = broker.disk.open(first.name())
    file.cut(0)
    file.write_at(0, [kept])
    file.sync()
    reopened(world, broker)
    assert broker.replica.core.is_damaged
    uid = broker.replica.log.uid
    order(world, broker)
    world.until(lambda: broker.replica.is_leader)
    world.pass_time(3000)
    assert broker.replica.is_leader
    assert broker.replica.log.uid == uid, "it must not begin again"
    assert broker.replica.log.gaps == ()
    assert values(broker) == expected(0, 1, 2, 3, 4)


def test_no_batch_of_what_is_lost_lies_across_a_mark() -> None:
    world = World(1)
    broker = world.elected()
    for n in range(4):
        produce(broker, b"%d" % n)
        world.settle()
        broker.kill()
        reopened(world, broker)
        world.leader()
    broker.store.request_flush(broker.replica.log)
    world.pass_time(300)
    broker.kill(gone(broker, 0))
    reopened(world, broker)
    order(world, broker)
    world.until(lambda: broker.replica.is_leader)
    log = broker.replica.log
    assert log.gaps == ((0, 4),)
    data = b"".join(s.pread() for s in log.read(0, 1 << 20, 4))
    headers = [header for _, header in scan(data)]
    assert [header.base_offset for header in headers] == [0, 1, 2, 3]
    assert [header.leader_epoch for header in headers] == [log.marks.epoch_at(n) for n in range(4)]
    assert [header.record_count for header in headers] == [0] * 4


def test_wherever_a_crash_comes_all_that_is_good_is_kept() -> None:
    count = 0
    while crash_after(count):
        count += 1
    assert count > 10, "too tame"


def crash_after(operations: int) -> bool:
    """Whether a crash came so many operations of the disk after the order."""
    world, broker = alone()
    broker.kill(half(broker, 0))
    reopened(world, broker)
    epoch = broker.replica.core.epoch + 1000
    broker.replica.ordered(broker.me, epoch, world.now)
    broker.disk.budget = operations
    with contextlib.suppress(Crash):
        world.pass_time(1000)
    has_crashed = (broker.disk.budget or 0) < 0
    broker.kill(FakeDisk.power_cut)
    broker.restart()
    if not world.reopen(broker).ordered(broker.me, epoch, world.now):
        order(world, broker)
    world.until(lambda: broker.replica.is_leader)
    assert values(broker) == expected(1, 2, 3, 4)
    assert not broker.replica.log.is_damaged
    return has_crashed


def test_a_full_disk_only_delays_it() -> None:
    world, broker = alone()
    broker.kill(half(broker, 0))
    reopened(world, broker)
    broker.disk.capacity = broker.disk.used_bytes()
    order(world, broker)
    world.pass_time(3000)
    assert broker.replica.log.is_damaged
    broker.disk.capacity = None
    world.until(lambda: broker.replica.is_leader)
    assert values(broker) == expected(1, 2, 3, 4)


def test_what_another_replica_has_is_fetched_and_not_given_up() -> None:
    world = World(3)
    leader = world.elected()
    for n in range(COUNT):
        produce(leader, value(n))
        world.settle()
    for broker in world.brokers.values():
        broker.store.request_flush(broker.replica.log)
    world.pass_time(300)
    bad, good = world.others(leader)
    bad.kill(half(bad, 0))
    leader.kill()
    bad.restart()
    world.reopen(bad)
    epoch = bad.replica.core.epoch + 1000
    for broker in (bad, good):
        assert broker.replica.ordered(bad.me, epoch, world.now)
    world.until(lambda: bad.replica.is_leader)
    assert bad.replica.log.gaps == ()
    assert values(bad) == expected()


def test_a_reader_that_finds_rot_ends_the_lead_of_an_only_voter() -> None:
    """Nobody sends it anything: else it would lead, and serve nothing, for ever."""
    world, broker = alone()
    broker.disk.flip(name_of(broker, 1), places(broker, 1)[2] + 9)
    forget(broker)
    with pytest.raises(StorageError):
        broker.replica.read(8, 1000, world.now, whole_first_batch=True)
    world.pass_time(500)
    assert not broker.replica.is_leader
    order(world, broker)
    world.until(lambda: broker.replica.is_leader)
    assert values(broker) == expected(7)
