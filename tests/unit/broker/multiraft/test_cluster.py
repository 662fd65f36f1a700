"""Brokers wired by hand: elections, replication, who is told what when leaders and disks go."""

from collections.abc import Callable

import pytest
from fakes.disk import FakeDisk
from unit.broker.multiraft.wiring import SMALL, TOPIC, Broker, World, batch, produce, values

from dmq.broker.multiraft.frames import Frame, GroupMessage
from dmq.broker.multiraft.replica import GroupSettings, NotLeaderError
from dmq.broker.multiraft.waiting import FetchWaiter
from dmq.errors import ErrorCode, KafkaError
from dmq.raft.messages import Ack, Append, Vote
from dmq.raft.state import Role
from dmq.storage.log import LogSettings
from dmq.types import Position, Voter


@pytest.mark.parametrize("is_encoding", [False, True])
def test_a_leader_is_elected_and_records_reach_everyone(is_encoding: bool) -> None:
    world = World(3, is_encoding=is_encoding)
    leader = world.elected()
    reply = produce(leader, b"a", b"b")
    world.settle()
    assert reply.code is ErrorCode.NONE
    for broker in world.brokers.values():
        assert values(broker) == [b"a", b"b"]
        assert broker.replica.leader == leader.me


def test_a_single_voter_leads_itself() -> None:
    world = World(1)
    leader = world.elected()
    reply = produce(leader, b"a")
    assert reply.code is None
    world.settle()
    assert reply.code is ErrorCode.NONE
    assert values(leader) == [b"a"]


def test_the_first_in_the_order_of_voters_wins_the_first_election() -> None:
    world = World(3)
    world.create(voters=tuple(reversed(world.voters)))
    assert world.leader() is world[3]


# --- acknowledgements -----------------------------------------------------------------------------


def test_an_ack_waits_until_a_majority_is_durable() -> None:
    world = World(3)
    leader = world.elected()
    for broker in world.brokers.values():
        broker.is_syncing_by_hand = True
    own, whole = produce(leader, b"own", acks=1), produce(leader, b"all")
    world.settle()
    one, two = world.others(leader)
    assert one.replica.log.end_offset == 2  # It has both, in its page cache.
    assert (own.code, whole.code) == (None, None)
    leader.end()
    assert (own.code, whole.code) == (ErrorCode.NONE, None)
    assert leader.replica.high_watermark == 0
    one.end()
    world.deliver()
    assert whole.code is ErrorCode.NONE
    assert leader.replica.high_watermark == 2
    assert two.turn is not None
    assert two.turn.needs_sync


def test_a_leader_commits_by_its_followers_disks_alone() -> None:
    world = World(3)
    leader = world.elected()
    leader.is_syncing_by_hand = True
    reply = produce(leader, b"a")
    world.settle()
    assert leader.turn is not None
    assert reply.code is ErrorCode.NONE
    assert values(leader) == [b"a"]


def test_acks_0_and_1_are_done_with_the_leaders_own_disk() -> None:
    world = World(3)
    leader = world.elected()
    for other in world.others(leader):
        world.cut(leader.number, other.number)
    none, own, whole = (produce(leader, acks=acks) for acks in (0, 1, -1))
    world.settle()
    assert none.code is ErrorCode.NONE
    assert own.code is ErrorCode.NONE
    assert whole.code is None
    assert leader.replica.high_watermark == 0


def test_a_producers_patience_ends() -> None:
    world = World(3)
    leader = world.elected()
    for other in world.others(leader):
        world.cut(leader.number, other.number)
    reply = produce(leader, timeout_ms=300)
    world.pass_time(290)
    assert reply.code is None
    world.pass_time(200)
    assert reply.code is ErrorCode.REQUEST_TIMED_OUT


