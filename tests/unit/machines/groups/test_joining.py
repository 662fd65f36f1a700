"""JoinGroup: who becomes a member, when, and who is told what."""

import pytest
from unit.machines.groups.coordinator import GROUP, Coordinator, subscription

from dmq.errors import ErrorCode, KafkaError
from dmq.machines.groups.commands import Client, Joined, Protocol
from dmq.machines.groups.facts import ClassicGroupFact
from dmq.machines.groups.outcome import Later

DELAY_MS = 3000


def test_a_new_member_gets_an_id_first_and_joins_with_it() -> None:
    coordinator = Coordinator()
    required = coordinator.join(again=False)
    assert required.error is ErrorCode.MEMBER_ID_REQUIRED
    assert required.member_id.startswith("client-")
    assert isinstance(coordinator.join(required.member_id), Later)


def test_an_older_client_joins_without_knowing_its_id() -> None:
    coordinator = Coordinator()
    later = coordinator.join(needs_member_id=False)
    coordinator.pass_time(DELAY_MS)
    assert coordinator.joined(later).member_id.startswith("client-")


def test_the_first_generation_waits_for_more_members() -> None:
    coordinator = Coordinator()
    first = coordinator.join()
    coordinator.pass_time(DELAY_MS - 1)
    assert first in coordinator.parked
    second = coordinator.join()
    coordinator.pass_time(1)
    assert first in coordinator.parked, "a newcomer makes the wait longer"
    coordinator.pass_time(DELAY_MS)
    one, two = coordinator.joined(first), coordinator.joined(second)
    assert (one.generation, two.generation) == (1, 1)
    assert one.leader == two.leader == one.member_id
    assert [member.member_id for member in one.members] == [one.member_id, two.member_id]
    assert two.members == ()
    assert coordinator.group_state() == "CompletingRebalance"


def test_the_wait_for_more_members_is_bounded_by_the_rebalance_timeout() -> None:
    coordinator = Coordinator()
    first = coordinator.join(rebalance_timeout_ms=7000)
    for _ in range(3):
        coordinator.pass_time(2500)
        coordinator.join(rebalance_timeout_ms=7000)
    assert first not in coordinator.parked


def test_no_delay_is_no_wait() -> None:
    coordinator = Coordinator(group_initial_rebalance_delay_ms=0)
    later = coordinator.join()
    coordinator.pass_time(0)
    assert coordinator.joined(later).generation == 1


@pytest.mark.parametrize("timeout_ms", [5999, 1_800_001])
def test_sessions_have_bounds(timeout_ms: int) -> None:
    with pytest.raises(KafkaError) as refused:
        Coordinator().join(session_timeout_ms=timeout_ms)
    assert refused.value.code is ErrorCode.INVALID_SESSION_TIMEOUT


def test_a_group_has_a_name() -> None:
    with pytest.raises(KafkaError) as refused:
        Coordinator().join(group_id="")
    assert refused.value.code is ErrorCode.INVALID_GROUP_ID


def test_a_member_id_that_was_never_given_is_unknown() -> None:
    coordinator = Coordinator()
    assert coordinator.join("nobody").error is ErrorCode.UNKNOWN_MEMBER_ID
    coordinator.stable(1)
    assert coordinator.join("nobody").error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_whose_session_ended_does_not_come_back_under_its_old_id() -> None:
    """While the others rebalance without it, when they have, when nobody is left, after a failover."""
    coordinator = Coordinator()
    stays, gone = coordinator.stable(2)
    coordinator.pass_time(9999)
    coordinator.heartbeat(stays)
    coordinator.pass_time(1)

    def is_unknown(state: str) -> bool:
        assert coordinator.group_state() == state
        return bool(coordinator.join(gone.member_id).error is ErrorCode.UNKNOWN_MEMBER_ID)

    assert is_unknown("PreparingRebalance")
    assert coordinator.joined(coordinator.join(stays.member_id)).generation == 2
    assert is_unknown("CompletingRebalance")
    coordinator.pass_time(60_000)
    assert is_unknown("Empty")
    coordinator.fail_over()
    assert is_unknown("Empty")
    coordinator.stable(1)
    assert is_unknown("Stable")


def test_a_group_speaks_a_protocol() -> None:
    coordinator = Coordinator()
    refused = coordinator.join(protocols=())
    assert refused.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert coordinator.join(protocol_type="").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert not coordinator.log, "a refused member makes no group"


def test_members_must_have_a_protocol_in_common() -> None:
    coordinator = Coordinator()
    coordinator.stable(2)
    other = coordinator.join(protocols=(Protocol("sticky", b""),))
    assert other.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    other = coordinator.join(protocol_type="connect")
    assert other.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_the_protocol_that_most_prefer_is_chosen_among_those_that_all_speak() -> None:
    coordinator = Coordinator()
    laters = [
        coordinator.join(protocols=tuple(Protocol(name, b"") for name in names))
        for names in (["a", "b", "c"], ["d", "b", "c"], ["c", "b"], ["c", "b"])
    ]
    coordinator.pass_time(DELAY_MS * 2)
    answers = [coordinator.joined(later) for later in laters]
    # Two votes for each of b and c: the member that came first decides.
    assert {answer.protocol for answer in answers} == {"b"}


