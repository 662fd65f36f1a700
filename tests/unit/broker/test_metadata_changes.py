"""What a broker does about its cluster's metadata: all that is committed, once, and nothing else."""

from typing import Any
from uuid import UUID

from fakes.broker import FakeBroker
from unit.broker.assembled import Assembled, AssembledWorld
from unit.broker.multiraft.wiring import batch

from dmq.broker.admin import ConfigChange, MorePartitions, NewTopic
from dmq.broker.partition import Partition
from dmq.machines.commands import (
    AlterConfigs,
    AlterReassignments,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    Reassignment,
)
from dmq.machines.machine import Record
from dmq.machines.records import ConfigRecord, PartitionRecord, TopicRecord, encode
from dmq.types import METADATA_TOPIC_ID, NIL_UUID

SET, TOPIC_KIND = 0, 2


def retention(ms: int) -> ConfigChange:
    return ConfigChange(TOPIC_KIND, "t", (("retention.ms", SET, str(ms)),))


def create(world: AssembledWorld, name: str, number: int, *replicas: int) -> None:
    """A topic with one partition."""
    topic = NewTopic(name, UUID(int=number), assignments=((0, replicas),))
    (created,) = world.done(CreateTopics((topic,)))
    assert created.error is None
    world.pass_time(500)


def partition(member: Assembled, name: str) -> Partition:
    return member.parts.service.find(name, NIL_UUID, 0)


def in_force(member: Assembled, name: str) -> tuple[Any, ...]:
    """All that the metadata decide of a topic on this broker."""
    local = member.parts.replicas.topics[name]
    targets = [local.partitions[n].replica.target for n in sorted(local.partitions)]
    return member.open(name), local.config.retention_ms, local.count, targets


def test_a_leader_acts_on_what_is_committed_and_not_on_what_follows_it() -> None:
    broker = FakeBroker()
    broker.create("t")
    admin = broker.service.admin
    admin.alter_configs([retention(100_000)], replace=False, validate_only=False)
    turn = broker.begin()
    assert turn is not None
    admin.create_partitions([MorePartitions("t", 2)])
    admin.alter_configs([retention(1)], replace=False, validate_only=False)
    broker.end(turn)
    local = broker.replicas.topics["t"]
    assert broker.machine.state.topics["t"].config == {"retention.ms": "1"}, "not yet committed"
    assert (sorted(local.partitions), local.config.retention_ms) == ([0], 100_000)
    image = broker.groups._surroundings.topic("t")
    assert image is not None
    assert image.partition_count == 1, "nor are partitions assigned that may never be"
    broker.turn()
    assert (sorted(local.partitions), local.config.retention_ms) == ([0, 1], 1)


def test_what_was_cut_never_came_into_force() -> None:
    """The second change of a topic follows while the first is under way, and never leaves its leader."""
    world = AssembledWorld(3)
    old = world.controller()
    create(world, "t", 1000, 1, 2)
    before = in_force(old, "t")
    service = old.parts.service
    service.submit(AlterConfigs((retention(100_000),)))
    old.work()
    service.submit(AlterConfigs((retention(1),)))
    service.submit(CreatePartitions((MorePartitions("t", 2, ((1, 2),)),)))
    service.submit(AlterReassignments((Reassignment("t", 0, (1, 3)),)))
    world.deliver()  # The first is with the others; what they say of it is the last that is heard.
    wanted = (before[0], 100_000, before[2], before[3])
    for broker in world.others(old):
        broker.work()
    world.drops = lambda sender, to, frame: sender == old.number
    world.settle()
    assert old.replica.is_leader
    assert old.parts.machine.state.topics["t"].config == {"retention.ms": "1"}
    assert in_force(old, "t") == wanted
    world.until(lambda: not old.replica.is_leader)
    world.drops = lambda sender, to, frame: False
    world.pass_time(2000)
    assert not old.replica.is_leader
    assert old.parts.machine.state.topics["t"].config == {"retention.ms": "100000"}
    assert in_force(old, "t") == wanted


