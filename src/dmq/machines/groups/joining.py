"""JoinGroup: becoming a member of a classic group, and staying one.

A new dynamic member is first given an id and asks again with it, so that a client that retries makes
no second member (KIP-394). A static member is known by its instance id: when it comes back under a
new member id it takes its old place, and while the group is stable nobody else notices (KIP-345).
"""

from dmq.errors import ErrorCode, KafkaError
from dmq.machines.groups.classic_group import (
    COMPLETING,
    EMPTY,
    PREPARING,
    STABLE,
    ClassicGroup,
    Member,
)
from dmq.machines.groups.commands import Joined, JoinGroup
from dmq.machines.groups.context import Context
from dmq.machines.groups.group_rules import bury_consumer
from dmq.machines.groups.outcome import Later
from dmq.machines.groups.rebalancing import (
    NEW_MEMBER_JOIN_TIMEOUT_MS,
    finish_if_all_joined,
    prepare,
    rebalance,
    renew_session,
    session_timer,
)
from dmq.machines.groups.work import Work

PENDING_MAX = 10_000
"""Members that were given an id and did not come back with it. Beyond it the oldest must ask again."""


def check_join(ctx: Context, command: JoinGroup) -> None:
    """What is wrong with a request whatever the group is like. Raises KafkaError."""
    if not command.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    limits = ctx.limits
    least, most = limits.session_timeout_min_ms, limits.session_timeout_max_ms
    if not least <= command.session_timeout_ms <= most:
        raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT)
    ctx.check_member_bytes(sum(len(name) + len(data) for name, data in command.protocols))
    ctx.check_new_group(command.group_id)


def join(ctx: Context, command: JoinGroup, work: Work) -> Joined | Later:
    """A member joins a classic group, which is made if need be."""
    group = ctx.classic(command.group_id)
    if group is None:
        if command.member_id:
            return Joined(ErrorCode.UNKNOWN_MEMBER_ID, command.member_id)
        group = ClassicGroup(command.group_id)
        group.state_since_ms = work.wall_ms
    is_known = ctx.is_classic(command.group_id)
    if not _has_room(ctx, group, command.member_id):
        group.remove(command.member_id, work)
        return Joined(ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    if not group.supports(command.protocol_type, command.protocols):
        return Joined(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, command.member_id)
    ctx.live[command.group_id] = group
    if command.group_id in ctx.state.consumer:  # Nobody is in it: it may become a classic one.
        bury_consumer(ctx.state.consumer[command.group_id], work)
    if not is_known:
        work.write(group.fact())  # The group is there, before it has a generation.
    if not command.member_id:
        return _join_anew(ctx, group, command, work)
    if command.member_id in group.pending_joins and command.instance_id is None:
        return _add(ctx, group, command, command.member_id, work)
    try:
        member = group.find(command.member_id, command.instance_id)
    except KafkaError as error:
        return Joined(error.code, command.member_id)
    return _join_again(ctx, group, member, command, work)


def _has_room(ctx: Context, group: ClassicGroup, member_id: str) -> bool:
    most = ctx.limits.classic_size_max
    if group.state is EMPTY:
        return True
    if group.state is PREPARING:
        member = group.members.get(member_id)
        return (member is not None and member.join is not None) or group.joined_count < most
    return member_id in group.members or len(group.members) < most


def _join_anew(ctx: Context, group: ClassicGroup, command: JoinGroup, work: Work) -> Joined | Later:
    if command.instance_id is not None:
        member_id = f"{command.instance_id}-{ctx.new_id()}"
        old_id = group.static.get(command.instance_id)
        if old_id is None:
            return _add(ctx, group, command, member_id, work)
        return _replace(ctx, group, command, old_id, member_id, work)
    member_id = f"{command.client.client_id}-{ctx.new_id()}"
    if not command.needs_member_id:
        return _add(ctx, group, command, member_id, work)
    if len(group.pending_joins) >= PENDING_MAX:
        oldest = next(iter(group.pending_joins))
        del group.pending_joins[oldest]
        ctx.timers.cancel(session_timer(group, oldest))
    group.pending_joins[member_id] = None
    ctx.timers.set(session_timer(group, member_id), work.now + command.session_timeout_ms)
    return Joined(ErrorCode.MEMBER_ID_REQUIRED, member_id)


def _new_member(command: JoinGroup, member_id: str) -> Member:
    return Member(
        member_id,
        command.instance_id,
        command.client.client_id,
        command.client.host,
        command.rebalance_timeout_ms,
        command.session_timeout_ms,
        command.protocols,
    )


def _add(
    ctx: Context, group: ClassicGroup, command: JoinGroup, member_id: str, work: Work
) -> Later:
    """A new member waits for the next generation."""
    member = _new_member(command, member_id)
    member.is_new = True
    if group.state is PREPARING and group.is_initial:
        group.has_newcomers = True
    later = member.join = ctx.later()
    group.add(member, command.protocol_type)
    timer = session_timer(group, member_id)
    ctx.timers.set(timer, work.now + NEW_MEMBER_JOIN_TIMEOUT_MS)
    rebalance(ctx, group, work)
    return later


def _join_again(
    ctx: Context, group: ClassicGroup, member: Member, command: JoinGroup, work: Work
) -> Joined | Later:
    """A member joins again: because it must, because it wants something else, or by mistake."""
    is_same = member.protocols == command.protocols
    if group.state is COMPLETING and is_same:
        return group.joined(member.member_id)  # It missed the answer.
    if group.state is STABLE and is_same and member.member_id != group.leader:
        return group.joined(member.member_id)
    if group.state is EMPTY:
        return Joined(ErrorCode.UNKNOWN_MEMBER_ID, command.member_id)
    group.update(member, command.protocols)
    member.rebalance_timeout_ms = command.rebalance_timeout_ms
    member.session_timeout_ms = command.session_timeout_ms
    later = ctx.later()
    group.park_join(member, later, work)
    rebalance(ctx, group, work)
    return later


def _replace(
    ctx: Context, group: ClassicGroup, command: JoinGroup, old_id: str, new_id: str, work: Work
) -> Joined | Later:
    """A static member came back under a new id; its old one is fenced."""
    member = _new_member(command, new_id)
    member.assignment = group.members[old_id].assignment
    old_leader = group.leader or ""
    group.replace_static(old_id, member, work)
    ctx.timers.cancel(session_timer(group, old_id))
    renew_session(ctx, group, member, work)
    if group.state is STABLE and group.protocol == group.select_protocol():
        work.write(group.fact())
        return _replaced(group, member, command, old_leader)
    later = ctx.later()
    group.park_join(member, later, work)
    if group.state in (STABLE, COMPLETING):
        prepare(ctx, group, work)
    else:
        finish_if_all_joined(ctx, group, work)
    return later


def _replaced(group: ClassicGroup, member: Member, command: JoinGroup, old_leader: str) -> Joined:
    """The answer to one that took its old place. An older client that leads would begin to assign:
    it is told that somebody else does, by its own old id (KIP-814)."""
    if command.may_skip_assignment:
        is_leader = member.member_id == group.leader
        return group.joined(member.member_id, skip_assignment=is_leader)
    return Joined(
        ErrorCode.NONE,
        member.member_id,
        group.generation,
        group.protocol_type,
        group.protocol,
        old_leader,
    )