def test_a_full_group_takes_no_more() -> None:
    coordinator = Coordinator(group_max_size=2)
    members = coordinator.stable(2)
    assert coordinator.join(again=False).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    rejoined = coordinator.join(members[0].member_id)
    assert isinstance(rejoined, Later), "those who are in may join again"
    assert isinstance(coordinator.join(members[1].member_id), Later | Joined)


def test_while_joining_a_full_group_takes_no_more() -> None:
    coordinator = Coordinator(group_max_size=2)
    assert isinstance(coordinator.join(needs_member_id=False), Later)
    assert isinstance(coordinator.join(needs_member_id=False), Later)
    third = coordinator.join(needs_member_id=False)
    assert third.error is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_newcomer_makes_the_others_join_again() -> None:
    coordinator = Coordinator()
    (member,) = coordinator.stable(1)
    newcomer = coordinator.join()
    assert coordinator.heartbeat(member) is ErrorCode.REBALANCE_IN_PROGRESS
    again = coordinator.join(member.member_id)
    assert coordinator.joined(again).generation == 2
    assert coordinator.joined(newcomer).generation == 2


def test_who_does_not_join_again_in_time_is_out() -> None:
    coordinator = Coordinator()
    (member,) = coordinator.stable(1, session_timeout_ms=1_000_000)
    newcomer = coordinator.join()
    coordinator.pass_time(59_999)
    assert newcomer in coordinator.parked
    coordinator.pass_time(1)
    answer = coordinator.joined(newcomer)
    assert answer.leader == answer.member_id
    with pytest.raises(KafkaError) as refused:
        coordinator.heartbeat(member)
    assert refused.value.code is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_id_that_was_given_and_not_used_holds_a_rebalance_up_for_its_session_only() -> None:
    coordinator = Coordinator()
    (member,) = coordinator.stable(1)
    coordinator.join(again=False)
    again = coordinator.join(member.member_id)
    assert again in coordinator.parked
    coordinator.pass_time(10_000)
    assert coordinator.joined(again).generation == 2


def test_a_follower_that_joins_again_unchanged_gets_its_place_and_no_rebalance() -> None:
    coordinator = Coordinator()
    members = coordinator.stable(2)
    follower = next(member for member in members if member.member_id != member.leader)
    again = coordinator.join(follower.member_id)
    assert (again.error, again.generation, again.members) == (ErrorCode.NONE, 1, ())
    assert coordinator.group_state() == "Stable"


def test_a_leader_that_joins_again_starts_a_rebalance() -> None:
    coordinator = Coordinator()
    members = coordinator.stable(2)
    assert isinstance(coordinator.join(members[0].leader), Later)
    assert coordinator.group_state() == "PreparingRebalance"


def test_a_follower_with_another_subscription_starts_a_rebalance() -> None:
    coordinator = Coordinator()
    members = coordinator.stable(2)
    follower = next(member for member in members if member.member_id != member.leader)
    other = (Protocol("range", subscription("topic", "other")),)
    assert isinstance(coordinator.join(follower.member_id, protocols=other), Later)


def test_a_member_that_missed_its_answer_gets_it_again() -> None:
    coordinator = Coordinator()
    later = coordinator.join()
    coordinator.pass_time(DELAY_MS)
    first = coordinator.joined(later)
    assert coordinator.join(first.member_id) == first


def test_a_second_join_of_a_waiting_member_takes_the_place_of_the_first() -> None:
    coordinator = Coordinator()
    required = coordinator.join(again=False)
    first = coordinator.join(required.member_id)
    second = coordinator.join(required.member_id)
    assert coordinator.joined(first).error is ErrorCode.REBALANCE_IN_PROGRESS
    coordinator.pass_time(DELAY_MS)
    assert coordinator.joined(second).error is ErrorCode.NONE


def test_a_new_member_does_not_wait_for_ever() -> None:
    coordinator = Coordinator(group_max_session_timeout_ms=10_000_000)
    slow = {"session_timeout_ms": 10_000_000, "rebalance_timeout_ms": 10_000_000}
    coordinator.stable(1, **slow)
    newcomer = coordinator.join(needs_member_id=False)
    coordinator.pass_time(299_999)
    assert newcomer in coordinator.parked
    coordinator.pass_time(1)
    assert coordinator.joined(newcomer).error is ErrorCode.UNKNOWN_MEMBER_ID


# --- static members --------------------------------------------------------------------------