def test_followers_refuse_producers_and_name_the_leader() -> None:
    world = World(3)
    leader = world.elected()
    world.settle()
    follower = world.others(leader)[0]
    with pytest.raises(NotLeaderError) as caught:
        follower.replica.produce(batch(b"x"), world.now)
    assert caught.value.leader == leader.me
    assert caught.value.leader_epoch == leader.replica.leader_epoch
    assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_too_few_replicas_in_sync_refuse_acks_all_and_nothing_is_appended() -> None:
    world = World(3)
    leader = world.elected(GroupSettings(log=SMALL.log, min_insync_replicas=3))
    world.others(leader)[0].kill()
    world.settle()
    assert produce(leader).code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert leader.replica.log_end_offset == 0
    own = produce(leader, acks=1)
    world.settle()
    assert own.code is ErrorCode.NONE


def test_committed_but_on_too_few_disks() -> None:
    world = World(3)
    leader = world.elected(GroupSettings(log=SMALL.log, min_insync_replicas=3))
    one, two = world.others(leader)
    two.is_syncing_by_hand = True
    reply = produce(leader, b"a")
    world.settle()
    assert leader.replica.high_watermark == 1
    assert reply.code is None  # Two disks have it, three are wanted, three are in sync.
    two.kill()
    world.settle()
    assert reply.code is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert values(one) == [b"a"]


def test_all_disks_that_are_wanted_have_it() -> None:
    world = World(3)
    leader = world.elected(GroupSettings(log=SMALL.log, min_insync_replicas=3))
    two = world.others(leader)[1]
    two.is_syncing_by_hand = True
    reply = produce(leader, b"a")
    world.settle()
    assert reply.code is None
    two.end()
    world.settle()
    assert reply.code is ErrorCode.NONE


def test_what_the_broker_itself_wrote_is_there_when_it_is_committed() -> None:
    """A coordinator must not take for refused what its log has: it would wait for it for ever."""
    world = World(3)
    leader = world.elected(GroupSettings(log=SMALL.log, min_insync_replicas=3))
    world.cut(leader.number, world.others(leader)[0].number)
    told: list[ErrorCode] = []
    position = leader.replica.propose(bytearray(batch(b"x")), world.now, told.append)
    leader.replica.when_committed(told.append)
    world.pass_time(1000)
    assert leader.replica.is_leader
    assert leader.replica.core.commit == position
    assert told == [ErrorCode.NONE, ErrorCode.NONE]


def test_min_insync_replicas_is_never_more_than_there_are() -> None:
    world = World(1)
    leader = world.elected(GroupSettings(log=SMALL.log, min_insync_replicas=3))
    reply = produce(leader)
    world.settle()
    assert reply.code is ErrorCode.NONE


# --- the leader goes ------------------------------------------------------------------------------


def test_a_killed_leader_is_replaced_and_catches_up_when_it_returns() -> None:
    world = World(3)
    old = world.elected()
    produce(old, b"a")
    world.settle()
    old.kill(FakeDisk.power_cut)
    began = world.now
    new = world.leader()
    assert new is not old
    assert world.now - began < 500, "a refused connection is no reason to wait"
    assert values(new) == [b"a"]
    reply = produce(new, b"b")
    world.settle()
    assert reply.code is ErrorCode.NONE
    old.restart()
    world.reopen(old)
    world.pass_time(300)
    assert values(old) == [b"a", b"b"]
    assert old.replica.leader == new.me


def test_a_silent_leader_is_suspected_after_a_while() -> None:
    world = World(3)
    old = world.elected()
    for other in world.others(old):
        world.cut(old.number, other.number)
    began = world.now
    world.until(lambda: any(b.replica.is_leader for b in world.others(old)))
    assert 400 <= world.now - began < 2000
    world.until(lambda: old.replica.core.role is Role.FOLLOWER)  # Nobody follows it.
    assert world.now - began < 3000


def test_a_leader_that_restarts_at_once_is_noticed_by_its_table() -> None:
    world = World(3)
    old = world.elected()
    epoch = old.replica.leader_epoch
    old.is_up = False
    old.disk.kill()
    for other in world.others(old):  # No refusal, no silence: just another connection.
        world.disconnect(old, other)
    old.restart()
    world.reopen(old)
    world.settle()
    assert all(b.replica.leader != old.me for b in world.others(old))
    new = world.leader()
    assert new.replica.leader_epoch > epoch


