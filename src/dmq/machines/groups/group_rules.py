"""Describing, listing, deleting and expiring groups of both kinds."""

from dmq.errors import ErrorCode, KafkaError
from dmq.machines.groups.classic_group import EMPTY, STABLE
from dmq.machines.groups.commands import (
    DeleteGroup,
    DescribeClassicGroup,
    DescribedClassicGroup,
    DescribedMember,
    ListedGroup,
    ListGroups,
)
from dmq.machines.groups.consumer_group import ConsumerGroup
from dmq.machines.groups.consumer_protocol import PROTOCOL_TYPE
from dmq.machines.groups.context import Context
from dmq.machines.groups.facts import (
    ClassicGroupFact,
    ConsumerGroupFact,
    RegexFact,
    TargetEpochFact,
)
from dmq.machines.groups.offset_rules import expire, forget_all
from dmq.machines.groups.rebalancing import session_timer
from dmq.machines.groups.work import Work

CLASSIC = "classic"
CONSUMER = "consumer"


def not_found(group_id: str) -> KafkaError:
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")


def describe_classic(ctx: Context, command: DescribeClassicGroup) -> DescribedClassicGroup:
    """A classic group; what its members say is told while it is stable only."""
    if command.group_id in ctx.state.consumer:
        raise KafkaError(
            ErrorCode.GROUP_ID_NOT_FOUND, f"Group {command.group_id} is not a classic group."
        )
    group = ctx.classic(command.group_id)
    if group is None:
        raise not_found(command.group_id)
    is_stable = group.state is STABLE
    members = tuple(
        DescribedMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.metadata(group.protocol) if is_stable else b"",
            member.assignment,
        )
        for member in group.members.values()
    )
    protocol = (group.protocol or "") if is_stable else ""
    return DescribedClassicGroup(
        group.group_id, group.state.value, group.protocol_type or "", protocol, members
    )


def list_groups(ctx: Context, command: ListGroups) -> list[ListedGroup]:
    """All groups that pass the filters; case does not matter."""
    states = {state.lower() for state in command.states}
    types = {kind.lower() for kind in command.types}
    found = [_listed(ctx, group_id) for group_id in _all_ids(ctx)]
    return [
        group
        for group in found
        if (not states or group.state.lower() in states)
        and (not types or group.group_type in types)
    ]


def _all_ids(ctx: Context) -> dict[str, None]:
    return dict.fromkeys((*ctx.state.group_ids(), *ctx.live))


def _listed(ctx: Context, group_id: str) -> ListedGroup:
    consumer = ctx.state.consumer.get(group_id)
    if consumer is not None:
        return ListedGroup(group_id, PROTOCOL_TYPE, consumer.state.value, CONSUMER)
    group = ctx.classic(group_id)
    assert group is not None
    return ListedGroup(group_id, group.protocol_type or "", group.state.value, CLASSIC)


def delete_group(ctx: Context, command: DeleteGroup, work: Work) -> None:
    """Forget a group that has no members. Raises KafkaError."""
    consumer = ctx.state.consumer.get(command.group_id)
    if consumer is not None:
        if consumer.members:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"Group {command.group_id} has members.")
    else:
        group = ctx.classic(command.group_id)
        if group is None:
            raise not_found(command.group_id)
        if group.state is not EMPTY:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"Group {command.group_id} has members.")
    forget_all(ctx, command.group_id, work)
    bury(ctx, command.group_id, work)


def bury(ctx: Context, group_id: str, work: Work) -> None:
    """Tombstones for a group without members."""
    consumer = ctx.state.consumer.get(group_id)
    if consumer is not None:
        bury_consumer(consumer, work)
    if group_id in ctx.state.classic:
        work.write(ClassicGroupFact(group_id, None))
    group = ctx.live.pop(group_id, None)
    if group is not None:
        for member_id in group.pending_joins:
            ctx.timers.cancel(session_timer(group, member_id))


def bury_consumer(group: ConsumerGroup, work: Work) -> None:
    """Tombstones for what is left of a consumer group when its members are gone."""
    for regex in group.regexes:
        work.write(RegexFact(group.group_id, regex, None))
    if group.target_epoch is not None:
        work.write(TargetEpochFact(group.group_id, None))
    work.write(ConsumerGroupFact(group.group_id, None))


EXPIRED_MAX = 1000
"""About how many tombstones the look for expired offsets writes at once: it is one batch."""


def expire_some(ctx: Context, work: Work) -> bool:
    """The regular look for offsets and groups that nobody will ask for; whether it is through."""
    if not ctx.expiring:
        ctx.expiring = list(_all_ids(ctx))
    while ctx.expiring and len(work.facts) < EXPIRED_MAX:
        group_id = ctx.expiring.pop()
        if not expire(ctx, group_id, work):
            continue
        consumer = ctx.state.consumer.get(group_id)
        if consumer is not None:
            is_empty = not consumer.members
        else:
            group = ctx.live.get(group_id)
            is_empty = group is None or (group.state is EMPTY and not group.pending_joins)
        if is_empty:
            bury(ctx, group_id, work)
    return not ctx.expiring
