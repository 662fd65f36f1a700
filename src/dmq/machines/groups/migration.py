"""Between classic and consumer groups while they run (KIP-848's online migration).

A classic group of consumers becomes a consumer group when a member of the consumer protocol joins it:
its members keep what they have and go on speaking the classic protocol. It becomes classic again when
the last member of the consumer protocol is gone. `group.consumer.migration.policy` allows either,
both or none.
"""

import dataclasses
from collections.abc import Container, Mapping
from typing import NamedTuple

from dmq.errors import ErrorCode, KafkaError
from dmq.machines.groups.assignors import pack
from dmq.machines.groups.classic_group import COMPLETING, EMPTY, ClassicGroup, Member
from dmq.machines.groups.commands import Joined, Protocol, Synced
from dmq.machines.groups.consumer_changes import (
    Draft,
    remove_member,
    session_timer,
)
from dmq.machines.groups.consumer_group import ConsumerGroup, MemberState
from dmq.machines.groups.consumer_protocol import (
    PROTOCOL_TYPE,
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
)
from dmq.machines.groups.context import Context
from dmq.machines.groups.facts import (
    ClassicGroupFact,
    ClassicSupport,
    ConsumerGroupFact,
    ConsumerGroupValue,
    ConsumerMemberFact,
    ConsumerMemberValue,
    CurrentAssignment,
    CurrentFact,
    Partitions,
    TargetEpochFact,
    TargetFact,
)
from dmq.machines.groups.group_rules import bury_consumer
from dmq.machines.groups.rebalancing import (
    join_timer,
    prepare,
    renew_session,
    sync_timer,
)
from dmq.machines.groups.rebalancing import session_timer as classic_session_timer
from dmq.machines.groups.reconciling import Epochs, held, hold, partitions_of
from dmq.machines.groups.work import Work


def upgrade(ctx: Context, group: ClassicGroup, work: Work) -> Draft:
    """A classic group as a consumer group. Raises GROUP_ID_NOT_FOUND if it can't be one."""
    group_id = group.group_id
    brought = _brought(ctx, group)
    _end_classic(ctx, group, work)
    if group_id in ctx.state.classic:
        work.write(ClassicGroupFact(group_id, None))
    draft = Draft(ConsumerGroup(group_id), work)
    if group.state is EMPTY:
        return draft
    epoch = group.generation
    for member in group.members.values():
        _bring(ctx, draft, group, member, brought[member.member_id])
        timer = session_timer(group_id, member.member_id)
        ctx.timers.set(timer, work.now + member.session_timeout_ms)
    draft.write(ConsumerGroupFact(group_id, ConsumerGroupValue(epoch)))
    # Made at the beginning of time: who joins now is assigned now, not an interval later.
    draft.write(TargetEpochFact(group_id, (epoch, 0)))
    return draft


class _Brought(NamedTuple):
    """What a classic member wants, and what it has."""

    wants: Subscription
    has: tuple[tuple[str, tuple[int, ...]], ...]


def _brought(ctx: Context, group: ClassicGroup) -> dict[str, _Brought]:
    """What members of a group that may become a consumer group bring. What one of them has and we
    can't read would be given to another as well, so such a group stays what it is."""
    reason = None
    if group.state is not EMPTY:
        if not ctx.limits.may_upgrade:
            reason = "online upgrade is disabled"
        elif not group.is_consumer:
            reason = "its members are no consumers"
        elif len(group.members) >= ctx.limits.consumer_size_max:
            reason = "it has too many members"
    if reason is None:
        try:
            return {member.member_id: _of(group, member) for member in group.members.values()}
        except ValueError:
            reason = "the embedded consumer protocol is malformed"
    raise KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Group {group.group_id} is not a consumer group and can't become one: {reason}.",
    )


def _of(group: ClassicGroup, member: Member) -> _Brought:
    """What a member brings. Raises ValueError for bytes that are no consumer's."""
    wants = read_subscription(member.metadata(group.protocol) or member.protocols[0].metadata)
    if group.state is COMPLETING:
        return _Brought(wants, wants.owned)
    return _Brought(wants, read_assignment(member.assignment) if member.assignment else ())