def test_a_deposed_leader_does_not_guess_and_learns_of_its_commit() -> None:
    """Its append reached a majority, but the news did not reach it: no error, then success."""
    world = World(3)
    old = world.elected()
    one, two = world.others(old)
    reply = produce(old, b"kept")
    old.work()
    world.deliver()
    for other in (one, two):
        world.cut(old.number, other.number)
        other.work()
    world.until(lambda: not old.replica.is_leader)
    assert reply.code is None
    new = next(b for b in (one, two) if b.replica.is_leader)
    world.pass_time(100)
    assert values(new) == [b"kept"]
    world.heal()
    world.pass_time(300)
    assert reply.code is ErrorCode.NONE


def test_a_deposed_leaders_lost_append_is_told_when_that_is_certain() -> None:
    world = World(3)
    old = world.elected()
    for other in world.others(old):
        world.cut(old.number, other.number)
    lost, own = produce(old, b"lost", timeout_ms=60_000), produce(old, b"too", acks=1)
    world.settle()
    assert own.code is ErrorCode.NONE  # Its own disk had it; that is all that acks=1 says.
    world.until(lambda: any(b.replica.is_leader for b in world.others(old)))
    new = next(b for b in world.others(old) if b.replica.is_leader)
    kept = produce(new, b"kept")
    world.pass_time(2000)
    assert kept.code is ErrorCode.NONE
    assert lost.code is None
    assert values(old, is_all=True) == [b"lost", b"too"]
    world.heal()
    world.pass_time(300)
    assert lost.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert values(old, is_all=True) == [b"kept"]
    assert old.node.counts["cut"] == 1


def test_a_cut_alone_settles_nothing() -> None:
    """Five voters. x is on A and D. B leads, its mark reaches A alone, and it dies: A has cut x. Then D
    wins with the votes of C and E, and x is committed: the answer that A owes is success."""
    world = World(5)
    a = world.elected()
    assert a is world[1]
    b, c, d, e = (world[n] for n in (2, 3, 4, 5))
    for n in (2, 3, 5):
        world.cut(1, n)
    x = produce(a, b"x", timeout_ms=60_000)
    world.settle()
    assert values(d, is_all=True) == [b"x"]
    world.cut(1, 4)
    # A is alone, so is D. One of the others wins; its appends reach nobody but A.
    for n in (2, 3, 5):
        world.cut(4, n)
    world.drops = lambda sender, to, frame: (
        to != 1
        and any(isinstance(m.message, Append) and m.message.epoch > 1 for m in frame.messages)
    )
    world.until(lambda: any(other.replica.is_leader for other in (b, c, e)))
    new = next(other for other in (b, c, e) if other.replica.is_leader)
    others = [other for other in (b, c, e) if other is not new]
    assert new.replica.core.commit.epoch < new.replica.core.epoch
    del world.cuts[1, new.number], world.cuts[new.number, 1]
    world.disconnect(a, new)
    world.connect(a, new)
    world.until(lambda: values(a, is_all=True) == [])
    assert a.node.counts["cut"] == 1
    assert x.code is None
    new.kill()
    world.drops = lambda sender, to, frame: False
    # D hears C and E again.
    world.cuts = {pair: None for pair in world.cuts if new.number in pair or 1 in pair}
    for other in others:
        world.disconnect(d, other)
        world.connect(d, other)
    world.until(lambda: d.replica.is_leader)
    world.pass_time(100)
    assert values(d) == [b"x"]
    assert x.code is None
    world.heal()
    world.pass_time(1000)
    assert x.code is ErrorCode.NONE
    assert values(a) == [b"x"]


# --- logs that part, logs that are behind ---------------------------------------------------------


def test_a_follower_catches_up_in_pieces_after_a_restart() -> None:
    world = World(3)
    leader = world.elected()
    late = world.others(leader)[1]
    late.kill()
    for n in range(60):
        produce(leader, b"%d" % n * 20)
        world.settle()
    late.restart()
    world.reopen(late)
    world.pass_time(500)
    assert values(late) == values(leader)
    assert len(values(late)) == 60


