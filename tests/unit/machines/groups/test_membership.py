"""SyncGroup, Heartbeat, LeaveGroup, and what timers do to a classic group."""

import pytest
from unit.machines.groups.coordinator import GROUP, Coordinator

from dmq.errors import ErrorCode, KafkaError
from dmq.machines.groups.commands import DeleteGroup, Joined, LeaveGroup, LeavingMember, LeftMember
from dmq.machines.groups.outcome import Later

DELAY_MS = 3000


def completing(coordinator: Coordinator, count: int = 2, **details: object) -> list[Joined]:
    """Members of a generation that waits for its assignment; the first leads."""
    laters = [coordinator.join(**details) for _ in range(count)]
    coordinator.pass_time(DELAY_MS * 2)
    return [coordinator.joined(later) for later in laters]


def refusal(coordinator: Coordinator, member: Joined, **more: object) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        coordinator.heartbeat(member, **more)
    return refused.value.code


# --- sync ----------------------------------------------------------------------------------------


def test_followers_wait_for_the_leader_and_all_get_their_share() -> None:
    coordinator = Coordinator()
    leader, follower = completing(coordinator)
    waiting = coordinator.sync(follower)
    assert isinstance(waiting, Later)
    shares = {leader.member_id: b"one", follower.member_id: b"two"}
    answer = coordinator.sync(leader, shares)
    assert (answer.assignment, answer.protocol_type, answer.protocol) == (
        b"one",
        "consumer",
        "range",
    )
    assert coordinator.synced(waiting).assignment == b"two"
    assert coordinator.group_state() == "Stable"


def test_a_late_follower_gets_its_share_at_once() -> None:
    coordinator = Coordinator()
    leader, follower = completing(coordinator)
    coordinator.sync(leader, {follower.member_id: b"share"})
    assert coordinator.sync(follower).assignment == b"share"


def test_who_the_leader_forgot_gets_nothing() -> None:
    coordinator = Coordinator()
    leader, follower = completing(coordinator)
    coordinator.sync(leader, {leader.member_id: b"all", "stranger": b"?"})
    assert coordinator.sync(follower).assignment == b""


def test_what_a_sync_must_fit() -> None:
    coordinator = Coordinator()
    leader, follower = completing(coordinator)
    code = lambda answer: answer.error  # noqa: E731
    assert code(coordinator.sync(leader, group_id="other")) is ErrorCode.UNKNOWN_MEMBER_ID
    stranger = Joined(ErrorCode.NONE, "stranger", 1)
    assert code(coordinator.sync(stranger)) is ErrorCode.UNKNOWN_MEMBER_ID
    late = Joined(ErrorCode.NONE, follower.member_id, 0)
    assert code(coordinator.sync(late)) is ErrorCode.ILLEGAL_GENERATION
    wrong = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert code(coordinator.sync(follower, protocol="sticky")) is wrong
    assert code(coordinator.sync(follower, protocol_type="connect")) is wrong
    assert code(coordinator.sync(follower, instance_id="static")) is ErrorCode.UNKNOWN_MEMBER_ID
    with pytest.raises(KafkaError):
        coordinator.sync(follower, group_id="")


def test_a_sync_during_the_next_rebalance_is_told_to_join() -> None:
    coordinator = Coordinator()
    leader, follower = completing(coordinator)
    waiting = coordinator.sync(follower)
    coordinator.join()
    assert coordinator.synced(waiting).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert coordinator.sync(leader).error is ErrorCode.REBALANCE_IN_PROGRESS


def test_who_does_not_sync_in_time_is_out() -> None:
    coordinator = Coordinator()
    leader, follower = completing(coordinator, session_timeout_ms=1_000_000)
    waiting = coordinator.sync(follower)
    coordinator.pass_time(60_000)
    assert coordinator.synced(waiting).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert refusal(coordinator, leader) is ErrorCode.UNKNOWN_MEMBER_ID
    again = coordinator.joined(coordinator.join(follower.member_id))
    assert (again.generation, again.leader) == (2, follower.member_id)


def test_a_follower_that_does_not_sync_is_out_though_the_group_is_stable() -> None:
    coordinator = Coordinator()
    leader, follower = completing(coordinator, session_timeout_ms=1_000_000)
    coordinator.sync(leader, {leader.member_id: b"x"})
    coordinator.pass_time(60_000)
    assert coordinator.heartbeat(leader) is ErrorCode.REBALANCE_IN_PROGRESS
    assert refusal(coordinator, follower) is ErrorCode.UNKNOWN_MEMBER_ID


# --- heartbeat -----------------------------------------------------------------------------------


def test_heartbeats_keep_a_session() -> None:
    coordinator = Coordinator()
    (member,) = coordinator.stable(1)
    for _ in range(10):
        coordinator.pass_time(9999)
        assert coordinator.heartbeat(member) is ErrorCode.NONE
    coordinator.pass_time(10_000)
    assert refusal(coordinator, member) is ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.group_state() == "Empty"


def test_what_a_heartbeat_must_fit() -> None:
    coordinator = Coordinator()
    stranger = Joined(ErrorCode.NONE, "stranger", 1)
    assert refusal(coordinator, stranger) is ErrorCode.UNKNOWN_MEMBER_ID
    (member,) = coordinator.stable(1)
    assert refusal(coordinator, stranger) is ErrorCode.UNKNOWN_MEMBER_ID
    late = Joined(ErrorCode.NONE, member.member_id, 0)
    assert refusal(coordinator, late) is ErrorCode.ILLEGAL_GENERATION


