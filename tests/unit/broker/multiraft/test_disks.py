"""Disks that are full or slow: who leads then, and what is refused."""

import errno
from dataclasses import replace

import pytest
from fakes.disk import FakeDisk, FakeFile
from unit.broker.multiraft.wiring import TOPIC, Broker, World, batch, produce, values

from dmq.broker.multiraft.frames import Frame
from dmq.broker.multiraft.replica import GroupSettings
from dmq.broker.multiraft.sending import SendSettings
from dmq.broker.multiraft.turn import NodeSettings
from dmq.errors import ErrorCode, StorageError
from dmq.raft.messages import TimeoutNow
from dmq.raft.state import Role
from dmq.storage.log import LogSettings
from dmq.storage.store import StoreSettings

RESERVE = StoreSettings(journal_bytes=64 * 1024, journal_file_bytes=8 * 1024, reserve_bytes=1)


def test_a_full_disk_of_a_follower_holds_nobody_up_and_heals() -> None:
    world = World(3, store=RESERVE)
    leader = world.elected()
    full = world.others(leader)[1]
    full.disk.capacity = full.disk.used_bytes()
    world.pass_time(300)
    reply = produce(leader, b"a")
    world.settle()
    assert reply.code is ErrorCode.NONE
    assert full.replica.log_end_offset == 0
    full.disk.capacity = None
    world.pass_time(2500)
    assert values(full) == [b"a"]


def test_a_full_disk_of_a_leader_is_a_definite_refusal() -> None:
    world = World(3)
    leader = world.elected()
    produce(leader, b"a")
    world.settle()
    leader.disk.capacity = leader.disk.used_bytes()
    reply = produce(leader, b"b" * 100)
    world.settle()
    assert reply.code is ErrorCode.KAFKA_STORAGE_ERROR
    leader.disk.capacity = None
    world.pass_time(2000)
    again = produce(world.leader(), b"c")
    world.pass_time(100)
    assert again.code is ErrorCode.NONE
    assert [values(b) for b in world.brokers.values()] == [[b"a", b"c"]] * 3


def test_a_broker_with_a_slow_disk_hands_over_and_stands_for_nothing() -> None:
    world = World(3)
    slow = world.elected()
    slow.is_syncing_by_hand = True
    produce(slow, b"a")
    world.pass_time(1100)
    assert not slow.replica.is_leader
    new = world.leader()
    assert new is not slow
    slow.is_syncing_by_hand = False
    slow.end()
    world.pass_time(200)
    assert values(slow) == [b"a"]
    assert slow.node.links.raft.is_fit


def test_brokers_that_share_a_slow_disk_keep_what_they_have() -> None:
    world = World(3)
    leader = world.elected()
    for broker in world.brokers.values():
        broker.is_syncing_by_hand = True
    for other in world.others(leader):
        other.replica.log.configure(LogSettings(segment_bytes=2000))
    produce(leader, b"a")
    world.pass_time(3000)
    assert leader.replica.is_leader


def fill(broker: Broker) -> None:
    broker.disk.capacity = broker.disk.used_bytes()


@pytest.mark.parametrize("store", [None, RESERVE], ids=["refuses a write", "below its reserve"])
def test_a_leader_on_a_full_disk_hands_over_and_stands_again_when_there_is_room(
    store: StoreSettings | None,
) -> None:
    world = World(3) if store is None else World(3, store=store)
    full = world.elected()
    produce(full, b"a")
    world.settle()
    fill(full)
    world.pass_time(10)
    refused = produce(full, b"b" * 100)
    world.until(lambda: not full.replica.is_leader, 3000)
    assert refused.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert not full.node.links.raft.is_fit
    reply = produce(world.leader(), b"c")
    world.settle()
    assert reply.code is ErrorCode.NONE
    full.disk.capacity = None
    world.pass_time(3000)
    assert full.node.links.raft.is_fit
    assert values(full) == [b"a", b"c"]


