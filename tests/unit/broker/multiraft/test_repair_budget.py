"""Large and many damaged logs: the loop, and the peers that help, have other things to do as well."""

from collections import Counter
from collections.abc import Callable

import pytest
from fakes.disk import FakeFile
from unit.broker.multiraft.wiring import TOPIC, Broker, World, batch, produce, values

from dmq.broker.multiraft import cargo
from dmq.broker.multiraft.bad_range import BATCH_COST, BadRange
from dmq.broker.multiraft.frames import Frame, RangeReply, RangeRequest
from dmq.broker.multiraft.replica import GroupSettings, Replica
from dmq.storage.items import Damage
from dmq.storage.log import LogSettings
from dmq.storage.store import StoreSettings

MIB = 1024 * 1024
ASKED_AT_ONCE = 4
ROOMY = StoreSettings(
    journal_bytes=64 * MIB, journal_file_bytes=16 * MIB, reserve_bytes=0, quarantine_ms=1000
)
LARGE = GroupSettings(log=LogSettings(segment_bytes=64 * MIB, index_interval_bytes=64))
PARTITIONS = 20


# --- one large log --------------------------------------------------------------------------------


def large(count: int = 10) -> tuple[World, Broker, Broker]:
    """Batches of a MiB, flushed; the leader and a follower."""
    world = World(3, store=ROOMY)
    leader = world.elected(LARGE)
    for n in range(count):
        produce(leader, b"%d" % n * MIB)
        world.settle()
    for broker in world.brokers.values():
        broker.store.request_flush(broker.replica.log)
    world.pass_time(300)
    return world, leader, world.others(leader)[0]


def rot_last(broker: Broker) -> None:
    """A reader found a bad batch at the end of the only segment."""
    replica = broker.replica
    (segment,) = replica.log.segments_list
    last = replica.log.end_offset - 1
    place = replica.log.reader(segment).position(last)
    broker.disk.flip(segment.name(), place + 100)
    replica.note_damage(cargo.RotError(last), broker.world.now)


