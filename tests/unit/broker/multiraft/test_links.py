"""Sessions: who may connect, who is heard, whose lease stands."""

import random
from uuid import UUID

import pytest
from fakes.disk import FakeDisk
from unit.broker.multiraft.wiring import SMALL, TOPIC, World, produce

from dmq.broker.multiraft.frames import NO_GROUPS, Digest, Heartbeat, Hello
from dmq.broker.multiraft.links import NEVER, LinkSettings, PeerLinks
from dmq.broker.multiraft.sending import Sender, SendSettings
from dmq.broker.multiraft.tables import Tables
from dmq.broker.multiraft.talk import Talk
from dmq.errors import ProtocolError
from dmq.raft.messages import PreVote, Vote
from dmq.raft.state import Role
from dmq.types import Voter

ME = Voter(1, UUID(int=1))
PEER = Voter(2, UUID(int=2))
SETTINGS = LinkSettings()


def hello(me: Voter = PEER, incarnation: int = 5, cluster: str = "c", low: int = 1, high: int = 1):  # type: ignore[no-untyped-def]
    return Hello(cluster, me, incarnation, low, high)


def make() -> PeerLinks:
    return PeerLinks(hello(ME), SETTINGS, 0)


def test_a_peer_is_live_until_it_is_silent_for_too_long() -> None:
    links = make()
    links.connected(hello(), 7, 0)
    links.tick(SETTINGS.suspect_ms - 1)
    assert links.raft.is_live(PEER)
    links.tick(SETTINGS.suspect_ms)
    assert not links.raft.is_live(PEER)
    assert links.raft.session(PEER) == 7, "the session stays"
    assert links.heard(PEER, 7, 600) is not None
    assert links.raft.is_live(PEER)
    assert links.take_changed() == [PEER]
    assert links.take_changed() == []


def test_sessions_in_which_nothing_comes_are_one_sign_of_life() -> None:
    links = make()
    links.connected(hello(), 1, 0)
    assert links.heard(PEER, 1, 10) is not None
    step = SETTINGS.suspect_ms // 5
    for session in range(2, 8):
        links.connected(hello(), session, 10 + session * step)
        links.tick(10 + session * step)
        assert links.raft.session(PEER) == session
        assert links.raft.is_live(PEER) == (session < 7), session
    assert PEER in links.take_changed()
    links.connected(hello(), 8, 5 * SETTINGS.suspect_ms)
    assert not links.raft.is_live(PEER), "still nothing was heard"
    assert links.heard(PEER, 8, 5 * SETTINGS.suspect_ms + 1) is not None
    assert links.raft.is_live(PEER)
    links.connected(hello(), 9, 9 * SETTINGS.suspect_ms)
    assert links.raft.is_live(PEER), "it was heard in the last session"


def test_frames_of_another_session_are_not_heard() -> None:
    links = make()
    links.connected(hello(), 7, 0)
    links.connected(hello(), 8, 100)
    assert links.heard(PEER, 7, 200) is None
    assert links.heard(PEER, 8, 200) is not None
    links.closed(PEER, 7)  # The old connection's end, told late.
    assert links.open_link(PEER) is not None
    links.closed(PEER, 8)
    assert links.open_link(PEER) is None
    assert links.heard(PEER, 8, 200) is None


def test_a_closed_connection_is_no_death_but_a_refused_one_is() -> None:
    links = make()
    links.connected(hello(), 7, 0)
    links.closed(PEER, 7)
    links.tick(100)
    assert links.raft.is_live(PEER)
    links.refused(PEER)
    assert not links.raft.is_live(PEER)
    assert links.raft.session(PEER) == 0


def test_a_dead_peer_that_refuses_again_is_no_news() -> None:
    links = make()
    links.connected(hello(), 7, 0)
    links.closed(PEER, 7)
    links.refused(PEER)
    assert links.take_changed() == [PEER]
    links.refused(PEER)
    assert links.take_changed() == []
    links.connected(hello(), 8, 100)
    links.closed(PEER, 8)
    links.refused(PEER)
    assert links.take_changed() == [PEER]


def test_a_closed_connection_that_does_not_come_back_is_a_death_after_a_while() -> None:
    links = make()
    links.connected(hello(), 7, 0)
    links.closed(PEER, 7)
    links.tick(SETTINGS.suspect_ms)
    assert not links.raft.is_live(PEER)
    assert links.raft.session(PEER) == 0


def test_another_directory_is_somebody_else_and_the_old_name_is_gone() -> None:
    links = make()
    links.connected(hello(), 7, 0)
    wiped = Voter(2, UUID(int=99))
    links.connected(hello(wiped), 8, 10)
    assert not links.raft.is_live(PEER)
    assert links.raft.is_live(wiped)
    assert PEER in links.take_changed()


