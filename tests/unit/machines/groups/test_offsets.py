"""Committing, fetching and forgetting offsets."""

from typing import Any

import pytest
from unit.machines.groups.coordinator import GROUP, WALL_AHEAD_MS, Coordinator, subscription

from dmq.errors import ErrorCode, KafkaError
from dmq.machines.groups.commands import (
    DeleteGroup,
    DescribeClassicGroup,
    Joined,
    ListGroups,
    Protocol,
)
from dmq.machines.groups.facts import OffsetKey
from dmq.machines.groups.offset_commands import (
    CommitOffsets,
    CommitOffsetsInTransaction,
    DeleteOffsets,
    FetchedOffset,
    FetchOffsets,
    ForgetTopics,
    OffsetToCommit,
    SweepTopics,
)
from dmq.types import NIL_UUID

WEEK_MS = 7 * 24 * 3600 * 1000
CHECK_MS = 600_000


def commit(coordinator: Coordinator, offset: int, member: Joined | None = None, **more: Any) -> Any:
    topic = more.pop("topic", "topic")
    topic_id = more.pop("topic_id", NIL_UUID)
    metadata = more.pop("metadata", "")
    wanted = (OffsetToCommit(topic, 0, offset, 5, metadata, topic_id),)
    if member is not None:
        more |= {"member_id": member.member_id, "generation": member.generation}
    (result,) = coordinator.do(CommitOffsets(GROUP, wanted, **more))
    return result.error