def test_a_follower_below_the_log_start_begins_again_there() -> None:
    world = World(3)
    leader = world.elected()
    late = world.others(leader)[1]
    late.kill()
    for n in range(30):
        produce(leader, b"%d" % n * 20)
        world.settle()
    answer = leader.replica.trim(20, world.now)
    world.settle()
    assert answer.get() == 20
    late.restart()
    world.reopen(late)
    world.pass_time(500)
    assert late.node.counts["reset"] == 1
    assert late.replica.log_start_offset == 20
    assert values(late) == values(leader)
    assert len(values(late)) == 10


def test_a_log_may_begin_in_the_middle_of_a_batch() -> None:
    world = World(3)
    leader = world.elected()
    late = world.others(leader)[1]
    late.kill()
    produce(leader, *(b"%d" % n for n in range(10)))
    produce(leader, b"last")
    world.settle()
    leader.replica.trim(4, world.now)
    world.settle()
    late.restart()
    world.reopen(late)
    world.pass_time(500)
    expected = [b"%d" % n for n in range(4, 10)] + [b"last"]
    assert values(late) == expected
    late.kill(FakeDisk.power_cut)
    late.restart()
    world.reopen(late)
    world.pass_time(500)
    assert values(late) == expected


def test_trim_moves_the_start_on_every_replica_and_after_a_restart() -> None:
    world = World(3)
    leader = world.elected()
    for n in range(10):
        produce(leader, b"%d" % n)
    world.settle()
    with pytest.raises(KafkaError, match="OFFSET_OUT_OF_RANGE"):
        leader.replica.trim(11, world.now)
    answer = leader.replica.trim(7, world.now)
    assert not answer.is_done
    world.settle()
    assert answer.get() == 7
    world.pass_time(100)
    assert [b.replica.log_start_offset for b in world.brokers.values()] == [7, 7, 7]
    leader.kill(FakeDisk.power_cut)
    leader.restart()
    world.reopen(leader)
    assert leader.replica.log_start_offset == 7


# --- reading --------------------------------------------------------------------------------------


def test_nothing_above_the_high_watermark_is_shown() -> None:
    world = World(3)
    leader = world.elected()
    produce(leader, b"shown")
    world.settle()
    for other in world.others(leader):
        world.cut(leader.number, other.number)
    produce(leader, b"hidden")
    world.settle()
    assert values(leader, is_all=True) == [b"shown", b"hidden"]
    assert values(leader) == [b"shown"]
    assert leader.replica.read(1, 1000, world.now, whole_first_batch=True) == []
    assert leader.replica.read(2, 1000, world.now, whole_first_batch=True) == []


def test_only_a_leader_that_nobody_can_have_replaced_says_that_its_log_ends() -> None:
    """A reader that hears it begins anew, or goes on at the end and misses what lies between."""
    world = World(3)
    leader = world.elected()
    produce(leader, b"a")
    world.pass_time(200)
    with pytest.raises(KafkaError, match="outside"):
        leader.replica.read(2, 1000, world.now, whole_first_batch=True)
    for other in world.others(leader):
        world.cut(leader.number, other.number)
    world.until(lambda: not leader.node.has_lease(leader.replica, world.now))
    assert leader.replica.is_leader, "as far as it knows"
    with pytest.raises(KafkaError, match="NOT_LEADER_OR_FOLLOWER"):
        leader.replica.read(2, 1000, world.now, whole_first_batch=True)


def test_a_follower_serves_up_to_its_high_watermark() -> None:
    world = World(3)
    leader = world.elected()
    produce(leader, b"a")
    world.settle()
    follower = world.others(leader)[0]
    assert follower.replica.high_watermark == 1
    assert values(follower) == [b"a"]
    with pytest.raises(KafkaError, match="OFFSET_NOT_AVAILABLE"):
        follower.replica.read(2, 1000, world.now, whole_first_batch=True)