def test_a_silent_member_makes_the_others_share() -> None:
    coordinator = Coordinator()
    one, two = coordinator.stable(2)
    coordinator.pass_time(9999)
    coordinator.heartbeat(one)
    coordinator.pass_time(1)
    assert coordinator.heartbeat(one) is ErrorCode.REBALANCE_IN_PROGRESS
    assert refusal(coordinator, two) is ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.joined(coordinator.join(one.member_id)).generation == 2


def test_who_waits_for_the_others_is_not_silent() -> None:
    coordinator = Coordinator()
    one, two = coordinator.stable(2)
    waiting = coordinator.join(one.member_id)
    for _ in range(5):
        coordinator.pass_time(9000)
        coordinator.heartbeat(two)
    assert waiting in coordinator.parked
    again = coordinator.joined(coordinator.join(two.member_id))
    assert again.generation == coordinator.joined(waiting).generation == 2


# --- leave ---------------------------------------------------------------------------------------


def test_a_leaving_member_makes_the_others_share_at_once() -> None:
    coordinator = Coordinator()
    one, two = coordinator.stable(2)
    assert coordinator.leave(one) == [LeftMember(one.member_id, None, ErrorCode.NONE)]
    assert coordinator.heartbeat(two) is ErrorCode.REBALANCE_IN_PROGRESS
    again = coordinator.joined(coordinator.join(two.member_id))
    assert again.leader == two.member_id


def test_the_last_to_leave_leaves_an_empty_group() -> None:
    coordinator = Coordinator()
    members = coordinator.stable(2)
    coordinator.leave(*members)
    assert coordinator.group_state() == "Empty"
    stored = coordinator.state.classic[GROUP]
    assert (stored.generation, stored.members, stored.protocol) == (2, (), None)


def test_the_last_to_leave_does_not_wait_for_one_that_was_only_given_an_id() -> None:
    coordinator = Coordinator()
    (last,) = coordinator.stable(1)
    assert coordinator.join(again=False).error is ErrorCode.MEMBER_ID_REQUIRED
    coordinator.leave(last)
    coordinator.do(DeleteGroup(GROUP))


def test_members_leave_each_by_itself() -> None:
    coordinator = Coordinator()
    (member,) = coordinator.stable(1, instance_id="static")
    pending = coordinator.join(again=False)
    left = coordinator.do(
        LeaveGroup(
            GROUP,
            (
                LeavingMember("stranger"),
                LeavingMember(""),
                LeavingMember("", "unknown"),
                LeavingMember("stranger", "static"),
                LeavingMember(pending.member_id),
                LeavingMember("", "static"),
                LeavingMember(member.member_id, "static"),
            ),
        )
    )
    unknown, none = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert [one.error for one in left] == [unknown, unknown, unknown, fenced, none, none, unknown]
    assert coordinator.group_state() == "Empty"


def test_leaving_a_group_that_is_not_there() -> None:
    (left,) = Coordinator().leave(Joined(ErrorCode.NONE, "stranger"))
    assert left.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_whoever_is_removed_while_it_waits_is_told() -> None:
    coordinator = Coordinator()
    leader, follower = completing(coordinator)
    syncing = coordinator.sync(follower)
    coordinator.leave(follower)
    assert coordinator.synced(syncing).error is ErrorCode.UNKNOWN_MEMBER_ID
    newcomer = coordinator.join(needs_member_id=False)
    again = coordinator.join(leader.member_id)
    assert coordinator.joined(again).generation == coordinator.joined(newcomer).generation == 2


# --- another leader ------------------------------------------------------------------------------


def test_a_stable_group_goes_on_under_another_leader() -> None:
    coordinator = Coordinator()
    members = coordinator.stable(3)
    coordinator.pass_time(9000)
    coordinator.fail_over()
    coordinator.pass_time(9999)  # Sessions begin anew, at full length.
    assert [coordinator.heartbeat(member) for member in members] == [ErrorCode.NONE] * 3
    assert [coordinator.sync(member).assignment for member in members] == [b"0", b"1", b"2"]


def test_whoever_waits_is_told_that_the_leadership_is_over() -> None:
    coordinator = Coordinator()
    leader, follower = completing(coordinator)
    syncing = coordinator.sync(follower)
    coordinator.fail_over()
    assert coordinator.synced(syncing).error is ErrorCode.NOT_COORDINATOR
    joining = coordinator.join()
    coordinator.fail_over()
    assert coordinator.joined(joining).error is ErrorCode.NOT_COORDINATOR
    assert leader.generation == 1


def test_a_generation_without_assignments_goes_on_under_another_leader() -> None:
    coordinator = Coordinator()
    leader, follower = completing(coordinator)
    coordinator.fail_over()
    assert coordinator.heartbeat(follower) is ErrorCode.NONE
    waiting = coordinator.sync(follower)
    shares = {leader.member_id: b"one", follower.member_id: b"two"}
    assert coordinator.sync(leader, shares).assignment == b"one"
    assert coordinator.synced(waiting).assignment == b"two"


def test_a_generation_never_comes_twice() -> None:
    coordinator = Coordinator()
    (member,) = completing(coordinator, 1, session_timeout_ms=1_000_000)
    coordinator.fail_over()
    coordinator.pass_time(60_000)
    newcomer = coordinator.join()
    coordinator.pass_time(DELAY_MS)
    assert coordinator.joined(newcomer).generation > member.generation
