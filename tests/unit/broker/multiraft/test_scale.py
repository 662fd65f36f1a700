"""Many groups: idle ones cost nothing, a peer's death serves them in slices, frames are shared."""

from dataclasses import replace

from unit.broker.multiraft.wiring import SMALL, TOPIC, World, batch, produce, values

from dmq.broker.multiraft.sending import SendSettings
from dmq.broker.multiraft.turn import NodeSettings
from dmq.raft.messages import Append, PreVote
from dmq.storage.store import StoreSettings

STORE = StoreSettings(
    journal_bytes=8 * 1024 * 1024, journal_file_bytes=1024 * 1024, reserve_bytes=0
)


def make(groups: int, **settings: int) -> World:
    world = World(3, store=STORE, settings=NodeSettings(**settings))  # type: ignore[arg-type]
    rotated = [world.voters[n:] + world.voters[:n] for n in range(3)]
    for partition in range(groups):
        voters = rotated[partition % 3]
        for broker in world.brokers.values():
            broker.node.create_group(world.now, TOPIC, partition, voters, SMALL)
    return world


def leaders(world: World) -> list[int]:
    return [
        sum(r.is_leader for r in broker.node.replicas.values())
        for broker in world.brokers.values()
        if broker.is_up
    ]


def test_idle_groups_send_heartbeats_and_nothing_else() -> None:
    world = make(1000)
    world.until(lambda: sum(leaders(world)) == 1000)
    assert leaders(world) == [334, 333, 333]
    world.pass_time(1000, step=50)
    world.sent.clear()
    turns = [broker.disk.sync_count for broker in world.brokers.values()]
    world.pass_time(2000, step=50)
    assert all(frame.heartbeat and not frame.messages for _, _, frame in world.sent)
    assert all(frame.table is None for _, _, frame in world.sent)
    assert len(world.sent) <= 6 * 21, "six directed links, a heartbeat each 100 ms"
    assert [broker.disk.sync_count for broker in world.brokers.values()] == turns
    for broker in world.brokers.values():
        assert broker.node._agenda.deadline() is None


def test_one_frame_per_peer_and_turn_whatever_the_number_of_groups() -> None:
    world = make(50)
    world.until(lambda: sum(leaders(world)) == 50)
    world.pass_time(500)
    leader = world[1]
    for replica in leader.node.replicas.values():
        if replica.is_leader:
            replica.produce(batch(b"v"), world.now)
    world.sent.clear()
    syncs = leader.disk.sync_count
    assert leader.begin()
    frames = [frame for sender, _, frame in world.sent if sender == 1]
    assert len(frames) == 2
    assert all(len(frame.messages) == 17 for frame in frames)
    assert all(isinstance(m.message, Append) for frame in frames for m in frame.messages)
    leader.end()
    assert leader.disk.sync_count == syncs + 1
    world.settle()
    assert all(r.high_watermark == 1 for r in leader.node.replicas.values() if r.is_leader)


def test_a_dead_peers_groups_are_served_in_slices() -> None:
    world = make(60, elections_max=7, changes_max=11)
    world.until(lambda: sum(leaders(world)) == 60, 30_000)
    world.pass_time(500)
    world[1].kill()
    world.sent.clear()
    world.until(lambda: sum(leaders(world)) == 60, 30_000)
    asked = [
        sum(isinstance(m.message, PreVote) for m in frame.messages)
        for sender, to, frame in world.sent
        if to != 1
    ]
    assert max(asked) <= 7
    assert sum(asked) >= 20