def test_brokers_that_are_all_full_keep_what_they_have() -> None:
    world = World(3, store=RESERVE)
    leader = world.elected()
    produce(leader, b"a")
    world.settle()
    for broker in world.brokers.values():
        fill(broker)
    world.pass_time(5000)
    assert world.leaders == [leader]
    assert values(leader) == [b"a"]


def test_full_brokers_stand_again_when_nobody_has_room_any_more() -> None:
    """What can't be written can be read."""
    world = World(3, store=RESERVE)
    first = world.elected()
    produce(first, b"a")
    world.settle()
    fill(first)
    world.until(lambda: not first.replica.is_leader, 3000)
    second = world.leader()
    fill(second)
    world.until(lambda: not second.replica.is_leader, 3000)
    third = world.leader()
    assert third not in (first, second)
    third.kill()
    world.until(lambda: len(world.leaders) == 1, 5000)
    assert values(world.leaders[0]) == [b"a"]


def test_a_full_disk_is_no_heir_and_holds_up_no_producers() -> None:
    world = World(3, store=RESERVE)
    full = world.elected()
    produce(full, b"a")
    world.settle()
    fill(full)
    world.until(lambda: not full.replica.is_leader, 3000)
    leader = world.leader()
    assert leader.replica.transfer(full.me, world.now), "it has all, and can be heard"
    world.until(lambda: leader.replica.core.can_append, 100)
    assert leader.replica.core.has_failed(full.me, world.now)
    reply = produce(leader, b"b")
    world.settle()
    assert reply.code is ErrorCode.NONE


def test_a_broker_that_stops_hands_over_to_one_with_room() -> None:
    world = World(3, store=RESERVE)
    leader = world.elected()
    produce(leader, b"a")
    world.settle()
    # The first that it would choose, as both have the same.
    full = min(world.others(leader), key=lambda broker: broker.number)
    leader.replica.transfer(full.me, world.now)
    world.until(lambda: full.replica.is_leader, 3000)
    world.pass_time(500)
    fill(full)
    world.until(lambda: not full.replica.is_leader, 3000)
    leader = world.leader()
    world.pass_time(500)
    world.until(lambda: leader.node.hand_over_all(world.now) == 0, 200)
    (heir,) = world.leaders
    assert heir not in (leader, full)


# --- async: a change of voters is not lost with a tail --------------------------------------------

ASYNC = GroupSettings(log=LogSettings(segment_bytes=1000, is_async=True, flush_ms=60_000))


def growing() -> tuple[World, Broker, Broker]:
    """A group of one voter with unflushed records, and another broker that is to be one too."""
    world = World(2)
    leader, learner = world[1], world[2]
    world.create(ASYNC, voters=(leader.me,))
    world.leader()
    learner.node.create_group(world.now, TOPIC, 0, (leader.me,), ASYNC, is_founding=False)
    for n in range(5):
        produce(leader, b"%d" % n)
    world.settle()
    for broker in (leader, learner):
        broker.replica.set_target(world.voters, world.now)
    return world, leader, learner


