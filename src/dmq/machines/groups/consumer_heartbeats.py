"""ConsumerGroupHeartbeat (KIP-848): joining, staying in and leaving a consumer group.

One request does all: it may change what the member wants, move the group to its next epoch, make a
target, and bring the member closer to it. What comes of it are records; answers say what they say.
"""

import dataclasses
from collections.abc import Iterable

from dmq.errors import ErrorCode, KafkaError
from dmq.machines.groups.assignors import ASSIGNORS, unpack
from dmq.machines.groups.consumer_changes import (
    Draft,
    assign_if_due,
    follow_target,
    pattern,
    refresh,
    remove_member,
    session_ms,
    session_timer,
)
from dmq.machines.groups.consumer_commands import (
    AWAY_EPOCH,
    LEAVE_EPOCH,
    ConsumerBeat,
    ConsumerHeartbeat,
)
from dmq.machines.groups.consumer_group import NOTHING, ConsumerGroup, MemberState
from dmq.machines.groups.context import Context
from dmq.machines.groups.facts import (
    ConsumerMemberFact,
    ConsumerMemberValue,
    CurrentAssignment,
    CurrentFact,
    TargetFact,
)
from dmq.machines.groups.group_rules import not_found
from dmq.machines.groups.migration import may_downgrade, to_classic, upgrade
from dmq.machines.groups.reconciling import held, partitions_of
from dmq.machines.groups.work import Work

UNSETTLED_HEARTBEAT_MS = 1000
"""How soon a member that is not where it is to be shall ask again: it decides how long a rebalance
takes. Kafka lets it wait for the usual interval."""


NOBODY = ConsumerMemberValue(None, None, "", "", (), None, -1, None)
"""What a member was before it came: who wants nothing changes nothing."""


def heartbeat(ctx: Context, command: ConsumerHeartbeat, work: Work) -> ConsumerBeat:
    """A member speaks. Raises KafkaError."""
    _check(ctx, command)
    if command.member_epoch < 0:
        return _leave(ctx, command, work)
    draft = _open(ctx, command, work)
    member_id = command.member_id or ctx.new_id()
    check_room(ctx, draft.group, member_id)
    if command.member_epoch == 0:
        before = _enter(ctx, draft, command, member_id)
    else:
        before = _known(draft.group, command)
        _check_pattern(ctx, command)
    member = _updated(before, command)
    if member != draft.group.members.get(member_id):
        draft.write(ConsumerMemberFact(command.group_id, member_id, member))
    refresh(ctx, draft, work, is_changed=wants_others(before or NOBODY, member))
    assign_if_due(ctx, draft, work)
    had = draft.group.current(member_id).assigned
    owned = None if command.owned is None else unpack(command.owned)
    current = follow_target(ctx, draft, member_id, owned, work)
    timer = session_timer(command.group_id, member_id)
    ctx.timers.set(timer, work.now + session_ms(ctx, draft.group, member_id))
    is_asked = command.member_epoch == 0 or _is_full(command)
    is_told = is_asked or partitions_of(current.assigned) != partitions_of(had)
    return ConsumerBeat(
        member_id,
        current.member_epoch,
        _interval_ms(ctx, draft.group, current),
        partitions_of(current.assigned) if is_told else None,
    )


def _is_full(command: ConsumerHeartbeat) -> bool:
    return (
        command.rebalance_timeout_ms != -1
        and (command.topic_names is not None or command.topic_regex is not None)
        and command.owned is not None
    )


def _interval_ms(ctx: Context, group: ConsumerGroup, current: CurrentAssignment) -> int:
    usual_ms = ctx.surroundings.group_config(group.group_id).consumer_heartbeat_interval_ms
    is_settled = current.state == MemberState.STABLE and current.member_epoch == group.group_epoch
    return usual_ms if is_settled else min(usual_ms, UNSETTLED_HEARTBEAT_MS)


# --- what a request must be ----------------------------------------------------------------------


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