def test_a_peers_window_bounds_what_is_under_way() -> None:
    sending = SendSettings(piece_bytes=500, frame_bytes=2000, flying_bytes=3000)
    world = World(3, settings=NodeSettings(sending=sending))
    leader = world.elected()
    late = world.others(leader)[1]
    world.cut(leader.number, late.number)
    for n in range(100):
        leader.replica.produce(batch(b"%d" % n * 50), world.now)
        world.settle()
    world.disconnect(leader, late)
    world.cuts.clear()
    world.connect(leader, late)
    late.is_syncing_by_hand = True
    link = leader.node.links.by_peer[late.me]
    most = 0
    while late.replica.log.end_offset < 100 or late.turn is not None:
        if late.turn is not None:
            late.end()
        for broker in world.brokers.values():
            broker.work()
        for _, _, _, frame in world.net:
            size = sum(len(m.cargo) for m in frame.messages)
            assert size <= 2000 + 500
        most = max(most, link.flying_bytes)
        world.deliver()
    assert 2000 < most <= 3000 + 500
    late.is_syncing_by_hand = False
    world.settle()
    assert link.flying_bytes == 0
    assert late.replica.high_watermark == 100


def test_flying_bytes_are_forgotten_with_the_leadership_and_the_session() -> None:
    world = World(3)
    leader = world.elected()
    heir = world.others(leader)[0]
    world.cut(leader.number, heir.number)
    for _ in range(3):
        leader.replica.produce(batch(b"v" * 100), world.now)
        world.settle()
    link = leader.node.links.by_peer[heir.me]
    assert link.flying_bytes > 0
    leader.replica.resign(world.now)
    assert link.flying_bytes == 0
    world.pass_time(2000)
    world.heal()
    world.pass_time(2000)
    assert [broker.replica.high_watermark for broker in world.brokers.values()] == [3, 3, 3]
    for broker in world.brokers.values():
        for other in broker.node.links.by_peer.values():
            assert other.flying_bytes == 0


def test_a_window_full_of_appends_that_nobody_answers_is_sent_again() -> None:
    """What has to be sent again is not under way: it must not keep itself from being sent."""
    sending = SendSettings(piece_bytes=500, frame_bytes=2000, flying_bytes=1000)
    world = World(3, settings=NodeSettings(sending=sending))
    leader = world.elected()
    late = world.others(leader)[1]
    world.pass_time(500)
    world.drops = lambda _, to, frame: to == late.number and bool(frame.messages)
    for n in range(10):
        leader.replica.produce(batch(b"%d" % n * 200), world.now)
        world.settle()
    link = leader.node.links.by_peer[late.me]
    assert link.flying_bytes >= 1000
    world.drops = lambda *_: False
    world.pass_time(2000)
    assert late.replica.high_watermark == 10
    assert link.flying_bytes == 0


def test_flying_bytes_are_forgotten_with_a_follower_that_leaves() -> None:
    world = World(3)
    leader = world.elected()
    gone, stays = world.others(leader)
    gone.is_syncing_by_hand = True
    produce(leader, b"v" * 100)
    world.settle()
    link = leader.node.links.by_peer[gone.me]
    assert link.flying_bytes > 0
    leader.replica.set_target((leader.me, stays.me), world.now)
    world.settle()
    assert gone.me not in leader.replica.core.voters
    gone.end()
    gone.is_syncing_by_hand = False
    world.settle()
    assert link.flying_bytes == 0


def test_a_learner_gets_what_its_leader_writes_beside_the_sync() -> None:
    """A lone voter's large writes are in its file only when the turn has ended: to have looked before
    must not keep them from a learner."""
    world = World(2, store=replace(STORE, late_bytes_min=100))
    first = (world[1].me,)
    for broker in world.brokers.values():
        is_founding = broker is world[1]
        broker.node.create_group(world.now, TOPIC, 0, first, SMALL, is_founding=is_founding)
    leader = world.leader()
    leader.replica.set_target(world.voters, world.now)
    world.pass_time(500)
    leader.is_syncing_by_hand = True
    produce(leader, b"v" * 500)
    leader.work()
    leader.node.outgoing(world.now)
    leader.is_syncing_by_hand = False
    leader.end()
    world.pass_time(500)
    assert values(world[2]) == [b"v" * 500]
