"""SyncGroup, Heartbeat, LeaveGroup: being a member of a classic group, and ceasing to be one."""

from dmq.errors import ErrorCode, KafkaError
from dmq.machines.groups.classic_group import EMPTY, PREPARING, STABLE, ClassicGroup
from dmq.machines.groups.commands import (
    Heartbeat,
    LeaveGroup,
    LeavingMember,
    LeftMember,
    Synced,
    SyncGroup,
)
from dmq.machines.groups.context import Context
from dmq.machines.groups.outcome import Later
from dmq.machines.groups.rebalancing import (
    after_removal,
    drop,
    renew_session,
    sync_timer,
)
from dmq.machines.groups.work import Work


def sync(ctx: Context, group: ClassicGroup, command: SyncGroup, work: Work) -> Synced | Later:
    """A member wants its assignment; the leader brings it."""
    error = _sync_error(group, command)
    if error is not ErrorCode.NONE:
        return Synced(error)
    member = group.members[command.member_id]
    _has_synced(ctx, group, command.member_id)
    if group.state is STABLE:
        return group.synced(member)
    group.settle_sync(member, Synced(ErrorCode.REBALANCE_IN_PROGRESS), work)  # An older one.
    if command.member_id != group.leader:
        later = member.sync = ctx.later()
        return later
    _assign(ctx, group, dict(command.assignments), work)
    renew_session(ctx, group, member, work)
    return group.synced(member)


def _sync_error(group: ClassicGroup, command: SyncGroup) -> ErrorCode:
    if group.state is EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID
    try:
        group.find(command.member_id, command.instance_id)
    except KafkaError as error:
        return error.code
    if command.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if command.protocol_type is not None and command.protocol_type != group.protocol_type:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if command.protocol is not None and command.protocol != group.protocol:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is PREPARING else ErrorCode.NONE


def _has_synced(ctx: Context, group: ClassicGroup, member_id: str) -> None:
    group.pending_syncs.pop(member_id, None)
    if not group.pending_syncs:
        ctx.timers.cancel(sync_timer(group))


def _assign(ctx: Context, group: ClassicGroup, assignments: dict[str, bytes], work: Work) -> None:
    """The leader's word: the generation is whole."""
    for member in group.members.values():
        member.assignment = assignments.get(member.member_id, b"")
    group.move_to(STABLE, work.wall_ms)
    work.write(group.fact())
    for member in group.members.values():
        if group.settle_sync(member, group.synced(member), work):
            renew_session(ctx, group, member, work)


def heartbeat(ctx: Context, group: ClassicGroup, command: Heartbeat, work: Work) -> ErrorCode:
    """A member is alive, and is told if it must join again. Raises KafkaError."""
    member = group.find(command.member_id, command.instance_id)
    if command.generation != group.generation:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    renew_session(ctx, group, member, work)
    is_over = group.state is PREPARING
    return ErrorCode.REBALANCE_IN_PROGRESS if is_over else ErrorCode.NONE


def leave(ctx: Context, group: ClassicGroup, command: LeaveGroup, work: Work) -> list[LeftMember]:
    """Members leave, by themselves or because an admin says so."""
    left = [_leave(ctx, group, leaving, work) for leaving in command.members]
    if any(member.error is ErrorCode.NONE for member in left):
        after_removal(ctx, group, work)
    return left


def _leave(ctx: Context, group: ClassicGroup, leaving: LeavingMember, work: Work) -> LeftMember:
    member_id, instance_id = leaving
    found: str | None = None
    error = ErrorCode.NONE
    if not member_id:
        found = None if instance_id is None else group.static.get(instance_id)
        error = ErrorCode.NONE if found is not None else ErrorCode.UNKNOWN_MEMBER_ID
    elif member_id in group.pending_joins:
        found = member_id
    else:
        try:
            found = group.find(member_id, instance_id).member_id
        except KafkaError as refused:
            error = refused.code
    if found is not None:
        drop(ctx, group, found, work)
    return LeftMember(member_id, instance_id, error)