def _check(ctx: Context, command: ConsumerHeartbeat) -> None:
    if "consumer" not in ctx.limits.protocols:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "The consumer protocol is not served here.")
    named = {"GroupId": command.group_id, "InstanceId": command.instance_id}
    for field, value in (named | {"RackId": command.rack_id}).items():
        if value == "":
            raise _invalid(f"{field} can't be empty.")
    if not command.member_id and (command.member_epoch != 0 or command.needs_member_id):
        raise _invalid("MemberId can't be empty.")
    if command.member_epoch == 0:
        _check_first(command)
    elif command.member_epoch == AWAY_EPOCH and command.instance_id is None:
        raise _invalid("InstanceId can't be null.")
    elif command.member_epoch < AWAY_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    supported = [name for name in ASSIGNORS if name in (*ctx.limits.assignors, "sticky")]
    if command.server_assignor is not None and command.server_assignor not in supported:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {command.server_assignor} is not supported. "
            f"Supported assignors: {', '.join(supported)}.",
        )
    names = sum(map(len, command.topic_names or ()))
    ctx.check_member_bytes(names + len(command.topic_regex or ""))
    if command.member_epoch == 0:
        _check_pattern(ctx, command)


def _check_pattern(ctx: Context, command: ConsumerHeartbeat) -> None:
    """Raises INVALID_REGULAR_EXPRESSION; a member that is none any more hears of that first."""
    if command.topic_regex:
        pattern(ctx, command.topic_regex)


def _check_first(command: ConsumerHeartbeat) -> None:
    if command.rebalance_timeout_ms == -1:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if command.owned is None or command.owned:
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if command.topic_names is None and command.topic_regex is None:
        raise _invalid(
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
            "(re-)joining."
        )


def check_room(ctx: Context, group: ConsumerGroup, member_id: str) -> None:
    """Raises GROUP_MAX_SIZE_REACHED for one too many."""
    most = ctx.limits.consumer_size_max
    if len(group.members) >= most and member_id not in group.members:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {most} members.",
        )


# --- coming in -----------------------------------------------------------------------------------


def _open(ctx: Context, command: ConsumerHeartbeat, work: Work) -> Draft:
    """The group, made or turned from a classic one if a member joins."""
    known = ctx.state.consumer.get(command.group_id)
    if known is not None:
        return Draft(known, work)
    if command.member_epoch != 0:
        raise KafkaError(
            ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {command.group_id} not found."
        )
    classic = ctx.classic(command.group_id)
    if classic is None:
        ctx.check_new_group(command.group_id)
        return Draft(ConsumerGroup(command.group_id), work)
    return upgrade(ctx, classic, work)


def _enter(
    ctx: Context, draft: Draft, command: ConsumerHeartbeat, member_id: str
) -> ConsumerMemberValue | None:
    """A member joins, or joins again with nothing; what it wanted before, None if it is new."""
    group = draft.group
    old_id = None
    if command.instance_id is not None:
        old_id = group.static.get(command.instance_id)
    if old_id is None or old_id == member_id:
        before = group.members.get(member_id)
        if before is not None:
            draft.write(CurrentFact(group.group_id, member_id, NOTHING))
        return before
    is_there = group.current(old_id).member_epoch != AWAY_EPOCH
    if group.members[old_id].classic is None and is_there:
        raise KafkaError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {command.instance_id} cannot join the "
            f"group because the instance id is owned by {old_id} member.",
        )
    return replace_static(ctx, draft, old_id, member_id)


def replace_static(ctx: Context, draft: Draft, old_id: str, new_id: str) -> ConsumerMemberValue:
    """A static member came back under a new id: what its old self was to have is kept for it."""
    group = draft.group
    member = group.members[old_id]
    target = group.targets.get(old_id, ())
    assigned = group.current(old_id).assigned
    remove_member(ctx, draft, old_id)
    draft.write(ConsumerMemberFact(group.group_id, new_id, member))
    draft.write(TargetFact(group.group_id, new_id, target))
    current = CurrentAssignment(0, 0, MemberState.STABLE, assigned)
    draft.write(CurrentFact(group.group_id, new_id, current))
    return member