def test_a_static_member_comes_back_without_a_rebalance() -> None:
    coordinator = Coordinator()
    members = coordinator.stable(1)
    static = coordinator.join(instance_id="static")
    again = coordinator.join(members[0].member_id)
    members = [coordinator.joined(again), coordinator.joined(static)]
    coordinator.assign(members)
    old = members[1]
    assert old.member_id.startswith("static-")
    new = coordinator.join(instance_id="static", client=Client("other", "/10.0.0.1"))
    assert (new.error, new.generation, new.skip_assignment) == (ErrorCode.NONE, 2, False)
    assert new.member_id != old.member_id
    assert coordinator.group_state() == "Stable"
    assert coordinator.synced(coordinator.sync(new, instance_id="static")).assignment == b"1"
    with pytest.raises(KafkaError) as fenced:
        coordinator.heartbeat(old, instance_id="static")
    assert fenced.value.code is ErrorCode.FENCED_INSTANCE_ID
    fact = coordinator.facts()[-1]
    assert isinstance(fact, ClassicGroupFact)
    assert fact.value is not None
    stored = {member.member_id: member for member in fact.value.members}
    assert stored[new.member_id].client_id == "other"
    assert old.member_id not in stored


def test_a_static_leader_that_comes_back_is_told_to_skip_assigning() -> None:
    coordinator = Coordinator()
    coordinator.stable(1, instance_id="static")
    new = coordinator.join(instance_id="static")
    assert new.skip_assignment
    assert new.leader == new.member_id
    assert [member.member_id for member in new.members] == [new.member_id]


def test_an_older_static_leader_is_told_that_its_old_self_leads() -> None:
    coordinator = Coordinator()
    (old,) = coordinator.stable(1, instance_id="static")
    new = coordinator.join(instance_id="static", may_skip_assignment=False)
    assert (new.leader, new.skip_assignment, new.members) == (old.member_id, False, ())


def test_a_static_member_whose_protocol_changes_starts_a_rebalance() -> None:
    coordinator = Coordinator()
    both = (Protocol("a", b""), Protocol("b", b""))
    coordinator.stable(1, instance_id="static", protocols=both)
    other = coordinator.join(instance_id="static", protocols=both[::-1])
    assert coordinator.joined(other).generation == 2


def test_the_old_self_of_a_waiting_static_member_is_fenced() -> None:
    coordinator = Coordinator()
    first = coordinator.join(instance_id="static")
    second = coordinator.join(instance_id="static")
    assert coordinator.joined(first).error is ErrorCode.FENCED_INSTANCE_ID
    coordinator.pass_time(DELAY_MS)
    assert coordinator.joined(second).generation == 1


def test_a_static_member_that_syncs_is_fenced_by_its_new_self() -> None:
    coordinator = Coordinator()
    laters = [coordinator.join(), coordinator.join(instance_id="static")]
    coordinator.pass_time(DELAY_MS * 2)
    leader, static = (coordinator.joined(later) for later in laters)
    waiting = coordinator.sync(static, instance_id="static")
    coordinator.join(instance_id="static")
    assert coordinator.synced(waiting).error is ErrorCode.FENCED_INSTANCE_ID
    assert coordinator.heartbeat(leader) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_static_member_keeps_its_place_though_it_does_not_join_again_in_time() -> None:
    coordinator = Coordinator()
    (static,) = coordinator.stable(1, instance_id="static", session_timeout_ms=100_000)
    newcomer = coordinator.join()
    coordinator.pass_time(60_000)
    answer = coordinator.joined(newcomer)
    assert answer.leader == answer.member_id, "who did not join can't lead"
    assert [member.member_id for member in answer.members] == [static.member_id, answer.member_id]


def test_nobody_leads_when_only_absent_static_members_are_left() -> None:
    coordinator = Coordinator()
    (static,) = coordinator.stable(1, instance_id="static", session_timeout_ms=1_000_000)
    dynamic = coordinator.join(session_timeout_ms=6000)
    coordinator.leave(Joined(ErrorCode.NONE, _id_of(coordinator, dynamic)))
    coordinator.pass_time(100_000)
    assert coordinator.group_state() == "PreparingRebalance"
    again = coordinator.join(static.member_id, instance_id="static")
    assert coordinator.joined(again).generation == 2


def _id_of(coordinator: Coordinator, later: Later) -> str:
    command = coordinator.parked[later]
    return str(getattr(command, "member_id"))  # noqa: B009 (it is a JoinGroup)


def test_the_log_has_every_generation_that_members_were_told_of() -> None:
    coordinator = Coordinator()
    later = coordinator.join()
    coordinator.pass_time(DELAY_MS)
    told = coordinator.joined(later)
    stored = coordinator.state.classic[GROUP]
    assert (stored.generation, stored.leader) == (told.generation, told.leader)
    assert [member.assignment for member in stored.members] == [b""]