class Meter:
    """What one broker reads from segments in each of its turns."""

    def __init__(self, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
        self.per_turn: list[int] = []
        self._is_on = False
        self._read, self._begin = FakeFile.read_at, broker.begin
        meter = self

        def read_at(file: FakeFile, position: int, length: int) -> bytes:
            data = meter._read(file, position, length)
            if meter._is_on and file.name.endswith(".log"):
                meter.per_turn[-1] += len(data)
            return data

        monkeypatch.setattr(FakeFile, "read_at", read_at)
        monkeypatch.setattr(broker, "begin", self._metered)

    def _metered(self) -> bool:
        self.per_turn.append(0)
        self._is_on = True
        try:
            return self._begin()
        finally:
            self._is_on = False


def test_a_large_segment_is_looked_through_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one turn it would keep the loop from its heartbeats until all peers take it for dead."""
    world, leader, bad = large()
    meter = Meter(bad, monkeypatch)
    rot_last(bad)
    world.until(lambda: not bad.replica.core.is_damaged)
    assert sum(meter.per_turn) > 9 * MIB, "all before the bad batch is looked at"
    assert max(meter.per_turn) <= 6 * MIB, "headers are read ahead: twice a slice, and a batch"
    assert bad.node.counts["repaired"] == 1
    assert values(bad) == values(leader)


def test_a_look_comes_back_by_itself_for_the_next_slice() -> None:
    """Nothing else happens: no frame comes, no heartbeat is due."""
    world, _, bad = large()
    rot_last(bad)
    for other in world.others(bad):
        world.disconnect(bad, other)
    bad.work()
    slices = 0
    while (deadline := bad.node.next_deadline()) <= world.now + 10:
        world.now = deadline
        bad.node.tick(world.now)
        bad.work()
        slices += 1
        assert slices < 100, "it looks without end"
    assert slices >= 3
    for other in world.others(bad):
        world.connect(bad, other)
    bad.work()
    asked = [m.message for *_, frame in world.sent for m in frame.messages]
    (request,) = [message for message in asked if isinstance(message, RangeRequest)]
    assert request.start == bad.replica.log_end_offset - 1, "only the bad batch is fetched"


def test_the_place_reached_stays_when_less_or_more_is_wanted() -> None:
    """Else a leader that changes its mind would have all looked at again, each time."""
    _, _, bad = large(count=3)
    log = bad.replica.log
    (segment,) = log.segments_list
    file = log.open_segment(segment)
    damage = Damage(segment.base, segment.size - 1, segment.size)
    found = BadRange(damage, segment, segment.size - 1, log.end_offset)
    found.look_on(file, log.marks, 1)
    assert not found.is_known
    assert found.offset == 1
    place = found.byte
    for limit, stop, is_all in ((2, 2, False), (None, 3, True)):
        found.set_limit(limit)
        assert (found.byte, found.stop, found.is_all) == (place, stop, is_all)
    found.look_on(file, log.marks, 10 * MIB)
    assert found.is_known
    assert found.offset == 2, "the last one has lost a byte"


def test_a_small_batch_costs_more_than_its_bytes() -> None:
    """Each takes some microseconds, and a segment may have millions of them."""
    world = World(1)
    leader = world.elected(LARGE)
    for _ in range(10):
        produce(leader, b"v")
    world.settle()
    log = leader.replica.log
    (segment,) = log.segments_list
    found = BadRange(Damage(0, segment.size, segment.size), segment, segment.size, 10)
    assert found.look_on(log.open_segment(segment), log.marks, 4 * BATCH_COST) == 4 * BATCH_COST
    assert found.offset == 4


# --- many logs ------------------------------------------------------------------------------------


def many() -> tuple[World, Broker]:
    """Twenty groups with some batches in each, and a broker that leads none of them."""
    world = World(3)
    for partition in range(PARTITIONS):
        world.create(partition=partition)
    world.until(lambda: all(leading(world, n) for n in range(PARTITIONS)))
    for partition in range(PARTITIONS):
        for _ in range(3):
            leading(world, partition)[0].produce(
                batch(b"v" * 100), world.now, acks=-1, timeout_ms=5000, on_done=lambda code: None
            )
    world.pass_time(100)
    bad = world[3]
    for partition in range(PARTITIONS):
        if (replica := replica_of(bad, partition)).is_leader:
            assert replica.transfer(world[1].me, world.now)
    world.pass_time(500)
    for broker in world.brokers.values():
        for log in broker.store.logs.values():
            broker.store.request_flush(log)
    world.pass_time(300)
    return world, bad


def replica_of(broker: Broker, partition: int) -> Replica:
    found = broker.node.replica(TOPIC, partition)
    assert found is not None
    return found


def leading(world: World, partition: int) -> list[Replica]:
    replicas = [replica_of(broker, partition) for broker in world.brokers.values()]
    return [r for r in replicas if r.is_leader and r.core.commit.epoch == r.core.epoch]


def rot_all(bad: Broker) -> None:
    for partition in range(PARTITIONS):
        replica = replica_of(bad, partition)
        bad.disk.flip(replica.log.segments_list[0].name(), 100)
        replica.note_damage(cargo.RotError(0), bad.world.now)


def damaged(bad: Broker) -> list[int]:
    return [n for n in range(PARTITIONS) if replica_of(bad, n).core.is_damaged]


class Awaited:
    """Ranges that were asked of each peer and have not been answered, as the network sees it."""

    def __init__(self, world: World, bad: Broker) -> None:
        self.now: Counter[int] = Counter()
        self.most = 0
        self._bad = bad.number
        self.is_dropped: Callable[[int, int], bool] = lambda to, partition: False
        world.drops = self._look

    def _look(self, sender: int, to: int, frame: Frame) -> bool:
        for what in frame.messages:
            if isinstance(what.message, RangeRequest):
                self.now[to] += 1
                self.most = max(self.most, self.now[to])
                if self.is_dropped(to, what.key.partition):
                    return True
            elif isinstance(what.message, RangeReply):
                assert to == self._bad
                self.now[sender] -= 1
        return False


def test_a_peer_is_asked_for_a_few_ranges_at_a_time() -> None:
    """It reads them from its disk at once, and what does not fit into a session would end that."""
    world, bad = many()
    awaited = Awaited(world, bad)
    rot_all(bad)
    world.until(lambda: not damaged(bad), 500)
    assert 0 < awaited.most <= ASKED_AT_ONCE
    assert bad.node.counts["repaired"] == PARTITIONS


@pytest.mark.parametrize("silent", [1, 2])
def test_a_peer_that_answers_nothing_keeps_nobody_from_the_other(silent: int) -> None:
    world, bad = many()
    awaited = Awaited(world, bad)
    awaited.is_dropped = lambda to, partition: to == silent
    rot_all(bad)
    world.until(lambda: not damaged(bad), 2500)


def test_logs_that_nobody_answers_for_keep_no_other_waiting_for_ever() -> None:
    """There are more of them than may be asked at once, and they are asked again and again."""
    world, bad = many()
    awaited = Awaited(world, bad)
    lonely = list(range(3 * ASKED_AT_ONCE))
    awaited.is_dropped = lambda to, partition: partition in lonely
    rot_all(bad)
    world.until(lambda: damaged(bad) == lonely)
    awaited.is_dropped = lambda to, partition: False
    world.until(lambda: not damaged(bad))