def test_latest_is_known_when_the_new_leaders_mark_is_committed() -> None:
    world = World(3)
    old = world.elected()
    produce(old, b"a")
    world.settle()
    with pytest.raises(NotLeaderError):
        world.others(old)[0].replica.latest_offset()
    for broker in world.others(old):
        broker.is_syncing_by_hand = False
    # Nobody hears of the commit point, so that the next leader does not know it.
    one, two = world.others(old)
    produce(old, b"b")
    old.work()
    world.deliver()
    one.work()
    two.work()
    world.net.clear()
    old.kill()
    world.until(lambda: one.replica.is_leader or two.replica.is_leader)
    new = one if one.replica.is_leader else two
    if not new.replica.core.knows_latest:
        with pytest.raises(KafkaError, match="OFFSET_NOT_AVAILABLE"):
            new.replica.latest_offset()
    world.pass_time(100)
    assert new.replica.latest_offset() == 2


def test_a_waiting_fetch_wakes_on_leader_and_follower() -> None:
    world = World(3)
    leader = world.elected()
    woken: list[str] = []
    follower = world.others(leader)[0]
    leader.replica.wait(FetchWaiter(1, lambda: woken.append("leader")))
    follower.replica.wait(FetchWaiter(1, lambda: woken.append("follower")))
    far = FetchWaiter(10_000, lambda: woken.append("far"))
    leader.replica.wait(far)
    produce(leader, b"a")
    assert woken == []
    world.settle()
    assert sorted(woken) == ["follower", "leader"]
    leader.replica.resign(world.now)  # Whoever waits must look for the new leader.
    assert "far" in woken


# --- replicas come and go -------------------------------------------------------------------------


def test_a_learner_catches_up_and_becomes_a_voter_and_another_leaves() -> None:
    world = World(4)
    first = tuple(world[n].me for n in (1, 2, 3))
    world.create(voters=first)
    leader = world.leader()
    for n in range(20):
        produce(leader, b"%d" % n * 10)
    world.settle()
    new = world[4].node.create_group(world.now, TOPIC, 0, first, SMALL, is_founding=False)
    target = tuple(world[n].me for n in (1, 2, 4))
    for number in (1, 2, 3, 4):
        world[number].replica.set_target(target, world.now)
    assert new.core.voters == ()
    world.until(lambda: leader.replica.core.voters == target, 20_000)
    world.pass_time(300)
    assert values(world[4]) == values(leader)
    assert new.core.voters == target
    # The one that left is no voter, and gets nothing any more.
    produce(leader, b"after")
    world.settle()
    assert values(world[4])[-1] == b"after"
    assert world[3].me not in leader.replica.core.matches()


def test_a_leader_that_is_not_wanted_hands_over_first() -> None:
    world = World(3)
    leader = world.elected()
    target = tuple(b.me for b in world.others(leader))
    for broker in world.brokers.values():
        broker.replica.set_target(target, world.now)
    world.until(lambda: world.leaders != [] and world.leaders[0] is not leader, 20_000)
    new = world.leaders[0]
    world.until(lambda: new.replica.core.voters == target, 20_000)


def test_a_blank_learner_that_restarts_is_a_blank_learner_still() -> None:
    world = World(4)
    first = tuple(world[n].me for n in (1, 2, 3))
    world.create(voters=first)
    world.leader()
    learner = world[4]
    learner.node.create_group(world.now, TOPIC, 0, first, SMALL, is_founding=False)
    world.pass_time(100)
    learner.kill(FakeDisk.power_cut)
    learner.restart()
    replica = learner.node.create_group(world.now, TOPIC, 0, first, SMALL)
    assert replica.core.voters == ()
    world.pass_time(2000)
    assert replica.core.role is Role.FOLLOWER
    assert replica.core.epoch == 0


def test_a_transfer_moves_the_leadership_without_losing_an_append() -> None:
    world = World(3)
    leader = world.elected()
    heir = world.others(leader)[1]
    reply = produce(leader, b"a")
    assert leader.replica.transfer(heir.me, world.now)
    assert produce(leader, b"refused").code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    world.settle()
    assert heir.replica.is_leader
    assert reply.code is ErrorCode.NONE
    assert values(heir) == [b"a"]


