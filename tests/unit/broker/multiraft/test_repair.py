"""Logs whose bytes went bad: they vote, do not stand, and get them back from whoever has them."""

import pytest
from fakes.disk import FakeDisk
from unit.broker.multiraft.wiring import SMALL, Broker, World, produce, values

from dmq.broker.multiraft import cargo
from dmq.broker.multiraft.frames import RangeReply
from dmq.broker.multiraft.replica import GroupSettings
from dmq.errors import StorageError
from dmq.raft.messages import Append
from dmq.raft.state import Role
from dmq.records import filler, iterate, read_header, scan
from dmq.storage.log import LogSettings


def filled(count: int = 12, *, settings: GroupSettings = SMALL) -> tuple[World, Broker]:
    """Several segments, flushed, so that nothing is written again from the journal."""
    world = World(3)
    leader = world.elected(settings)
    for n in range(count):
        produce(leader, b"%d" % n * 100)
        world.settle()
    for broker in world.brokers.values():
        broker.store.request_flush(broker.replica.log)
    world.pass_time(300)
    return world, leader


def rot(broker: Broker, *, segment: int = 0, byte: int = 16) -> None:
    log = broker.replica.log
    log.fresh.clear()  # It happened long ago.
    broker.disk.flip(log.segments_list[segment].name(), byte)


def forget(broker: Broker) -> None:
    """As after a restart: nothing is remembered of batches, nor of where they lie."""
    broker.replica.log.fresh.clear()
    for segment in broker.replica.log.segments_list:
        segment.index, segment.trusted_bytes = None, 0
        segment.hints.clear()


def read_all(broker: Broker) -> list[bytes]:
    forget(broker)
    return values(broker)


def test_a_follower_with_a_bad_header_is_repaired_by_its_group() -> None:
    world, leader = filled()
    bad = world.others(leader)[0]
    rot(bad)
    forget(bad)
    log = bad.replica.log
    with pytest.raises(StorageError):
        bad.replica.read(2, 10_000, world.now, whole_first_batch=True)
    assert log.is_damaged
    produce(leader, b"next")
    world.settle()
    assert bad.node.counts["damaged"] == 1
    world.pass_time(2500)
    assert not log.is_damaged
    assert bad.node.counts["repaired"] == 1
    assert read_all(bad) == values(leader)
    # Durably: a crash finds nothing bad.
    bad.kill(FakeDisk.power_cut)
    bad.restart()
    world.reopen(bad)
    assert not bad.replica.log.is_damaged
    world.pass_time(500)
    assert read_all(bad) == values(leader)


def test_a_file_that_lost_its_end_is_repaired_after_the_restart() -> None:
    world, leader = filled()
    bad = world.others(leader)[0]
    name = bad.replica.log.segments_list[0].name()
    bad.kill()
    file = bad.disk.open(name)
    file.cut(file.size() - 200)
    file.sync()
    bad.restart()
    world.reopen(bad)
    assert bad.replica.core.is_damaged
    world.pass_time(2500)
    assert not bad.replica.core.is_damaged
    assert read_all(bad) == values(leader)


def test_a_damaged_replica_votes_but_does_not_stand() -> None:
    world, leader = filled()
    one, two = world.others(leader)
    one.kill()
    name = one.disk.list("logs")[0]
    file = one.disk.open(f"logs/{name}/{0:020d}.log")
    file.cut(100)
    file.sync()
    two.kill()
    leader.kill()
    one.restart()
    world.reopen(one)
    world.pass_time(2000)
    world.drops = lambda sender, to, frame: any(
        isinstance(m.message, RangeReply) for m in frame.messages
    )
    two.restart()
    world.reopen(two)
    assert one.replica.core.is_damaged
    world.until(lambda: two.replica.is_leader)
    assert one.replica.core.vote == two.me
    assert one.replica.core.role is Role.FOLLOWER
    world.drops = lambda sender, to, frame: False
    world.pass_time(3000)
    assert not one.replica.core.is_damaged
    assert read_all(one) == read_all(two)


