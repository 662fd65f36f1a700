"""A coordinator's memory is bounded: groups, what members say, offsets. One too many is told so."""

import pytest
from unit.machines.groups.coordinator import GROUP, Coordinator
from unit.machines.groups.modern import Consumer

from dmq.errors import ErrorCode, KafkaError
from dmq.machines.groups.commands import DeleteGroup, Protocol
from dmq.machines.groups.joining import PENDING_MAX
from dmq.machines.groups.offset_commands import (
    CommitOffsets,
    CommitOffsetsInTransaction,
    OffsetToCommit,
)
from dmq.machines.groups.outcome import Later


def commit(coordinator: Coordinator, group: str, *partitions: int) -> list[ErrorCode]:
    offsets = tuple(OffsetToCommit("topic", partition, 1) for partition in partitions)
    return [result.error for result in coordinator.do(CommitOffsets(group, offsets))]


def commit_open(coordinator: Coordinator, group: str, *partitions: int) -> list[ErrorCode]:
    offsets = tuple(OffsetToCommit("topic", partition, 1) for partition in partitions)
    command = CommitOffsetsInTransaction(group, 9, 0, offsets, "", -1, None)
    return [result.error for result in coordinator.do(command)]


def test_one_group_too_many_is_refused_and_those_that_are_there_go_on() -> None:
    coordinator = Coordinator(group_coordinator_max_groups=2)
    for name in ("a", "b"):
        assert commit(coordinator, name, 0) == [ErrorCode.NONE]
    for late in (
        lambda: commit(coordinator, "c", 0),
        lambda: commit_open(coordinator, "c", 0),
        lambda: coordinator.join(group_id="c"),
    ):
        with pytest.raises(KafkaError, match=r"group\.coordinator\.max\.groups") as refused:
            late()
        assert refused.value.code is ErrorCode.POLICY_VIOLATION
    assert commit(coordinator, "a", 1) == [ErrorCode.NONE]
    assert isinstance(coordinator.join(group_id="b"), Later)
    coordinator.do(DeleteGroup("a"))
    assert commit(coordinator, "c", 0) == [ErrorCode.NONE]


def test_a_group_of_the_new_protocol_is_refused_too() -> None:
    coordinator = Coordinator(group_coordinator_max_groups=1)
    coordinator.world.create("topic", 2)
    assert commit(coordinator, "a", 0) == [ErrorCode.NONE]
    with pytest.raises(KafkaError) as refused:
        Consumer(coordinator, "me", "topic").beat()
    assert refused.value.code is ErrorCode.POLICY_VIOLATION


def test_offsets_of_too_many_partitions_are_refused_one_by_one() -> None:
    coordinator = Coordinator(group_max_offsets=3)
    too_many = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    assert commit(coordinator, "a", 0, 1, 2, 3) == [ErrorCode.NONE] * 3 + [too_many]
    assert commit(coordinator, "a", 1, 4) == [ErrorCode.NONE, too_many]
    assert commit(coordinator, "b", 4) == [ErrorCode.NONE], "each group for itself"


def test_offsets_of_open_transactions_count() -> None:
    coordinator = Coordinator(group_max_offsets=2)
    assert commit_open(coordinator, "a", 0, 1) == [ErrorCode.NONE] * 2
    assert commit_open(coordinator, "a", 1, 2) == [
        ErrorCode.NONE,
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ]
    assert commit(coordinator, "a", 3) == [ErrorCode.INVALID_COMMIT_OFFSET_SIZE]
    coordinator.end_transaction(9, commit=False)
    assert commit(coordinator, "a", 3) == [ErrorCode.NONE]


def test_a_member_that_says_too_much_of_itself_is_refused() -> None:
    coordinator = Coordinator(group_member_metadata_max_bytes=100)
    with pytest.raises(KafkaError, match=r"group\.member\.metadata\.max\.bytes") as refused:
        coordinator.join(protocols=(Protocol("range", b"x" * 100),))
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
    assert isinstance(coordinator.join(protocols=(Protocol("range", b"x" * 90),)), Later)


def test_members_that_never_come_back_with_their_ids_are_forgotten_in_the_end() -> None:
    coordinator = Coordinator()
    for _ in range(PENDING_MAX + 5):
        coordinator.join(again=False)
    group = coordinator.machine._context.live[GROUP]
    assert len(group.pending_joins) == PENDING_MAX
    coordinator.pass_time(60_000)
    assert len(group.pending_joins) == 0
