"""Who shall vote: on partitions, and on the metadata."""

from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from unit.machines.cluster_of import Cluster

from dmq.machines.commands import (
    AlterReassignments,
    Reassignment,
    ReassignmentDone,
    UnregisterBroker,
)
from dmq.machines.records import BrokerRecord
from dmq.machines.state import ClusterState
from dmq.machines.targets import (
    finished,
    group_target,
    may_leave,
    metadata_voters,
    voters_wanted,
)
from dmq.raft.membership import ChangeVoters, next_step
from dmq.types import NIL_UUID, Voter

calmly = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A busy machine is no finding."""


def voter(node: int, life: int = 0) -> Voter:
    return Voter(node, UUID(int=node * 100 + life))


def brokers(*nodes: int | Voter, racks: str = "", leaving: tuple[int, ...] = ()) -> ClusterState:
    """Registered brokers; a rack is one letter for each."""
    state = ClusterState()
    for place, given_node in enumerate(nodes):
        one = given_node if isinstance(given_node, Voter) else voter(given_node)
        state.apply(
            BrokerRecord(
                node=one.node,
                directory=one.directory,
                incarnation=NIL_UUID,
                epoch=1,
                rack=racks[place] if racks else None,
                endpoints=(),
                features={},
                journal_seq=0,
                is_leaving=one.node in leaving,
            )
        )
    return state


def voting(*nodes: int) -> list[Voter]:
    return [voter(node) for node in nodes]


def numbers(voters: tuple[Voter, ...]) -> list[int]:
    return [voter.node for voter in voters]


@pytest.mark.parametrize(
    ("count", "wanted"), [(1, [1]), (2, [1]), (3, [1, 2, 3]), (4, [1, 2, 3]), (6, [1, 2, 3, 4, 5])]
)
def test_voters_grow_with_the_cluster(count: int, wanted: list[int]) -> None:
    nodes = range(1, count + 1)
    target = metadata_voters(brokers(*nodes), voting(1), nodes)
    assert numbers(target.voters) == wanted
    assert numbers(target.observers) == [node for node in nodes if node not in wanted]


def test_nobody_that_is_down_becomes_a_voter_and_their_number_stays_odd() -> None:
    state = brokers(1, 2, 3)
    assert numbers(metadata_voters(state, voting(1), [1, 2]).voters) == [1]
    target = metadata_voters(brokers(1, 2, 3, 4, 5), voting(1), [1, 2, 4, 5])
    assert numbers(target.voters) == [1, 2, 4]
    assert numbers(target.observers) == [3, 5]


def test_a_voter_that_is_down_stays() -> None:
    target = metadata_voters(brokers(1, 2, 3, 4), voting(1, 2, 3), [1, 2, 4])
    assert numbers(target.voters) == [1, 2, 3]


def test_who_was_unregistered_is_replaced() -> None:
    target = metadata_voters(brokers(1, 3, 4), voting(1, 2, 3), [1, 3, 4])
    assert numbers(target.voters) == [1, 3, 4]
    # By nobody, if nobody is there: then two are as good as three of whom one is gone.
    target = metadata_voters(brokers(1, 3, 4), voting(1, 2, 3), [1, 3])
    assert numbers(target.voters) == [1, 3]


def test_who_is_leaving_is_replaced_and_reads_along_till_the_end() -> None:
    state = brokers(1, 2, 3, 4, leaving=(2,))
    target = metadata_voters(state, voting(1, 2, 3), [1, 2, 3, 4])
    assert (numbers(target.voters), numbers(target.observers)) == ([1, 3, 4], [2])
    assert may_leave(state, [1, 2, 3]) == ()
    assert may_leave(state, [1, 3, 4]) == (2,)


def test_a_new_disk_follows_the_old_one() -> None:
    renamed = voter(4, life=1)
    state = brokers(1, 2, 3, renamed, 5)
    target = metadata_voters(state, voting(1, 4, 5), [1, 2, 3, 4, 5])
    assert target.voters == (voter(1), voter(5), renamed, voter(2), voter(3))
    state = brokers(1, 2, renamed, 5)
    target = metadata_voters(state, voting(1, 4, 5), [1, 2, 4, 5])
    assert target.voters == (voter(1), voter(5), renamed)


def test_voters_stand_in_different_racks() -> None:
    state = brokers(1, 2, 3, 4, 5, 6, racks="aabbcc")
    live = range(1, 7)
    assert numbers(metadata_voters(state, voting(1), live).voters)[:3] == [1, 3, 5]
    state = brokers(1, 2, 3, 4, racks="aabc")
    assert numbers(metadata_voters(state, voting(2), live).voters) == [2, 3, 4]


def test_a_shrinking_cluster_keeps_its_leader_then_the_live() -> None:
    state = brokers(1, 2)
    assert numbers(metadata_voters(state, voting(1, 2, 3), [1, 2], leader=2).voters) == [2]
    assert numbers(metadata_voters(state, voting(1, 2, 3), [2], leader=3).voters) == [2]
    assert numbers(metadata_voters(state, voting(3, 2, 1), [1, 2]).voters) == [2]
    state = brokers(1, 2, 3, 4, racks="aabc")
    target = metadata_voters(state, voting(1, 2, 3, 4, 5), [1, 2, 3, 4], leader=2)
    assert numbers(target.voters) == [2, 3, 4]


def test_who_leaves_goes_before_the_voters_become_fewer() -> None:
    """Else one that stays could go first, and of the two that are left one is about to end, or ended a
    moment ago."""
    state = brokers(1, 2, 3, leaving=(3,))
    target = metadata_voters(state, voting(1, 2, 3), [1, 2, 3], leader=1)
    assert [numbers(each) for each in target] == [[1, 2], [3]]
    step = next_step(voter(1), voting(1, 2, 3), target.voters, lambda _: True, lambda _: True)
    assert step == ChangeVoters((voter(1), voter(2)))
    assert numbers(metadata_voters(state, voting(1, 2), [1, 2, 3], leader=1).voters) == [1]
    # With another one down, both of them can't be what is left: that one goes first.
    assert numbers(metadata_voters(state, voting(1, 2, 3), [1, 3], leader=1).voters) == [1]


def test_before_anybody_registered_the_voters_are_who_they_are() -> None:
    assert metadata_voters(ClusterState(), voting(1), [1]) == (tuple(voting(1)), ())


def test_without_any_successor_nothing_changes() -> None:
    target = metadata_voters(brokers(voter(1, life=1)), voting(1), [])
    assert (target.voters, target.observers) == (tuple(voting(1)), (voter(1, life=1),))


@calmly
@given(
    st.dictionaries(st.integers(1, 8), st.tuples(st.integers(0, 1), st.sampled_from("abc"))),
    st.lists(st.integers(1, 8), min_size=1, max_size=5, unique=True),
    st.sets(st.integers(1, 8)),
    st.sets(st.integers(1, 8)),
    st.integers(-1, 8),
)
def test_voters_are_registered_stable_and_settle(
    known: dict[int, tuple[int, str]],
    current: list[int],
    live: set[int],
    leaving: set[int],
    leader: int,
) -> None:
    names = [voter(node, life) for node, (life, _) in known.items()]
    racks = "".join(rack for _, rack in known.values())
    state = brokers(*names, racks=racks, leaving=tuple(leaving))
    now = voting(*current)
    target = metadata_voters(state, now, live, leader)
    staying = [one for one in names if one.node not in leaving]
    kept = [one for one in now if one in staying]
    wanted = voters_wanted(len(staying))
    if not staying or (not kept and not any(one.node in live for one in staying)):
        assert target.voters == tuple(now)
        return
    assert len(set(target.voters)) == len(target.voters)
    assert set(target.voters) <= set(staying)
    assert {*target.voters, *target.observers} == set(names)
    assert not set(target.voters) & set(target.observers)
    if len(target.voters) > wanted:
        assert list(target.voters) == kept, "first those go that leave"
        assert any(one in names and one.node in leaving for one in now)
        assert all(one.node in {leader, *live} for one in kept)
        target = metadata_voters(state, target.voters, live, leader)
    assert len(target.voters) <= wanted
    if len(kept) <= wanted:
        assert set(kept) <= set(target.voters), "nobody is dropped without need"
    for one in target.voters:
        assert one in kept or one.node in live
    if set(target.voters) - set(kept):
        assert len(target.voters) % 2 == 1
    again = metadata_voters(state, target.voters, live, leader)
    assert again == target, "a target that was reached is the target"


def test_a_partitions_target_follows_the_disks() -> None:
    cluster = Cluster(3)
    topic_id = cluster.create("t", 1, 3).topic_id
    (placed,) = cluster.state.topics["t"].partitions
    assert group_target(cluster.state, topic_id, 0) == placed.founders
    registered = cluster.do(cluster.registration(2))
    assert registered.node == 2
    target = group_target(cluster.state, topic_id, 0)
    directories = {node: broker.directory for node, broker in cluster.state.brokers.items()}
    assert target == tuple(Voter(node, directories[node]) for node in placed.replicas)
    assert target != placed.founders
    assert group_target(cluster.state, topic_id, 1) == ()
    assert group_target(cluster.state, NIL_UUID, 0) == ()


def test_a_leader_knows_when_it_is_done() -> None:
    cluster = Cluster(4)
    created = cluster.create("t", assignments=((0, (1, 2, 3)),))
    founders = cluster.state.topics["t"].partitions[0].founders
    assert finished(cluster.state, created.topic_id, 0, founders) is None
    cluster.do(AlterReassignments((Reassignment("t", 0, (4, 2, 3)),)))
    assert finished(cluster.state, created.topic_id, 0, founders) is None
    target = group_target(cluster.state, created.topic_id, 0)
    command = finished(cluster.state, created.topic_id, 0, target[::-1])
    assert command == ReassignmentDone(created.topic_id, 0, (4, 2, 3))
    stranger = (Voter(4, NIL_UUID), *target[1:])
    assert finished(cluster.state, created.topic_id, 0, stranger) is None, "another disk"
    cluster.do(command)
    assert finished(cluster.state, created.topic_id, 0, target) is None
    assert finished(cluster.state, NIL_UUID, 0, target) is None


def test_a_metadata_voter_leaves_in_two_steps() -> None:
    cluster = Cluster(3)
    cluster.do(UnregisterBroker(1, voters=(1, 2, 3)))
    current = [Voter(node, broker.directory) for node, broker in cluster.state.brokers.items()]
    target = metadata_voters(cluster.state, current, [1, 2, 3], leader=2)
    assert numbers(target.voters) == [2, 3]
    assert may_leave(cluster.state, numbers(target.voters)) == (1,)
    cluster.do(UnregisterBroker(1, voters=(2, 3)))
    assert sorted(cluster.state.brokers) == [2, 3]
    target = metadata_voters(cluster.state, target.voters, [2, 3], leader=2)
    assert numbers(target.voters) == [2]