def test_an_orderly_end_hands_everything_over() -> None:
    world = World(3)
    for partition in range(5):
        world.create(partition=partition)
    world.pass_time(100)
    leader = world.leader()
    began = world.now
    assert leader.node.hand_over_all(world.now) == 5
    world.settle()
    assert leader.node.hand_over_all(world.now) == 0
    assert world.now - began < 200
    assert not any(r.is_leader for r in leader.node.replicas.values())


def test_an_orderly_end_waits_until_the_heirs_are_known() -> None:
    world = World(3)
    leader = world.elected()
    assert leader.node.hand_over_all(world.now) == 1
    for _ in range(100):
        left = leader.node.hand_over_all(world.now)
        assert left == (leader.replica.is_leader or leader.replica.core.leader is None)
        if not left:
            break
        for broker in world.brokers.values():
            broker.work()
        world.deliver()
    assert leader.replica.leader in [other.me for other in world.others(leader)]


def test_brokers_that_all_stop_wait_for_nobody() -> None:
    world = World(3)
    leader = world.elected()
    for other in world.others(leader):
        other.node.hand_over_all(world.now)
    world.pass_time(2 * leader.node.settings.links.heartbeat_ms)
    assert leader.node.hand_over_all(world.now) == 0
    assert leader.replica.is_leader


def test_a_dropped_group_answers_and_its_files_go() -> None:
    world = World(3)
    leader = world.elected()
    for other in world.others(leader):
        world.cut(leader.number, other.number)
    reply = produce(leader)
    leader.work()
    leader.node.drop_group(TOPIC, 0)
    assert reply.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    world.settle()
    assert leader.node.replica(TOPIC, 0) is None
    leader.kill(FakeDisk.power_cut)
    leader.restart()
    assert leader.node.unclaimed == []


def test_a_group_dropped_in_the_middle_of_a_turn() -> None:
    world = World(3)
    leader = world.elected()
    leader.is_syncing_by_hand = True
    produce(leader)
    leader.work()
    leader.node.drop_group(TOPIC, 0)
    leader.end()
    leader.is_syncing_by_hand = False
    world.pass_time(1000)
    assert leader.node.replica(TOPIC, 0) is None
    assert world.leader() in world.others(leader)


# --- async ----------------------------------------------------------------------------------------


def test_an_async_group_loses_nothing_to_the_power_loss_of_a_minority() -> None:
    world = World(3)
    settings = GroupSettings(log=LogSettings(segment_bytes=1000, is_async=True, flush_ms=100_000))
    leader = world.elected(settings)
    for n in range(5):
        produce(leader, b"%d" % n)
    world.settle()
    leader.kill(FakeDisk.power_cut)
    new = world.leader()
    leader.restart()
    back = world.reopen(leader, settings)
    assert back.core.is_recovering
    world.pass_time(1000)
    assert not back.core.is_recovering
    assert values(leader) == values(new) == [b"%d" % n for n in range(5)]


def test_an_async_voter_that_is_not_well_yet_does_not_become_so_by_a_restart() -> None:
    world = World(3)
    settings = GroupSettings(log=LogSettings(segment_bytes=1000, is_async=True, flush_ms=100_000))
    leader = world.elected(settings)
    produce(leader, b"a")
    world.settle()
    bad, other = world.others(leader)
    leader.kill()
    other.kill()
    bad.kill(FakeDisk.power_cut)
    for _ in range(2):
        bad.restart()
        assert world.reopen(bad, settings).core.is_recovering
        bad.kill()
    for broker in (bad, leader, other):
        broker.restart()
        world.reopen(broker, settings)
    world.pass_time(2000)
    assert not bad.replica.core.is_recovering
    bad.kill()
    bad.restart()
    assert not world.reopen(bad, settings).core.is_recovering