def history(world: AssembledWorld) -> Assembled:
    """Of two topics: one is moved to the broker that is returned, and lives there alone; another
    came and went. Somebody else leads the metadata then."""
    here = world.controller()
    there, third = [m for m in world.members if m is not here]
    create(world, "t", 1000, there.number)
    create(world, "gone", 1001, here.number)
    world.done(DeleteTopics((("gone", NIL_UUID),)))
    for n in range(40):
        world.done(AlterConfigs((retention(n),)))
    world.done(AlterReassignments((Reassignment("t", 0, (here.number,)),)))
    world.until(lambda: here.open("t") == [0] and there.open("t") == [])
    world.until(lambda: partition(here, "t").is_leader)
    for n in range(40):
        world.done(AlterConfigs((retention(1000 + n),)))
    partition(here, "t").append(batch(b"v"), world.now)
    here.replica.transfer(third.me, world.now)
    world.until(lambda: third.replica.is_leader)
    world.pass_time(500)
    return here


def test_a_metadata_log_that_begins_again_is_not_taken_for_news() -> None:
    """Its records come one by one, and each was true once: 't is on another broker, and not here'."""
    world = AssembledWorld(3)
    member = history(world)
    parts, held = member.parts, partition(member, "t")
    replica, wanted = held.replica, in_force(member, "t")
    assert (held.high_watermark, wanted[:2]) == (1, ([0], 1039))
    told: list[tuple[Any, ...]] = []
    moved = parts.metadata.moved

    def look() -> None:
        moved()
        local = parts.replicas.topics.get("t")
        states = (parts.machine.state, parts.changes.state)
        known = [(list(state.topics), len(state.brokers)) for state in states]
        told.append((known, local and in_force(member, "t")))

    parts.metadata.moved = look  # type: ignore[method-assign]
    end = member.replica.high_watermark
    member.node._repairs.give_up(member.replica)
    world.pass_time(2000)
    assert member.node.counts["began again"] == 1
    assert member.replica.high_watermark == end
    assert len(told) > 5, "it came in pieces"
    assert all(one == ([(["t"], 3)] * 2, wanted) for one in told), told
    assert partition(member, "t") is held
    assert not replica.is_retired
    assert held.high_watermark == 1
    groups = {replica.key.topic_id for replica in parts.node.replicas.values()}
    assert groups == {METADATA_TOPIC_ID, held.topic_id}, "what was deleted is not founded again"
    world.done(AlterConfigs((retention(5),)))
    world.pass_time(500)
    assert in_force(member, "t")[1] == 5, "it goes on with what is new"


def test_after_a_loss_a_broker_is_brought_to_what_is_left() -> None:
    """Logs of which nothing is said any more are kept, and so are their records."""
    broker = FakeBroker()
    kept, gone, unknown = (broker.create(name)[0] for name in ("kept", "gone", "unknown"))
    more = broker.create("more", 2)
    for one in (kept, unknown, *more):
        one.append(broker.batch(b"v"), broker.now)
    broker.turn()
    state, changes = broker.machine.state, broker.parts.changes

    def placed(topic_id: UUID, index: int) -> Record:
        found = state.partition(topic_id, index)
        assert found is not None
        return encode(PartitionRecord(topic_id, index, found.replicas, found.founders))

    changes.replaced(
        [
            encode(TopicRecord(kept.topic_id, "kept")),
            placed(kept.topic_id, 0),
            encode(ConfigRecord(TOPIC_KIND, "kept", {"retention.ms": "7"})),
            encode(TopicRecord(gone.topic_id, None)),
            encode(TopicRecord(more[1].topic_id, "more")),
            placed(more[1].topic_id, 1),
        ]
    )
    broker.turn()
    assert sorted(changes.state.topics) == ["kept", "more"]
    assert broker.replicas.topics["kept"].config.retention_ms == 7
    assert "gone" not in broker.replicas.topics
    for one in (kept, unknown, *more):
        assert broker.find(one.topic, one.index) is one
        assert one.high_watermark == 1
        assert not one.replica.is_retired