def _known(group: ConsumerGroup, command: ConsumerHeartbeat) -> ConsumerMemberValue:
    """A member that is in the group, in the epoch that it says. Raises KafkaError."""
    member_id = command.member_id
    if command.instance_id is not None:
        check_instance(group, member_id, command.instance_id)
    member = group.find(member_id)
    current = group.current(member_id)
    received = command.member_epoch
    is_behind = received == current.previous_member_epoch and _has_only(command, current)
    if received != current.member_epoch and not (received < current.member_epoch and is_behind):
        word = "greater" if received > current.member_epoch else "smaller"
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The consumer group member has a {word} member epoch ({received}) than the one known "
            f"by the group coordinator ({current.member_epoch}). "
            "The member must abandon all its partitions and rejoin.",
        )
    return member


def check_instance(group: ConsumerGroup, member_id: str, instance_id: str) -> None:
    """Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
    known = group.static.get(instance_id)
    if known is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if known != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member "
            f"{known}.",
        )


def _has_only(command: ConsumerHeartbeat, current: CurrentAssignment) -> bool:
    """Whether a member that missed an answer has nothing that it must not have."""
    if command.owned is None:
        return False
    assigned = held(current.assigned)
    return all(partition in assigned for partition in unpack(command.owned))


def _updated(before: ConsumerMemberValue | None, command: ConsumerHeartbeat) -> ConsumerMemberValue:
    """What a member is and wants now; what it does not say stays."""
    client_id, client_host = command.client
    before = before or NOBODY
    names, regex = command.topic_names, command.topic_regex
    return dataclasses.replace(
        before,
        instance_id=command.instance_id or before.instance_id,
        rack_id=command.rack_id or before.rack_id,
        client_id=client_id,
        client_host=client_host,
        topic_names=before.topic_names if names is None else tuple(sorted(set(names))),
        topic_regex=before.topic_regex if regex is None else regex or None,
        rebalance_timeout_ms=(
            before.rebalance_timeout_ms
            if command.rebalance_timeout_ms == -1
            else command.rebalance_timeout_ms
        ),
        server_assignor=command.server_assignor or before.server_assignor,
        classic=None,
    )


def wants_others(before: ConsumerMemberValue, after: ConsumerMemberValue) -> bool:
    """Whether a member reads other topics than before."""
    return (
        set(before.topic_names) != set(after.topic_names) or before.topic_regex != after.topic_regex
    )


# --- going ---------------------------------------------------------------------------------------


def _leave(ctx: Context, command: ConsumerHeartbeat, work: Work) -> ConsumerBeat:
    group = ctx.state.consumer.get(command.group_id)
    if group is None:
        raise not_found(command.group_id)
    if command.instance_id is not None:
        check_instance(group, command.member_id, command.instance_id)
    group.find(command.member_id)
    draft = Draft(group, work)
    if command.member_epoch == LEAVE_EPOCH:
        fence(ctx, draft, [command.member_id], work)
    else:  # It keeps its place until its session ends.
        current = group.current(command.member_id)
        away = dataclasses.replace(current, member_epoch=AWAY_EPOCH, pending_revocation=())
        draft.write(CurrentFact(command.group_id, command.member_id, away))
    return ConsumerBeat(command.member_id, command.member_epoch, 0)


def fence(ctx: Context, draft: Draft, members: Iterable[str], work: Work) -> None:
    """Members are out: the group goes on without them, as a classic one if only such are left."""
    gone = dict.fromkeys(members)
    is_classic = may_downgrade(ctx, draft.group, gone)
    for member_id in gone:
        remove_member(ctx, draft, member_id)
    if is_classic:
        to_classic(ctx, draft, work, is_settled=False)  # They rebalance by themselves.
    else:
        refresh(ctx, draft, work, is_changed=True)


def on_session_timer(ctx: Context, group: ConsumerGroup, member_id: str, work: Work) -> None:
    """A member was silent for too long, or did not do in time what it was told."""
    if member_id in group.members:
        fence(ctx, Draft(group, work), [member_id], work)


def on_revocation_timer(ctx: Context, group: ConsumerGroup, member_id: str, work: Work) -> None:
    """A member did not give partitions up in time."""
    current = group.current(member_id)
    if member_id in group.members and current.state == MemberState.UNREVOKED_PARTITIONS:
        fence(ctx, Draft(group, work), [member_id], work)