@pytest.mark.parametrize(
    "other",
    [
        hello(cluster="another"),
        hello(low=2, high=3),
        hello(Voter(1, UUID(int=3))),
        hello(incarnation=4),
    ],
)
def test_who_does_not_belong_is_refused(other: Hello) -> None:
    links = make()
    links.connected(hello(), 7, 0)
    with pytest.raises(ProtocolError):
        links.connected(other, 8, 0)
    assert links.heard(PEER, 7, 1) is not None


def test_a_pause_of_our_own_reads_before_it_judges() -> None:
    links = make()
    links.connected(hello(), 7, 0)
    links.enter(0)
    assert links.enter(2000)
    links.tick(2000)
    assert links.raft.is_live(PEER), "its frames may lie in our socket"
    assert links.deadline() == 2000 + SETTINGS.grace_ms
    assert not links.enter(2010)
    links.heard(PEER, 7, 2010)
    links.tick(2000 + SETTINGS.grace_ms)
    assert links.raft.is_live(PEER)


def test_a_lease_counts_from_the_sending_and_a_pause_voids_it() -> None:
    links = make()
    link = links.connected(hello(), 7, 0)
    other = Voter(3, UUID(int=3))
    voters = (ME, PEER, other)
    assert not links.has_lease(voters, 0, 10)
    links.renew_lease(link, 10)
    assert links.has_lease(voters, 0, 10 + SETTINGS.lease_ms - 1)
    assert not links.has_lease(voters, 0, 10 + SETTINGS.lease_ms)
    assert not links.has_lease((ME, other, Voter(4, UUID(int=4))), 0, 10)
    for now in range(100, 1001, 100):
        links.enter(now)
    links.renew_lease(link, 990)
    assert links.has_lease(voters, 0, 1000)
    links.enter(1350)
    links.renew_lease(link, 1340)  # Sent before the pause: worth nothing.
    assert not links.has_lease(voters, 0, 1350)
    links.renew_lease(link, 1360)
    assert links.has_lease(voters, 0, 1370)


# --- with nodes -----------------------------------------------------------------------------------


def test_the_late_end_of_an_old_connection_takes_nothing_from_the_new_one() -> None:
    world = World(2)
    a, b = world[1], world[2]
    world.settle()
    old = world.sessions[1, 2]
    world.connect(a, b)
    a.node.closed(world.now, b.me, old)
    frames = a.node.outgoing(world.now)
    assert [out.frame.table is not None for out in frames] == [True]


def test_a_leader_has_a_lease_while_a_majority_answers() -> None:
    world = World(3)
    leader = world.elected()
    world.pass_time(300)
    assert leader.node.has_lease(leader.replica, world.now)
    follower = world.others(leader)[0]
    assert not follower.node.has_lease(follower.replica, world.now)
    for other in world.others(leader):
        world.cut(leader.number, other.number)
    world.pass_time(450)
    assert leader.replica.is_leader
    assert not leader.node.has_lease(leader.replica, world.now)


def test_what_was_answered_before_the_election_is_no_lease() -> None:
    """Brokers that lead nothing agree about that in all their heartbeats."""
    world = World(3)
    world.pass_time(300)
    world.create()
    world.until(lambda: world.leaders != [])
    (leader,) = world.leaders
    assert not leader.node.has_lease(leader.replica, world.now)
    world.pass_time(300)
    assert leader.node.has_lease(leader.replica, world.now)


def test_no_lease_outlives_the_election_of_another_leader() -> None:
    """The leader hears B alone; B restarts at once, and would elect C if it could forget."""
    world = World(3)
    a = world.elected()
    one, two = world.others(a)
    world.pass_time(300)
    world.cut(a.number, two.number)
    world.pass_time(300)
    assert a.node.has_lease(a.replica, world.now)
    world.cut(a.number, one.number)  # Nobody tells A what happens now.
    one.is_up = False
    one.turn = None
    one.disk.kill()
    world.disconnect(one, two)
    one.restart()
    world.reopen(one)
    world.cuts[a.number, one.number] = world.cuts[one.number, a.number] = None
    for _ in range(200):
        world.pass_time(5, step=5)
        if one.replica.is_leader or two.replica.is_leader:
            assert not a.node.has_lease(a.replica, world.now)
            break
    else:
        raise AssertionError("nobody was elected")


def test_a_one_way_cut_costs_a_leader_its_majority() -> None:
    """It hears everybody and nobody hears it: their digests say that they don't follow it."""
    world = World(3)
    old = world.elected()
    for other in world.others(old):
        world.cut(old.number, other.number, is_one_way=True)
    world.until(lambda: any(b.replica.is_leader for b in world.others(old)), 5000)
    world.until(lambda: old.replica.core.role is Role.FOLLOWER, 5000)


