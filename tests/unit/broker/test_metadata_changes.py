"""What a broker does about its cluster's metadata: all that is committed, once, and nothing else."""

from typing import Any
from uuid import UUID

from fakes.broker import FakeBroker
from unit.broker.assembled import Assembled, AssembledWorld

from dmq.broker.admin import ConfigChange, MorePartitions, NewTopic
from dmq.broker.partition import Partition
from dmq.machines.commands import (
    AlterConfigs,
    AlterReassignments,
    CreatePartitions,
    CreateTopics,
    Reassignment,
)
from dmq.types import NIL_UUID

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