@pytest.mark.parametrize("slow", [1, 2])
def test_a_change_of_voters_commits_when_each_that_counts_has_flushed(
    slow: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, leader, _ = growing()
    core = leader.replica.core
    monkeypatch.setattr(world[slow], "run_jobs", lambda: None)
    world.until(lambda: core.voters == world.voters, 20_000)
    reply = produce(leader, b"after")
    world.pass_time(1000)
    assert world[slow].replica.log.awaits_flush
    assert world[slow].replica.core.durable_end[:2] == (1, 0)
    assert world[3 - slow].replica.core.durable_end == core.end
    assert core.commit[:2] == (1, 0)
    assert reply.code is None
    monkeypatch.undo()
    world.pass_time(20)
    assert reply.code is ErrorCode.NONE
    assert core.commit == core.end == (1, 1, 6)


def test_a_voter_that_loses_power_before_the_flush_never_counted_for_the_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, leader, learner = growing()
    monkeypatch.setattr(leader, "run_jobs", lambda: None)
    world.until(lambda: learner.replica.core.voters == world.voters, 20_000)
    assert leader.replica.core.commit.change == 0
    leader.kill(FakeDisk.power_cut)
    world.pass_time(2000)
    assert not learner.replica.is_leader
    monkeypatch.undo()
    leader.restart()
    world.reopen(leader, ASYNC).set_target(world.voters, world.now)
    assert world.leader() is leader
    world.until(lambda: leader.replica.core.voters == world.voters, 20_000)
    world.until(lambda: learner.replica.core.commit == leader.replica.core.end)
    assert values(learner) == values(leader)


def test_a_leader_that_steps_down_before_its_flush_acknowledges_as_a_follower(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(4)
    world.create(ASYNC, voters=world.voters[:3])
    leader = world.leader()
    world[4].node.create_group(world.now, TOPIC, 0, world.voters[:3], ASYNC, is_founding=False)
    produce(leader, b"a")
    world.settle()
    monkeypatch.setattr(leader, "run_jobs", lambda: None)
    for broker in world.brokers.values():
        broker.replica.set_target(world.voters, world.now)
    world.until(lambda: leader.replica.core.commit.change == 1, 20_000)
    assert leader.replica.core.durable_end.change == 0, "the others have it"
    heir = world.others(leader)[0]
    assert leader.replica.transfer(heir.me, world.now)
    world.until(lambda: world.leaders == [heir])
    new = world.leader()
    produce(new, b"b")
    world.pass_time(100)
    assert new.replica.core.matches()[leader.me] == (1, 0, 1)
    monkeypatch.undo()
    world.pass_time(20)
    assert new.replica.core.matches()[leader.me] == new.replica.core.end
    assert [values(broker) for broker in world.brokers.values()] == [[b"a", b"b"]] * 4


def test_voters_that_are_all_full_elect_though_somebody_else_has_room() -> None:
    """It has no vote here. What can't be written can be read, and topics can be deleted."""
    world = World(4, store=RESERVE)
    voters = world.voters[:3]
    world.create(voters=voters)
    leader = world.leader()
    produce(leader, b"a")
    world.settle()
    for number in (1, 2, 3):
        fill(world[number])
    world.pass_time(1500)
    leader.kill()
    leader.restart()
    world.reopen(leader)
    world.until(lambda: len(world.leaders) == 1)
    assert values(world.leaders[0]) == [b"a"]


def test_full_voters_elect_if_the_one_with_room_lacks_what_was_committed() -> None:
    world = World(3, store=RESERVE)
    leader = world.elected()
    behind, other = world.others(leader)
    behind.kill()
    produce(leader, b"a")
    world.settle()
    for broker in (leader, other):
        fill(broker)
    world.drops = lambda sender, to, frame: to == behind.number and has_records(frame)
    behind.restart()
    world.reopen(behind)
    world.pass_time(1500)
    leader.kill()
    world.until(lambda: world.leaders == [other])
    assert values(other) == [b"a"]
    world.drops = lambda sender, to, frame: False
    world.until(lambda: world.leaders == [behind])
    assert values(behind) == [b"a"]


def has_records(frame: Frame) -> bool:
    return any(message.cargo for message in frame.messages)


def test_what_a_full_follower_does_not_take_keeps_nothing_from_it_that_it_takes() -> None:
    """The window of what is under way to a peer is one for all groups."""
    settings = NodeSettings(sending=SendSettings(flying_bytes=1000))
    world = World(3, store=replace(RESERVE, reserve_bytes=10_000), settings=settings)
    world.create()
    world.create(partition=1)
    reserved = GroupSettings(log=LogSettings(may_use_reserve=True))
    world.create(reserved, partition=2)
    leader = world.leader()
    world.pass_time(1000)
    full = world.others(leader)[1]
    parts = [leader.node.replica(TOPIC, partition) for partition in range(3)]
    assert all(part is not None and part.is_leader for part in parts), "one leads all of them"
    full.disk.capacity = full.disk.used_bytes() + 9000
    world.pass_time(300)
    for part in parts:
        assert part is not None
        part.produce(batch(bytes(600)), world.now, acks=1, timeout_ms=1000)
        world.settle()
    world.pass_time(5000)
    kept = full.node.replica(TOPIC, 2)
    assert kept is not None
    assert kept.log_end_offset == 1
    assert full.replica.log_end_offset == 0


class Descriptors:
    """So many files of logs may be open at a time."""

    def __init__(self, broker: Broker, count: int, patch: pytest.MonkeyPatch) -> None:
        self.pool = broker.store.pool
        self.unlinked: list[str] = []
        open_file, unlink = broker.disk.open, broker.disk.unlink

        def opened(name: str, *, create: bool = False) -> FakeFile:
            if name.startswith("logs/") and len(self.pool._open) >= count:
                raise OSError(errno.EMFILE, "too many open files", name)
            return open_file(name, create=create)

        def unlinked(name: str) -> None:
            self.unlinked.append(name)
            unlink(name)

        patch.setattr(broker.disk, "open", opened)
        patch.setattr(broker.disk, "unlink", unlinked)


def deposed() -> tuple[World, Broker]:
    """A former leader that has to cut off what nobody else has."""
    world = World(3)
    old = world.elected()
    for n in range(6):
        produce(old, b"%d" % n * 200)
        world.settle()
    for other in world.others(old):
        world.cut(old.number, other.number)
    produce(old, b"lost", timeout_ms=60_000)
    world.settle()
    world.until(lambda: any(b.replica.is_leader for b in world.others(old)))
    produce(next(b for b in world.others(old) if b.replica.is_leader), b"kept")
    world.pass_time(2000)
    for segment in old.replica.log.segments_list:
        old.store.pool.forget(segment)
        segment.index, segment.trusted_bytes = None, 0
        segment.hints.clear()
    return world, old


def test_who_can_not_open_a_file_throws_no_log_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stops, and has all of it when it starts again."""
    world, old = deposed()
    with monkeypatch.context() as patch:
        descriptors = Descriptors(old, 0, patch)
        world.heal()
        with pytest.raises(StorageError, match="too many open files"):
            world.pass_time(500)
        assert not old.replica.is_lost
        assert descriptors.unlinked == []
    old.kill()
    old.restart()
    world.reopen(old)
    world.pass_time(1000)
    new = world.leader()
    assert values(old) == values(new)
    assert len(values(old)) == 7
    assert "began again" not in old.node.counts


def test_segments_let_go_of_files_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    world, old = deposed()
    old.store.pool.get(old.replica.log.segments_list[0])
    with monkeypatch.context() as patch:
        Descriptors(old, 1, patch)
        world.heal()
        world.pass_time(100)
        assert old.node.counts["cut"] == 1
    world.pass_time(2000)
    assert len(values(old)) == 7
    assert "began again" not in old.node.counts


def test_an_heir_whose_disk_refuses_a_record_does_not_lead_without_it() -> None:
    """Told late, when its leader serves again, it stands with a record that its disk then refuses: the
    others, who have it and committed it, gave their votes for that record and could not follow."""
    world = World(3)
    leader = world.elected()
    heir, other = world.others(leader)
    late: list[Frame] = []

    def is_late(sender: int, to: int, frame: Frame) -> bool:
        if not any(isinstance(m.message, TimeoutNow) for m in frame.messages):
            return False
        late.append(frame)
        return True

    world.drops = is_late
    leader.replica.transfer(heir.me, world.now)
    world.pass_time(1010)
    world.drops = lambda sender, to, frame: False
    heir.is_syncing_by_hand = True
    heir.store.request_flush(heir.replica.log)
    heir.store._is_cover_due = True
    assert heir.begin(), "its disk is at work"
    reply = produce(leader, b"a")
    world.settle()
    assert reply.code is ErrorCode.NONE
    session = world.sessions[leader.number, heir.number]
    heir.node.receive(world.now, leader.me, session, late[-1])
    assert heir.replica.core.role is Role.CANDIDATE
    heir.disk.capacity = heir.disk.used_bytes()
    heir.end()
    heir.is_syncing_by_hand = False
    world.settle()
    heir.disk.capacity = None
    world.pass_time(3000)
    assert [values(b) for b in world.brokers.values()] == [[b"a"]] * 3
    assert other.replica.core.losses == 0