def _end_classic(ctx: Context, group: ClassicGroup, work: Work) -> None:
    """Whoever waits in the classic group must join again; its timers mean nothing any more."""
    for member in group.members.values():
        code = ErrorCode.REBALANCE_IN_PROGRESS
        group.settle_join(member, Joined(code, member.member_id), work)
        group.settle_sync(member, Synced(code), work)
    for member_id in (*group.members, *group.pending_joins):
        ctx.timers.cancel(classic_session_timer(group, member_id))
    ctx.timers.cancel(join_timer(group))
    ctx.timers.cancel(sync_timer(group))
    ctx.live.pop(group.group_id, None)


def _bring(
    ctx: Context, draft: Draft, group: ClassicGroup, member: Member, brought: _Brought
) -> None:
    """A classic member, with what it has, in the consumer group."""
    group_id, member_id, epoch = group.group_id, member.member_id, group.generation
    value = ConsumerMemberValue(
        member.instance_id,
        brought.wants.rack_id,
        member.client_id,
        member.client_host,
        tuple(sorted(set(brought.wants.topics))),
        None,
        member.rebalance_timeout_ms,
        None,
        ClassicSupport(
            member.session_timeout_ms, tuple((p.name, p.metadata) for p in member.protocols)
        ),
    )
    draft.write(ConsumerMemberFact(group_id, member_id, value))
    taken: Epochs = {
        partition: epoch
        for partition in _by_id(ctx, brought.has)
        if draft.group.owner(*partition) is None
    }
    assigned = hold(taken)
    draft.write(TargetFact(group_id, member_id, partitions_of(assigned)))
    current = CurrentAssignment(epoch, epoch, MemberState.STABLE, assigned)
    draft.write(CurrentFact(group_id, member_id, current))


def _by_id(ctx: Context, partitions: tuple[tuple[str, tuple[int, ...]], ...]) -> Epochs:
    found: Epochs = {}
    for name, indexes in partitions:
        image = ctx.surroundings.topic(name)
        if image is not None:
            found.update({(image.topic_id, i): 0 for i in indexes if i < image.partition_count})
    return found


# --- back ----------------------------------------------------------------------------------------


def may_downgrade(
    ctx: Context, group: ConsumerGroup, without: Container[str], *, replaced: bool = False
) -> bool:
    """Whether a group is to be classic once members are gone, or one `replaced` by a classic one."""
    others = [member for name, member in group.members.items() if name not in without]
    size = len(others) + replaced
    return (
        ctx.limits.may_downgrade
        and 0 < size <= ctx.limits.classic_size_max
        and all(member.classic is not None for member in others)
    )


def to_classic(ctx: Context, draft: Draft, work: Work, *, is_settled: bool) -> None:
    """A consumer group whose members are all classic, as a classic group.

    What members have is what they are recorded with, not what they were to have: the group may become
    a consumer group again before they have heard of anything. Unless all is settled they must
    rebalance; a generation without a leader says so to the next coordinator.
    """
    old = draft.group
    group = ClassicGroup(old.group_id)
    for member_id, member in old.members.items():
        assert member.classic is not None, "only classic members can go on"
        protocols = tuple(Protocol(*spoken) for spoken in member.classic.protocols)
        group.add(
            Member(
                member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.classic.session_timeout_ms,
                protocols,
            ),
            PROTOCOL_TYPE,
        )
    group.settle_as(old.group_epoch, work.wall_ms)
    for member_id, found in group.members.items():
        current = old.current(member_id)
        has = pack((*held(current.assigned), *held(current.pending_revocation)))
        found.assignment = assignment_bytes(ctx, has, found.metadata(group.protocol))
    for member_id in list(old.members):
        remove_member(ctx, draft, member_id)
    bury_consumer(draft.group, work)
    ctx.topics_seen.pop(old.group_id, None)
    fact = group.fact()
    assert fact.value is not None
    leader = fact.value.leader if is_settled else None
    work.write(fact._replace(value=dataclasses.replace(fact.value, leader=leader)))
    ctx.live[old.group_id] = group
    for found in group.members.values():
        renew_session(ctx, group, found, work)
    if not is_settled:
        prepare(ctx, group, work)


def assignment_bytes(ctx: Context, partitions: Partitions, metadata: bytes) -> bytes:
    """An assignment as classic consumers read it, in the version that this one speaks."""
    by_name: Mapping[str, tuple[int, ...]] = {
        image.name: indexes
        for topic_id, indexes in partitions
        if (image := ctx.surroundings.topic_by_id(topic_id)) is not None
    }
    version = int.from_bytes(metadata[:2], "big") if len(metadata) > 1 else 0
    return write_assignment(version, by_name)