def test_an_idle_leader_in_whose_log_a_reader_finds_rot_leads_no_more() -> None:
    """Nobody writes, so no message tells it: else it would lead, and serve nothing, for ever."""
    world, leader = filled()
    world.pass_time(1000)
    rot(leader)
    forget(leader)
    epoch = leader.replica.leader_epoch
    with pytest.raises(StorageError):
        leader.replica.read(2, 10_000, world.now, whole_first_batch=True)
    world.pass_time(4000)
    assert leader.replica.leader_epoch > epoch, "it had to resign"
    assert leader.node.counts["repaired"] == 1
    assert all(len(read_all(broker)) == 12 for broker in world.brokers.values())


def test_a_leader_that_finds_rot_while_it_sends_leads_no_more() -> None:
    world, leader = filled()
    late = world.others(leader)[1]
    world.cut(leader.number, late.number)
    late.kill(lambda disk: disk.kill())
    # An empty disk must be filled from the leader's first segment.
    late.disk = FakeDisk(late.disk.rng)
    world.cuts.clear()
    rot(leader, byte=80)  # In a record: only the CRC can tell.
    late.restart()
    late.node.create_group(world.now, leader.replica.key.topic_id, 0, (), is_founding=False)
    target = (*leader.replica.core.voters, late.me)
    for broker in world.brokers.values():
        broker.replica.set_target(target, world.now)
    epoch = leader.replica.leader_epoch
    world.until(lambda: "damaged" in leader.node.counts)
    world.pass_time(4000)
    assert leader.replica.leader_epoch > epoch, "it had to resign"
    assert leader.node.counts["repaired"] == 1
    assert read_all(leader) == read_all(late)
    assert len(read_all(late)) == 12


def test_nobody_repairs_a_single_voter() -> None:
    world = World(1)
    leader = world.elected()
    produce(leader, b"a" * 100)
    world.settle()
    leader.store.request_flush(leader.replica.log)
    world.pass_time(200)
    name = leader.replica.log.segments_list[0].name()
    leader.kill()
    file = leader.disk.open(name)
    file.cut(50)
    file.sync()
    leader.restart()
    world.reopen(leader)
    world.pass_time(3000)
    assert leader.replica.core.is_damaged
    assert not leader.replica.is_leader
    assert leader.replica.log_end_offset == 1, "it is kept as it is"


def parted() -> tuple[World, Broker, Broker]:
    """A deposed leader whose last records nobody else has, and its successor; not connected."""
    world, old = filled(3)
    others = world.others(old)
    for other in others:
        world.cut(old.number, other.number)
    produce(old, b"lonely", acks=1)
    produce(old, b"lonelier", acks=1)
    world.settle()
    world.until(lambda: any(other.replica.is_leader for other in others))
    new = next(other for other in others if other.replica.is_leader)
    produce(new, b"new" * 30)
    world.settle()
    return world, old, new


@pytest.mark.parametrize("offset", [1, 3, 4])
def test_rot_in_a_tail_that_the_leader_has_not_got_goes_with_it(offset: int) -> None:
    """3 and 4 are the tail; 1 is in what both have, and is repaired first."""
    world, old, new = parted()
    log = old.replica.log
    assert log.end_offset == 5
    at = log.reader(log.segments_list[0]).position(offset)
    rot(old, byte=at + 70)
    with pytest.raises(cargo.RotError) as raised:
        cargo.read_piece(log, 0, 5, 1 << 20)
    old.replica.note_damage(raised.value, world.now)
    forget(old)
    world.heal()
    world.pass_time(5000)
    assert not old.replica.core.is_damaged
    assert old.node.counts["parted"] == 1
    assert read_all(old) == read_all(new)
    assert old.replica.core.end == new.replica.core.end


def test_rot_in_what_compaction_took_at_the_leader_just_before_the_parting_goes_too() -> None:
    """The leader has a batch without records there, and the rest of the segment is to go."""
    world, old, new = parted()
    log, taken = old.replica.log, 2
    rot(old, byte=log.reader(log.segments_list[0]).position(taken) + 70)
    with pytest.raises(cargo.RotError) as raised:
        cargo.read_piece(log, 0, 5, 1 << 20)
    old.replica.note_damage(raised.value, world.now)
    forget(old)
    for broker in world.others(old):
        take_out(broker, taken)
    world.heal()
    world.pass_time(5000)
    assert not old.replica.core.is_damaged
    assert old.node.counts["parted"] == 1
    assert read_all(old) == read_all(new)
    assert old.replica.core.end == new.replica.core.end


