"""Describing and listing groups."""

import pytest
from unit.machines.groups.coordinator import GROUP, Coordinator, subscription

from dmq.errors import ErrorCode, KafkaError
from dmq.machines.groups.commands import DescribeClassicGroup, ListedGroup, ListGroups
from dmq.machines.groups.offset_commands import CommitOffsets, OffsetToCommit


def test_a_stable_group_tells_what_its_members_say_and_have() -> None:
    coordinator = Coordinator()
    members = coordinator.stable(2)
    described = coordinator.do(DescribeClassicGroup(GROUP))
    assert (described.state, described.protocol_type, described.protocol) == (
        "Stable",
        "consumer",
        "range",
    )
    assert [one.member_id for one in described.members] == [one.member_id for one in members]
    assert [one.assignment for one in described.members] == [b"0", b"1"]
    assert {one.metadata for one in described.members} == {subscription("topic")}


def test_a_group_in_a_rebalance_tells_its_members_and_what_they_had() -> None:
    coordinator = Coordinator()
    coordinator.stable(1)
    coordinator.join()
    described = coordinator.do(DescribeClassicGroup(GROUP))
    assert (described.state, described.protocol) == ("PreparingRebalance", "")
    assert [(one.metadata, one.assignment) for one in described.members] == [
        (b"", b"0"),
        (b"", b""),
    ]


def test_a_group_that_is_not_there() -> None:
    with pytest.raises(KafkaError) as refused:
        Coordinator().do(DescribeClassicGroup("nobody"))
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_groups_are_listed_and_filtered() -> None:
    coordinator = Coordinator()
    coordinator.stable(1)
    coordinator.do(CommitOffsets("simple", (OffsetToCommit("topic", 0, 1),)))
    simple = ListedGroup("simple", "", "Empty", "classic")
    stable = ListedGroup(GROUP, "consumer", "Stable", "classic")
    assert coordinator.do(ListGroups()) == [stable, simple]
    assert coordinator.do(ListGroups(states=("EMPTY", "Dead"))) == [simple]
    assert coordinator.do(ListGroups(types=("classic",))) == [stable, simple]
    assert coordinator.do(ListGroups(types=("consumer",))) == []
    assert coordinator.do(ListGroups(states=("stable",), types=("CLASSIC",))) == [stable]


def test_a_group_with_nothing_but_an_id_that_was_given_is_there() -> None:
    coordinator = Coordinator()
    coordinator.join(again=False)
    assert coordinator.group_state() == "Empty"
    coordinator.fail_over()
    assert coordinator.group_state() == "Empty"
