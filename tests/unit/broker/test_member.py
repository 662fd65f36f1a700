"""A newcomer that is to have the number of whoever leads the metadata."""

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from unit.broker.multiraft.wiring import Broker, World, produce

from dmq.broker.member import ThisMember
from dmq.errors import ErrorCode, KafkaError
from dmq.machines.codec import encode_command
from dmq.machines.commands import RegisterBroker


def member_of(broker: Broker) -> tuple[ThisMember, list[Any]]:
    submitted: list[Any] = []
    service: Any = SimpleNamespace(identity=SimpleNamespace(node_id=broker.number))
    forwarding: Any = SimpleNamespace(submit_here=lambda command: _Answer(submitted, command))
    metadata: Any = SimpleNamespace(replica=broker.replica)
    return ThisMember(service, forwarding, metadata, lambda: broker.world.now), submitted


class _Answer:
    def __init__(self, submitted: list[Any], command: Any) -> None:
        submitted.append(command)

    def map(self, decode: Any) -> "_Answer":
        return self


def asks(broker: Broker, directory: UUID) -> bytes:
    return encode_command(RegisterBroker(broker.number, directory, UUID(int=1)))


def led() -> tuple[World, Broker]:
    world = World(3)
    leader = world.elected()
    produce(leader, b"x")
    world.pass_time(200)
    return world, leader


@pytest.mark.parametrize("is_first_ill", [False, True])
def test_the_lead_goes_to_one_that_can_take_it(is_first_ill: bool) -> None:
    world, leader = led()
    member, submitted = member_of(leader)
    if is_first_ill:
        first = next(v for v in leader.replica.in_sync(world.now) if v != leader.me)
        world[first.node].replica.core.damaged(world.now)
    for _ in range(3):
        if leader.replica.is_leader:
            with pytest.raises(KafkaError, match="hands the cluster's metadata over first"):
                member.register(asks(leader, UUID(int=99)))
            world.pass_time(1000)
    assert not leader.replica.is_leader
    assert submitted == []


def test_who_is_alone_refuses_for_good() -> None:
    world, leader = led()
    for other in world.others(leader):
        other.kill()
    member, submitted = member_of(leader)
    world.pass_time(50)
    with pytest.raises(KafkaError) as refused:
        member.register(asks(leader, UUID(int=99)))
    assert refused.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert submitted == []


def test_its_own_directory_and_other_numbers_are_registered() -> None:
    world, leader = led()
    member, submitted = member_of(leader)
    other = world.others(leader)[0]
    member.register(asks(leader, leader.me.directory))
    member.register(asks(other, UUID(int=99)))
    assert len(submitted) == 2
    assert leader.replica.is_leader