def take_out(broker: Broker, offset: int) -> None:
    """As compaction does, with a batch of one record."""
    log = broker.replica.log
    (segment,) = log.segments_list
    file = broker.disk.open(segment.name())
    raw = file.read_at(0, segment.size)
    kept = b"".join(
        filler(offset, offset + 1, header.leader_epoch)
        if header.base_offset == offset
        else raw[at : at + header.size]
        for at, header in scan(raw)
    )
    file.write_at(0, [kept])
    file.cut(len(kept))
    file.sync()
    segment.cut(len(kept), log.end_offset)
    forget(broker)


def join(broker: Broker, *, of: int = 0) -> None:
    """As compaction does where no record of a segment stays."""
    log = broker.replica.log
    segment, following = log.segments_list[of : of + 2]
    file = broker.disk.open(segment.name())
    raw = filler(segment.base, following.base, log.marks.last.epoch)
    file.write_at(0, [raw])
    file.cut(len(raw))
    file.sync()
    segment.cut(len(raw), following.base)
    forget(broker)


def test_rot_amid_what_compaction_made_one_batch_of_at_the_others_begins_again() -> None:
    """They have no batch that begins where ours is bad: nothing to send, and nothing wrong with them."""
    world, leader = filled()
    bad = world.others(leader)[0]
    for broker in world.others(bad):
        join(broker)
    log = bad.replica.log
    rot(bad, byte=log.reader(log.segments_list[0]).position(1) + 70)
    with pytest.raises(cargo.RotError) as raised:
        cargo.read_piece(log, 0, 12, 1 << 20)
    bad.replica.note_damage(raised.value, world.now)
    forget(bad)
    world.until(lambda: "began again" in bad.node.counts)
    world.pass_time(3000)
    assert not bad.replica.core.is_damaged
    assert not bad.replica.core.is_recovering
    assert not any(broker.replica.core.is_damaged for broker in world.brokers.values())
    assert read_all(bad) == read_all(leader)


@pytest.mark.parametrize("bytes_max", [1, 400, 1 << 20])
@pytest.mark.parametrize("flipped", [1, 2, 4, 8])
@pytest.mark.parametrize("is_compacted", [False, True])
def test_no_batch_is_read_whose_offset_rotted(
    bytes_max: int, flipped: int, is_compacted: bool
) -> None:
    """It lies outside the CRC, but the neighbours know it, whichever of them are read too."""
    _, leader = filled()
    log = leader.replica.log
    if is_compacted:
        join(leader)
    bases = [*range(0 if not is_compacted else log.segments_list[1].base, 12)]
    segment = log.segments_list[1]
    victim = segment.base + 1
    byte = log.reader(segment).position(victim)
    leader.disk.flip(segment.name(), byte + 7, flipped)
    seen = dict[int, int]()
    for start in bases:
        forget(leader)
        try:
            piece = cargo.read_piece(log, start, 12, bytes_max)
        except StorageError:
            log.damage = ()
            continue
        seen |= {h.base_offset: int(values_of(piece.data, at)) for at, h in scan(piece.data)}
    assert seen
    assert victim not in seen
    assert all(base == value for base, value in seen.items())


def test_a_batch_whose_offset_rotted_is_not_read_though_it_holds_what_is_wanted() -> None:
    """From 6 on to 10 it was, and now it says 4 to 8: only what follows it knows better."""
    world = World(3)
    leader = world.elected()
    for count in (6, 4, 2):
        produce(leader, *[b"x" * 20] * count)
        world.settle()
    log = leader.replica.log
    (segment,) = log.segments_list
    byte = segment.hints[6]
    assert cargo.read_piece(log, 6, 12, 1).stop == 10
    leader.disk.flip(segment.name(), byte + 7, 2)
    with pytest.raises(cargo.RotError):
        cargo.read_piece(log, 6, 12, 1)


