"""From one generation of a classic group to the next: when it begins, who is in it, who is told.

Called by the rules of joining, syncing and leaving, and by timers. States and transitions are drawn
in `classic_group.py`.
"""

from dmq.errors import ErrorCode
from dmq.machines.groups.classic_group import (
    COMPLETING,
    EMPTY,
    PREPARING,
    STABLE,
    ClassicGroup,
    Member,
)
from dmq.machines.groups.commands import Synced
from dmq.machines.groups.context import Context
from dmq.machines.groups.timers import Timer, TimerKind
from dmq.machines.groups.work import Work

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""How long a member that is in no generation yet may wait for one: Kafka's five minutes. Its client
has given up long before, but nothing else would tell us."""


def session_timer(group: ClassicGroup, member_id: str) -> Timer:
    return Timer(TimerKind.SESSION, group.group_id, member_id)


def join_timer(group: ClassicGroup) -> Timer:
    return Timer(TimerKind.JOIN, group.group_id)


def sync_timer(group: ClassicGroup) -> Timer:
    return Timer(TimerKind.SYNC, group.group_id)


def renew_session(ctx: Context, group: ClassicGroup, member: Member, work: Work) -> None:
    """A member has shown that it is alive."""
    timer = session_timer(group, member.member_id)
    ctx.timers.set(timer, work.now + member.session_timeout_ms)


def rebalance(ctx: Context, group: ClassicGroup, work: Work) -> None:
    """Members changed: a rebalance begins or, if one is on, perhaps ends."""
    if group.state is PREPARING:
        finish_if_all_joined(ctx, group, work)
    else:
        prepare(ctx, group, work)


def finish_if_all_joined(ctx: Context, group: ClassicGroup, work: Work) -> None:
    """End the phase of joining, unless somebody is missing or more are waited for."""
    if group.state is PREPARING and not group.is_initial and group.has_all_joined:
        complete(ctx, group, work)


def prepare(ctx: Context, group: ClassicGroup, work: Work) -> None:
    """All members must join again."""
    if group.state is COMPLETING:
        for member in group.members.values():
            if group.settle_sync(member, Synced(ErrorCode.REBALANCE_IN_PROGRESS), work):
                renew_session(ctx, group, member, work)
    group.pending_syncs.clear()
    ctx.timers.cancel(sync_timer(group))
    group.is_initial = group.state is EMPTY
    group.move_to(PREPARING, work.wall_ms)
    if group.is_initial:
        delay_ms = ctx.limits.initial_rebalance_delay_ms
        group.initial_left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        group.has_newcomers = False
        ctx.timers.set(join_timer(group), work.now + delay_ms)
    elif group.has_all_joined or not group.members:
        complete(ctx, group, work)
    else:
        ctx.timers.set(join_timer(group), work.now + group.rebalance_timeout_ms)


def on_join_timer(ctx: Context, group: ClassicGroup, work: Work) -> None:
    """The wait for members is over, or goes on because some came to a group that was empty."""
    if group.state is not PREPARING:
        return
    if group.is_initial and group.has_newcomers and group.initial_left_ms:
        group.has_newcomers = False
        delay_ms = min(ctx.limits.initial_rebalance_delay_ms, group.initial_left_ms)
        group.initial_left_ms -= delay_ms
        ctx.timers.set(join_timer(group), work.now + delay_ms)
    else:
        complete(ctx, group, work)


def complete(ctx: Context, group: ClassicGroup, work: Work) -> None:
    """Those who joined are the next generation; static members stay though they did not."""
    ctx.timers.cancel(join_timer(group))
    for member in list(group.members.values()):
        if member.join is None and member.instance_id is None:
            drop(ctx, group, member.member_id, work)
    if group.members and not group.elect_joined_leader():
        ctx.timers.set(join_timer(group), work.now + group.rebalance_timeout_ms)
        return
    group.begin_generation(work.wall_ms)
    work.write(group.fact())
    for member in group.members.values():
        group.settle_join(member, group.joined(member.member_id), work)
        member.is_new = False
        renew_session(ctx, group, member, work)
    if group.members:
        ctx.timers.set(sync_timer(group), work.now + group.rebalance_timeout_ms)


def on_sync_timer(ctx: Context, group: ClassicGroup, work: Work) -> None:
    """Members that did not come for their assignment are out."""
    if group.state in (COMPLETING, STABLE) and group.pending_syncs:
        for member_id in list(group.pending_syncs):
            drop(ctx, group, member_id, work)
        prepare(ctx, group, work)


def on_session_timer(ctx: Context, group: ClassicGroup, member_id: str, work: Work) -> None:
    """A member was silent for too long. One that waits for us is not."""
    if member_id in group.pending_joins:
        group.remove(member_id, work)
        finish_if_all_joined(ctx, group, work)
        return
    member = group.members.get(member_id)
    if member is None or member.is_waiting:
        return
    remove(ctx, group, member_id, work)


def remove(ctx: Context, group: ClassicGroup, member_id: str, work: Work) -> None:
    """A member is out, and the others share what it had."""
    drop(ctx, group, member_id, work)
    after_removal(ctx, group, work)


def after_removal(ctx: Context, group: ClassicGroup, work: Work) -> None:
    """Members were dropped: the others share what they had."""
    if group.state in (STABLE, COMPLETING):
        prepare(ctx, group, work)
    else:
        finish_if_all_joined(ctx, group, work)


def drop(ctx: Context, group: ClassicGroup, member_id: str, work: Work) -> None:
    """A member is out; what becomes of the others is the caller's."""
    group.remove(member_id, work)
    ctx.timers.cancel(session_timer(group, member_id))