def test_a_follower_that_its_leader_can_not_hear_learns_that_it_leads_no_more() -> None:
    """It hears its former leader's heartbeats, so it would refuse its vote to all others for ever."""
    world = World(3)
    old = world.elected()
    unheard, apart = world.others(old)
    world.cut(unheard.number, old.number, is_one_way=True)
    world.cut(apart.number, old.number)
    world.until(lambda: not old.replica.is_leader, 5000)
    world.until(lambda: unheard.replica.is_leader or apart.replica.is_leader, 2000)
    before = old.node.counts["told unasked"]
    world.pass_time(4000)
    assert old.node.counts["told unasked"] - before <= 2 * 2, "not with every heartbeat"


def test_one_voter_that_can_not_hear_the_leader_disturbs_nobody() -> None:
    world = World(3)
    leader = world.elected()
    deaf, other = world.others(leader)
    epoch = leader.replica.leader_epoch
    world.cut(leader.number, deaf.number, is_one_way=True)
    world.pass_time(5000)
    assert leader.replica.is_leader
    assert leader.replica.leader_epoch == epoch
    reply = produce(leader)
    world.settle()
    assert reply.code == 0
    assert other.replica.high_watermark == 1


def test_digests_that_differ_twice_bring_the_lists_together() -> None:
    world = World(3)
    leader = world.elected()
    world.pass_time(300)
    follower = world.others(leader)[0]
    before = dict(follower.node.counts)
    follower.replica.disclaimed(leader.me, world.now)  # As if it had forgotten.
    follower.node.touched(follower.replica, world.now)
    assert follower.replica.leader is None
    world.drops = lambda sender, to, frame: any(
        isinstance(m.message, PreVote | Vote) for m in frame.messages
    )
    world.pass_time(350)
    assert follower.replica.leader == leader.me
    assert follower.node.counts["digest mismatch"] == before.get("digest mismatch", 0) + 1
    assert leader.replica.is_leader


def test_lists_are_not_exchanged_for_ever_about_a_group_that_one_side_lacks() -> None:
    world = World(2)
    a, b = world[1], world[2]
    a.node.create_group(world.now, TOPIC, 0, (a.me,), SMALL, target=(a.me, b.me))
    world.until(lambda: a.replica.is_leader)
    world.pass_time(10_000)
    exchanged = a.node.counts["digest mismatch"] + b.node.counts.get("digest mismatch", 0)
    assert 1 <= exchanged <= 12


def test_a_paused_broker_does_not_stand_before_it_has_read() -> None:
    world = World(3)
    leader = world.elected()
    world.pass_time(200)
    paused = world.others(leader)[0]
    epoch = leader.replica.leader_epoch
    for _ in range(20):  # The others go on; what they say waits in the paused one's sockets.
        world.now += 100
        for broker in (leader, world.others(leader)[1]):
            broker.node.tick(world.now)
            broker.work()
        waiting = [f for f in world.net if f[1] == paused.number]
        world.net = [f for f in world.net if f[1] != paused.number]
        world.deliver()
        for broker in (leader, world.others(leader)[1]):
            broker.work()
        world.net += waiting
    paused.node.tick(world.now)
    assert paused.node.counts["pause"] == 1
    assert paused.replica.leader == leader.me
    world.settle()
    world.pass_time(1000)
    assert leader.replica.is_leader
    assert leader.replica.leader_epoch == epoch


def test_a_wiped_broker_is_not_counted_as_its_predecessor() -> None:
    world = World(3)
    leader = world.elected()
    wiped = world.others(leader)[1]
    produce(leader, b"a")
    world.settle()
    wiped.kill()
    old_name = wiped.me
    wiped.disk = FakeDisk(random.Random(99))
    wiped.restart()
    assert wiped.me != old_name
    replica = wiped.node.create_group(
        world.now, TOPIC, 0, leader.replica.core.voters, SMALL, is_founding=True
    )
    world.pass_time(1000)
    assert replica.core.voters == ()
    assert wiped.me not in leader.replica.core.voters
    target = tuple(wiped.me if voter == old_name else voter for voter in leader.replica.core.voters)
    for broker in world.brokers.values():
        broker.replica.set_target(target, world.now)
    world.until(lambda: set(leader.replica.core.voters) == set(target), 20_000)


@pytest.mark.parametrize(("groups", "most"), [(10, 29), (4000, 4)])
def test_long_lists_that_differ_anew_are_exchanged_less_often(groups: int, most: int) -> None:
    """A broker that opens thousands of groups has another digest with every heartbeat."""
    links, counts = make(), list[str]()
    link = links.connected(hello(), 7, 0)
    talk = Talk(links, Tables(), Sender(links, SendSettings()), 2000, counts.append)
    for number in range(1, 31):
        follows = Digest(groups, number)
        beat = Heartbeat(number, NEVER, 0, NO_GROUPS, follows)
        talk.on_heartbeat(link, beat, 10_000 + number * SETTINGS.heartbeat_ms)
    assert most - 1 <= len(counts) <= most