def values_of(data: bytes, at: int) -> bytes:
    """What the first record of a batch says once."""
    (record, *_) = iterate(data, at, read_header(data[at:]))
    assert record.value is not None
    return record.value[: len(record.value) // 100]


def test_what_ends_amid_a_batch_without_records_is_not_read() -> None:
    _, leader = filled()
    join(leader)
    log = leader.replica.log
    stop = log.segments_list[1].base
    assert stop >= 2
    assert cargo.read_piece(log, 0, stop - 1, 1 << 20) == (0, b"")
    assert cargo.read_piece(log, 0, stop, 1).stop == stop
    assert cargo.read_piece(log, 1, stop, 1).stop == stop
    rot(leader, byte=7)
    forget(leader)
    for start, until in ((0, stop - 1), (0, stop), (1, stop)):
        with pytest.raises(StorageError):
            cargo.read_piece(log, start, until, 1 << 20)
        log.damage = ()


def test_a_log_can_not_end_amid_a_batch_without_records() -> None:
    _, leader = filled()
    join(leader)
    log = leader.replica.log
    stop = log.segments_list[1].base
    assert [log.can_cut(offset) for offset in range(stop + 2)] == [
        offset in (0, stop, stop + 1) for offset in range(stop + 2)
    ]
    # Nor if the file lost its end, and nobody has opened it since.
    first = log.segments_list[0]
    leader.store.pool.forget(first)
    first.size = first.readable = first.size + 100
    assert not log.can_cut(1)


def test_a_log_that_the_leader_trimmed_begins_again_and_keeps_its_promises() -> None:
    world, leader = filled()
    bad = world.others(leader)[0]
    world.cut(bad.number, leader.number)
    world.cut(bad.number, world.others(leader)[1].number)
    leader.replica.trim(6, world.now)
    world.settle()
    rot(bad)
    log = bad.replica.log
    forget(bad)
    with pytest.raises(StorageError):
        bad.replica.read(2, 10_000, world.now, whole_first_batch=True)
    epoch, uid = bad.replica.core.epoch, log.uid
    world.heal()
    world.until(lambda: "began again" in bad.node.counts)
    assert bad.replica.log.uid != uid
    assert bad.replica.core.is_recovering
    assert bad.replica.core.epoch >= epoch
    world.settle()
    bad.kill(FakeDisk.power_cut)
    bad.restart()
    world.reopen(bad)
    assert bad.replica.core.is_recovering or bad.replica.core.end.offset == 12
    world.pass_time(3000)
    assert not bad.replica.core.is_recovering
    assert read_all(bad) == read_all(leader)
    assert [old.uid for old in bad.store.logs.values()] == [bad.replica.log.uid], "memory is gone"


def test_a_log_of_another_length_at_the_leader_begins_again() -> None:
    """As after a compaction on one side only."""
    world, leader = filled()
    bad = world.others(leader)[0]
    log = bad.replica.log
    segment = log.segments_list[0]
    file = bad.disk.open(segment.name())
    raw = file.read_at(0, segment.size)
    (_, first), (at, second), *_ = scan(raw)
    short = filler(first.base_offset, second.next_offset, first.leader_epoch)
    kept = short + raw[at + second.size :]
    file.write_at(0, [kept])
    file.cut(len(kept))
    file.sync()
    segment.cut(len(kept), log.segments_list[1].base)
    forget(bad)
    rot(bad, byte=20)
    bad.replica.note_damage(cargo.RotError(0), world.now)
    world.until(lambda: "began again" in bad.node.counts)
    world.pass_time(3000)
    assert not bad.replica.core.is_recovering
    assert read_all(bad) == read_all(leader)


def test_a_compacted_file_that_the_journal_does_not_know_of_begins_again() -> None:
    """A rotten journal lost the swap: each offset is there, in fewer bytes than there should be."""
    world, leader = filled()
    bad = world.others(leader)[0]
    first, second, *_ = bad.replica.log.segments_list
    epoch = bad.replica.log.marks.last.epoch
    bad.kill()
    file = bad.disk.open(first.name())
    file.cut(0)
    file.write_at(0, [filler(first.base, second.base, epoch)])
    file.sync()
    bad.restart()
    world.reopen(bad)
    assert bad.replica.core.is_damaged
    world.until(lambda: "began again" in bad.node.counts)
    world.pass_time(3000)
    assert not bad.replica.core.is_damaged
    assert read_all(bad) == read_all(leader)


def test_a_log_that_can_not_even_be_cut_begins_again() -> None:
    """A header is bad below the place where the logs part, and nobody has read it since."""
    world, old, new = parted()
    log = old.replica.log
    rot(old, byte=log.reader(log.segments_list[0]).position(1) + 16)
    forget(old)
    world.heal()
    world.pass_time(4000)
    assert old.node.counts["began again"] == 1
    assert not old.replica.core.is_recovering
    assert read_all(old) == read_all(new)


WIDE = GroupSettings(log=LogSettings(segment_bytes=1 << 20, index_interval_bytes=64))


def ahead(settings: GroupSettings = WIDE) -> tuple[World, Broker, Broker]:
    """A leader with rot and a record more than the only other one that is up: it leads no more, and
    the other one, whose log is behind, can't."""
    world, leader = filled(settings=settings)
    other, down = world.others(leader)
    down.kill()
    world.pass_time(200)
    world.drops = lambda sender, to, frame: any(
        isinstance(m.message, Append) for m in frame.messages
    )
    produce(leader, b"tail", acks=1)
    world.settle()
    rot(leader)
    forget(leader)
    with pytest.raises(StorageError):
        leader.replica.read(2, 10_000, world.now, whole_first_batch=True)
    world.drops = lambda sender, to, frame: False
    assert leader.replica.log_end_offset == other.replica.log_end_offset + 1
    return world, leader, other


@pytest.mark.parametrize("settings", [WIDE, SMALL], ids=["one segment", "several"])
def test_rot_below_a_tail_that_nobody_else_has_is_repaired(settings: GroupSettings) -> None:
    world, bad, other = ahead(settings)
    world.pass_time(5000)
    assert bad.node.counts["repaired"] == 1
    produce(world.leader(), b"next")
    world.pass_time(500)
    expected = [*(b"%d" % n * 100 for n in range(12)), b"tail", b"next"]
    assert read_all(bad) == read_all(other) == expected


def test_an_order_gives_up_nothing_that_is_good_behind_the_rot() -> None:
    world, bad, other = ahead()
    epoch = bad.replica.core.epoch + 100
    for broker in (bad, other):
        assert broker.replica.ordered(bad.me, epoch, world.now)
    world.until(lambda: bad.replica.is_leader)
    assert bad.replica.log.gaps == ()
    assert len(values(bad, is_all=True)) == 13


def test_rot_below_an_epoch_that_nobody_else_has_is_repaired() -> None:
    """The other one lacks even the mark of the epoch in which the tail was written."""
    world, leader = filled()
    world.others(leader)[1].kill()
    world.pass_time(200)
    world.drops = lambda sender, to, frame: any(
        isinstance(m.message, Append) for m in frame.messages
    )
    leader.replica.core.resign(world.now)
    leader.node.touched(leader.replica, world.now)
    world.until(lambda: leader.replica.is_leader)
    produce(leader, b"tail", acks=1)
    world.settle()
    rot(leader, segment=-1)
    forget(leader)
    with pytest.raises(StorageError):
        leader.replica.read(11, 10_000, world.now, whole_first_batch=True)
    world.drops = lambda sender, to, frame: False
    world.pass_time(5000)
    assert leader.node.counts["repaired"] == 1
    assert world.leader().replica.log_end_offset == 13
    assert read_all(leader)[-1] == b"tail"


def test_rot_is_found_amid_the_segment_that_the_next_turn_completes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, leader = filled()
    bad = world.others(leader)[0]
    log, begin_turn = bad.replica.log, bad.node.begin_turn
    active = log.segments_list[-1]
    rot(bad, segment=len(log.segments_list) - 1, byte=100)
    forget(bad)
    staged: list[int] = []

    def told_first(now: int) -> object:
        if log.staged_bytes and not staged:
            staged.append(log.staged_bytes)
            bad.replica.found_rot(cargo.RotError(active.base), cargo.Sight.of(log))
        return begin_turn(now)

    monkeypatch.setattr(bad.node, "begin_turn", told_first)
    for _ in range(8):
        produce(leader, b"x" * 150)
    world.pass_time(3000)
    assert staged
    assert log.segments_list[-1].base > active.base
    assert bad.node.counts["repaired"] == 1
    assert "began again" not in bad.node.counts
    assert read_all(bad) == values(leader)