def refused(coordinator: Coordinator, *args: Any, **more: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as error:
        commit(coordinator, *args, **more)
    return error.value.code


def fetch(coordinator: Coordinator, topic: str = "topic", **more: Any) -> FetchedOffset:
    (found,) = coordinator.do(FetchOffsets(GROUP, ((topic, 0),), **more))
    assert isinstance(found, FetchedOffset)
    return found


def transact(coordinator: Coordinator, producer_id: int, offset: int, **more: Any) -> Any:
    wanted = (OffsetToCommit("topic", 0, offset),)
    return coordinator.do(CommitOffsetsInTransaction(GROUP, producer_id, 0, wanted, **more))


def test_a_simple_consumer_commits_and_fetches() -> None:
    coordinator = Coordinator()
    assert commit(coordinator, 42, metadata="note") is ErrorCode.NONE
    assert fetch(coordinator) == ("topic", 0, 42, 5, "note", ErrorCode.NONE)
    described = coordinator.do(DescribeClassicGroup(GROUP))
    assert (described.state, described.protocol_type) == ("Empty", "")


def test_what_was_never_committed_is_minus_one_and_no_error() -> None:
    coordinator = Coordinator()
    assert fetch(coordinator) == ("topic", 0, -1, -1, "", ErrorCode.NONE)
    assert coordinator.do(FetchOffsets("no such group")) == []


def test_all_offsets_of_a_group() -> None:
    coordinator = Coordinator()
    commit(coordinator, 1, topic="a")
    commit(coordinator, 2, topic="b")
    found = coordinator.do(FetchOffsets(GROUP))
    assert [(one.topic, one.offset) for one in found] == [("a", 1), ("b", 2)]


def test_notes_have_a_bound_and_each_partition_its_own_end() -> None:
    coordinator = Coordinator()
    wanted = (OffsetToCommit("a", 0, 1, -1, "x" * 4097), OffsetToCommit("a", 1, 1, -1, "x" * 4096))
    results = coordinator.do(CommitOffsets(GROUP, wanted))
    too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert [result.error for result in results] == [too_large, ErrorCode.NONE]
    assert len(coordinator.log) == 1


def test_members_commit_for_their_generation() -> None:
    coordinator = Coordinator()
    (member,) = coordinator.stable(1)
    assert commit(coordinator, 1, member) is ErrorCode.NONE
    late = Joined(ErrorCode.NONE, member.member_id, 0)
    assert refused(coordinator, 1, late) is ErrorCode.ILLEGAL_GENERATION
    stranger = Joined(ErrorCode.NONE, "stranger", 1)
    assert refused(coordinator, 1, stranger) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refused(coordinator, 1) is ErrorCode.UNKNOWN_MEMBER_ID, "it is no simple group"


def test_a_generation_of_a_group_that_is_not_there() -> None:
    coordinator = Coordinator()
    member = Joined(ErrorCode.NONE, "member", 3)
    assert refused(coordinator, 1, member) is ErrorCode.GROUP_ID_NOT_FOUND
    old = {"knows_epochs": False}
    assert refused(coordinator, 1, member, **old) is ErrorCode.ILLEGAL_GENERATION


def test_commits_wait_until_the_assignment_is_there() -> None:
    coordinator = Coordinator()
    later = coordinator.join()
    coordinator.pass_time(3000)
    member = coordinator.joined(later)
    assert refused(coordinator, 1, member) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_member_may_commit_what_it_has_read_before_it_joins_again() -> None:
    coordinator = Coordinator()
    (member,) = coordinator.stable(1)
    coordinator.join()
    assert commit(coordinator, 1, member) is ErrorCode.NONE


def test_a_commit_is_a_sign_of_life() -> None:
    coordinator = Coordinator()
    (member,) = coordinator.stable(1)
    coordinator.pass_time(9999)
    commit(coordinator, 1, member)
    coordinator.pass_time(9999)
    assert coordinator.heartbeat(member) is ErrorCode.NONE


# --- transactions ------------------------------------------------------------------------------


def test_offsets_of_a_transaction_count_when_it_commits() -> None:
    coordinator = Coordinator()
    commit(coordinator, 1)
    transact(coordinator, 9, 5)
    assert fetch(coordinator).offset == 1
    unstable = fetch(coordinator, require_stable=True)
    assert (unstable.offset, unstable.error) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    coordinator.end_transaction(9, commit=True)
    assert fetch(coordinator, require_stable=True).offset == 5


def test_offsets_of_an_aborted_transaction_never_count() -> None:
    coordinator = Coordinator()
    transact(coordinator, 9, 5)
    coordinator.end_transaction(9, commit=False)
    assert fetch(coordinator, require_stable=True).offset == -1
    coordinator.end_transaction(9, commit=True)
    assert fetch(coordinator).offset == -1, "a marker without offsets says nothing"


def test_of_two_commits_the_later_in_the_log_counts() -> None:
    coordinator = Coordinator()
    transact(coordinator, 9, 5)
    commit(coordinator, 7)
    coordinator.end_transaction(9, commit=True)
    assert fetch(coordinator).offset == 7
    transact(coordinator, 8, 11)
    transact(coordinator, 9, 12)
    coordinator.end_transaction(9, commit=True)
    coordinator.end_transaction(8, commit=True)
    assert fetch(coordinator).offset == 12


def test_open_transactions_survive_the_leader() -> None:
    coordinator = Coordinator()
    transact(coordinator, 9, 5)
    coordinator.fail_over()
    assert fetch(coordinator, require_stable=True).error is ErrorCode.UNSTABLE_OFFSET_COMMIT
    coordinator.end_transaction(9, commit=True)
    assert fetch(coordinator).offset == 5


def test_a_transaction_may_commit_during_a_rebalance_and_must_be_of_the_generation() -> None:
    coordinator = Coordinator()
    later = coordinator.join()
    coordinator.pass_time(3000)
    member = coordinator.joined(later)
    (result,) = transact(coordinator, 9, 5, member_id=member.member_id, generation=1)
    assert result.error is ErrorCode.NONE
    with pytest.raises(KafkaError) as error:
        transact(coordinator, 9, 5, member_id=member.member_id, generation=0)
    assert error.value.code is ErrorCode.ILLEGAL_GENERATION
    assert transact(coordinator, 9, 5)[0].error is ErrorCode.NONE, "older clients name no member"


# --- forgetting ----------------------------------------------------------------------------------


def test_offsets_of_topics_that_nobody_reads_can_be_deleted() -> None:
    coordinator = Coordinator()
    (member,) = coordinator.stable(1)
    commit(coordinator, 1, member)
    commit(coordinator, 1, member, topic="other")
    results = coordinator.do(DeleteOffsets(GROUP, (("topic", 0), ("other", 0), ("third", 0))))
    subscribed = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert [one.error for one in results] == [subscribed, ErrorCode.NONE, ErrorCode.NONE]
    assert fetch(coordinator, "other").offset == -1
    assert fetch(coordinator).offset == 1


def test_offsets_of_a_group_that_we_do_not_understand_stay_while_it_has_members() -> None:
    coordinator = Coordinator()
    coordinator.stable(1, protocol_type="connect")
    with pytest.raises(KafkaError) as error:
        coordinator.do(DeleteOffsets(GROUP, (("topic", 0),)))
    assert error.value.code is ErrorCode.NON_EMPTY_GROUP
    with pytest.raises(KafkaError) as error:
        coordinator.do(DeleteOffsets("no such group", (("topic", 0),)))
    assert error.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_deleted_topic_takes_its_offsets_along_but_not_those_of_its_successor() -> None:
    coordinator = Coordinator()
    old = coordinator.world.create("topic")
    commit(coordinator, 1, topic_id=old.topic_id)
    transact(coordinator, 9, 5)
    assert coordinator.do(ForgetTopics((("topic", old.topic_id),))) == 1
    assert coordinator.do(ForgetTopics((("topic", old.topic_id),))) == 0
    coordinator.end_transaction(9, commit=True)
    assert fetch(coordinator).offset == -1
    new = coordinator.world.create("topic")
    commit(coordinator, 3, topic_id=new.topic_id)
    assert coordinator.do(ForgetTopics((("topic", old.topic_id),))) == 0
    assert fetch(coordinator).offset == 3


def test_a_new_leader_forgets_what_was_deleted_meanwhile() -> None:
    coordinator = Coordinator()
    old = coordinator.world.create("topic")
    kept = coordinator.world.create("kept")
    commit(coordinator, 1, topic_id=old.topic_id)
    commit(coordinator, 2, topic="kept", topic_id=kept.topic_id)
    coordinator.world.delete("topic")
    assert coordinator.do(SweepTopics()) == 0, "the metadata may not be loaded yet"
    assert fetch(coordinator).offset == 1
    coordinator.world.create("topic")
    assert fetch(coordinator).offset == -1, "a topic of the same name starts clean"
    assert [one.topic for one in coordinator.do(FetchOffsets(GROUP))] == ["kept"]
    assert coordinator.do(SweepTopics()) == 1
    assert coordinator.do(SweepTopics()) == 0
    assert fetch(coordinator, "kept").offset == 2


def test_a_group_is_deleted_with_its_offsets() -> None:
    coordinator = Coordinator()
    (member,) = coordinator.stable(1)
    commit(coordinator, 1, member)
    with pytest.raises(KafkaError) as error:
        coordinator.do(DeleteGroup(GROUP))
    assert error.value.code is ErrorCode.NON_EMPTY_GROUP
    coordinator.leave(member)
    coordinator.do(DeleteGroup(GROUP))
    assert fetch(coordinator).offset == -1
    assert coordinator.do(ListGroups()) == []
    with pytest.raises(KafkaError) as error:
        coordinator.do(DeleteGroup(GROUP))
    assert error.value.code is ErrorCode.GROUP_ID_NOT_FOUND


# --- expiry --------------------------------------------------------------------------------------


def test_offsets_of_a_simple_consumer_expire_after_their_commit() -> None:
    coordinator = Coordinator()
    commit(coordinator, 1)
    coordinator.pass_time(WEEK_MS - CHECK_MS)
    assert fetch(coordinator).offset == 1
    coordinator.pass_time(2 * CHECK_MS)
    assert fetch(coordinator).offset == -1
    assert coordinator.do(ListGroups()) == []


def test_offsets_of_a_group_expire_after_its_last_member_left() -> None:
    coordinator = Coordinator()
    (member,) = coordinator.stable(1, session_timeout_ms=1_800_000)
    commit(coordinator, 1, member)
    for _ in range(WEEK_MS // 1_000_000 + 2):
        coordinator.pass_time(1_000_000)
        coordinator.heartbeat(member)
    assert fetch(coordinator).offset == 1, "nothing of it expires while it lives"
    coordinator.leave(member)
    coordinator.pass_time(WEEK_MS - CHECK_MS)
    assert fetch(coordinator).offset == 1
    coordinator.fail_over()
    coordinator.pass_time(2 * CHECK_MS)
    assert fetch(coordinator).offset == -1
    assert coordinator.do(ListGroups()) == []


def test_offsets_of_topics_that_a_live_group_reads_no_more_expire() -> None:
    coordinator = Coordinator(offsets_retention_minutes=30)
    (member,) = coordinator.stable(1, session_timeout_ms=1_800_000)
    commit(coordinator, 1, member)
    commit(coordinator, 1, member, topic="other")
    other = (Protocol("range", subscription("other")),)
    later = coordinator.join(member.member_id, protocols=other, session_timeout_ms=1_800_000)
    coordinator.assign([coordinator.joined(later)])
    for _ in range(3):
        coordinator.pass_time(1_000_000)
        coordinator.heartbeat(coordinator.joined(later))
    assert fetch(coordinator).offset == -1
    assert fetch(coordinator, "other").offset == 1


def test_an_older_client_says_how_long_its_offsets_last() -> None:
    coordinator = Coordinator()
    commit(coordinator, 1, retention_ms=CHECK_MS)
    coordinator.pass_time(CHECK_MS // 2)
    assert fetch(coordinator).offset == 1
    coordinator.pass_time(2 * CHECK_MS)
    assert fetch(coordinator).offset == -1


def test_offsets_of_an_open_transaction_do_not_expire() -> None:
    coordinator = Coordinator()
    commit(coordinator, 1)
    transact(coordinator, 9, 5)
    coordinator.pass_time(2 * WEEK_MS)
    assert fetch(coordinator).offset == 1


def test_many_expired_offsets_go_in_more_than_one_batch() -> None:
    coordinator = Coordinator(offsets_retention_minutes=30)
    for group in range(15):
        wanted = tuple(OffsetToCommit("topic", index, 1) for index in range(100))
        coordinator.do(CommitOffsets(f"group{group}", wanted))
    coordinator.batches = []
    coordinator.pass_time(1_800_000 + CHECK_MS)
    assert sum(coordinator.batches) == 1500
    assert max(coordinator.batches) < 1500
    assert coordinator.do(ListGroups()) == []


def test_stamps_are_of_the_wall_clock() -> None:
    coordinator = Coordinator()
    commit(coordinator, 1)
    stored = coordinator.state.offsets.get(OffsetKey(GROUP, "topic", 0))
    assert stored is not None
    assert stored.commit_ms == coordinator.now + WALL_AHEAD_MS
