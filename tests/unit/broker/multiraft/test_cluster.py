"""Three brokers: elections, replication, who is told what when the leader goes."""

from unit.broker.multiraft.wiring import World, produce, values

from dmq.errors import ErrorCode


def test_a_leader_is_elected_and_records_reach_everyone() -> None:
    world = World(3)
    leader = world.elected()
    reply = produce(leader, b"a", b"b")
    world.settle()
    assert reply.code is ErrorCode.NONE
    for broker in world.brokers.values():
        assert values(broker) == [b"a", b"b"]
        assert broker.replica.leader == leader.me