def test_what_is_about_to_be_cut_is_not_shown_though_the_files_still_have_it() -> None:
    """A follower learns of the commit point and of its own wrong tail in one message."""
    world = World(3)
    old = world.elected()
    for other in world.others(old):
        world.cut(old.number, other.number)
    for n in range(4):
        produce(old, b"wrong%d" % n, timeout_ms=60_000)
        world.settle()
    world.until(lambda: any(b.replica.is_leader for b in world.others(old)))
    new = next(b for b in world.others(old) if b.replica.is_leader)
    for n in range(8):
        produce(new, b"right%d" % n)
    world.pass_time(2000)
    old.is_syncing_by_hand = True
    world.heal()
    while "cut" not in old.node.counts:  # Until it has cut and taken; no turn knows of it yet.
        if old.turn is not None:
            old.end()
        old.work()
        for other in world.others(old):
            other.work()
        world.deliver()
    assert old.replica.log.is_cut_staged
    right = [b"right%d" % n for n in range(8)]
    shown = values(old)
    assert shown == right[: len(shown)]
    while old.turn is not None:
        old.end()
        shown = values(old)
        assert shown == right[: len(shown)]
        old.work()
        world.deliver()
    old.is_syncing_by_hand = False
    world.pass_time(200)
    assert values(old) == right


# --- moved away and back --------------------------------------------------------------------------


def moved(world: World, gone: int, settings: GroupSettings = SMALL) -> tuple[Broker, Broker]:
    """(leader, the broker that the group has left)."""
    leader = world.elected(settings)
    assert leader.number != gone
    for n in range(10):
        produce(leader, b"%d" % n * 20)
    world.settle()
    target = tuple(b.me for b in world.brokers.values() if b.number != gone)
    for broker in world.brokers.values():
        broker.replica.set_target(target, world.now)
    world.until(lambda: leader.replica.core.voters == target, 20_000)
    world.pass_time(200)
    return leader, world[gone]


def test_a_replica_that_left_keeps_its_word_and_nothing_else() -> None:
    world = World(4)
    leader, left = moved(world, 4)
    epoch, vote = left.replica.core.epoch, left.replica.core.vote
    left.node.leave_group(TOPIC, 0)
    world.settle()
    assert left.node.replica(TOPIC, 0) is None
    assert left.node.unclaimed == []
    left.kill(FakeDisk.power_cut)
    left.restart()
    assert left.node.unclaimed == []
    (log,) = left.store.logs.values()
    assert (log.epoch, log.vote) == (epoch, vote)
    assert log.size_bytes == 0
    world.reopen(left)  # Though the caller takes it for a founder.
    assert left.replica.core.voters == ()
    assert left.replica.core.is_recovering
    assert (left.replica.core.epoch, left.replica.core.vote) == (epoch, vote)
    target = world.voters
    for broker in world.brokers.values():
        broker.replica.set_target(target, world.now)
    world.until(lambda: set(leader.replica.core.voters) == set(target), 20_000)
    world.pass_time(200)
    assert not left.replica.core.is_recovering
    assert values(left) == values(leader)
    assert list(left.store.logs.values()) == [left.replica.log], "the memory is not needed any more"


def vote_of_who_returned(
    world: World, back: Broker, asker: Broker, end: Position, settings: GroupSettings = SMALL
) -> Voter | None:
    """It is alone, and hears only that somebody with a log that ends here asks for its vote."""
    for other in world.others(back):
        world.cut(back.number, other.number)
    core = world.reopen(back, settings).core
    world.pass_time(1000)
    assert core.end < end
    asked = Vote(99, end, is_transfer=False)
    back.replica.step(asker.me, back.node.links.raft.session(asker.me), asked, b"", world.now)
    assert core.epoch == 99
    return core.vote


@pytest.mark.parametrize("missing", [0, 1])
def test_a_replica_that_returns_votes_for_nobody_who_has_less_than_it_had(missing: int) -> None:
    """Else a voter of old, which missed the change, could win with its help (and lose records)."""
    world = World(4)
    leader, left = moved(world, 4)
    had = left.replica.core.end
    left.node.leave_group(TOPIC, 0)
    world.settle()
    end = had._replace(offset=had.offset - missing)
    assert vote_of_who_returned(world, left, leader, end) == (None if missing else leader.me)


@pytest.mark.parametrize("crash", [FakeDisk.kill, FakeDisk.power_cut])
def test_an_async_replica_that_returns_votes_if_it_knows_how_far_it_was(
    crash: Callable[[FakeDisk], None],
) -> None:
    """The power went: what it had may have been less than what it acknowledged."""
    world = World(4)
    settings = GroupSettings(log=LogSettings(segment_bytes=1000, is_async=True))
    leader, left = moved(world, 4, settings)
    had = left.replica.core.end
    left.node.leave_group(TOPIC, 0)
    world.settle()
    left.kill(crash)
    left.restart()
    vote = vote_of_who_returned(world, left, leader, had, settings)
    assert vote == (leader.me if crash is FakeDisk.kill else None)


def test_acks_of_a_former_stay_do_not_count() -> None:
    world = World(4)
    leader, left = moved(world, 4)
    session = leader.node.links.raft.session(left.me)
    stale = Ack(leader.replica.core.epoch, leader.replica.core.end)
    old_tag = left.replica.their_tags[leader.me]
    left.node.leave_group(TOPIC, 0)
    world.settle()
    target = world.voters
    leader.replica.set_target(target, world.now)
    frame = Frame(messages=(GroupMessage(leader.replica.key, stale, b"", old_tag),))
    leader.node.receive(world.now, left.me, session, frame)
    assert leader.replica.core.matches()[left.me] < stale.end
    fresh = leader.replica.our_tags[left.me]
    frame = Frame(messages=(GroupMessage(leader.replica.key, stale, b"", fresh),))
    leader.node.receive(world.now, left.me, session, frame)
    assert leader.replica.core.matches()[left.me] == stale.end, "only the tag makes the difference"


def test_a_deleted_topic_takes_memory_and_all() -> None:
    world = World(4)
    _, left = moved(world, 4)
    left.node.leave_group(TOPIC, 0)
    world.settle()
    left.node.drop_group(TOPIC, 0)
    world.settle()
    assert dict(left.store.logs) == {}


def test_a_replica_that_leaves_does_not_guess_what_became_of_its_appends() -> None:
    """The others have the record and commit it without their old leader."""
    world = World(3)
    leader = world.elected()
    one, two = world.others(leader)
    world.cut(one.number, leader.number, is_one_way=True)
    world.cut(two.number, leader.number, is_one_way=True)
    reply = produce(leader, b"kept", timeout_ms=60_000)
    world.settle()
    for other in (one, two):
        assert other.replica.log_end_offset == 1
        world.cut(leader.number, other.number)
    world.until(lambda: any(other.replica.is_leader for other in (one, two)))
    new = one if one.replica.is_leader else two
    world.until(lambda: values(new) == [b"kept"])
    assert reply.code is None
    leader.node.leave_group(TOPIC, 0)
    assert reply.code is ErrorCode.REQUEST_TIMED_OUT


def test_a_list_that_heartbeats_have_overtaken_says_nothing() -> None:
    """Its sender leads by now, and counts on who follows it: nobody else may be elected before its
    lease is over."""
    world = World(3)
    world.pass_time(300)
    leader = world.elected()
    world.pass_time(300)
    follower = world.others(leader)[0]
    session = world.sessions[leader.number, follower.number]
    early = next(
        frame
        for sender, to, frame in world.sent
        if (sender, to) == (leader.number, follower.number) and frame.table is not None
    )
    assert early.table is not None
    assert not early.table.leads
    follower.node.receive(world.now, leader.me, session, Frame(table=early.table))
    assert follower.replica.core.leader == leader.me
    assert follower.node.counts["list overtaken"] == 1
    late = early.table._replace(sent_at=world.now)
    follower.node.receive(world.now, leader.me, session, Frame(table=late))
    assert follower.replica.core.leader is None
