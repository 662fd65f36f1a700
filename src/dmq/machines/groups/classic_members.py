"""Members of the classic protocol in a consumer group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

The coordinator assigns; a classic member is told that somebody else leads, and that a generation is a
member epoch. It gives partitions up and takes new ones by joining again, which REBALANCE_IN_PROGRESS
tells it to do, within its rebalance timeout.
"""

from dmq.errors import ErrorCode, KafkaError
from dmq.machines.groups.assignors import Partition
from dmq.machines.groups.commands import (
    Heartbeat,
    Joined,
    JoinGroup,
    LeaveGroup,
    LeftMember,
    Synced,
    SyncGroup,
)
from dmq.machines.groups.consumer_changes import (
    Draft,
    assign_if_due,
    follow_target,
    is_assignment_due,
    refresh,
    rejoin_timer,
    session_timer,
)
from dmq.machines.groups.consumer_group import ConsumerGroup, ConsumerState, MemberState
from dmq.machines.groups.consumer_heartbeats import (
    NOBODY,
    check_instance,
    check_room,
    fence,
    replace_static,
    wants_others,
)
from dmq.machines.groups.consumer_protocol import PROTOCOL_TYPE, Subscription, read_subscription
from dmq.machines.groups.context import Context
from dmq.machines.groups.facts import (
    ClassicSupport,
    ConsumerMemberFact,
    ConsumerMemberValue,
    CurrentAssignment,
)
from dmq.machines.groups.migration import assignment_bytes, may_downgrade, to_classic
from dmq.machines.groups.reconciling import partitions_of
from dmq.machines.groups.work import Work


def join(ctx: Context, group: ConsumerGroup, command: JoinGroup, work: Work) -> Joined:
    """A classic member joins, or joins again. Raises KafkaError."""
    member_id = command.member_id or f"{command.client.client_id}-{ctx.new_id()}"
    check_room(ctx, group, member_id)
    wants = _subscription(group, command)
    if not command.member_id and command.instance_id is None and command.needs_member_id:
        return Joined(ErrorCode.MEMBER_ID_REQUIRED, member_id)
    draft = Draft(group, work)
    is_last = _takes_place_of_the_last(ctx, group, command, member_id)
    before = _enter(ctx, draft, command, member_id)
    member = _value(command, wants)
    if member != before:
        draft.write(ConsumerMemberFact(group.group_id, member_id, member))
    refresh(ctx, draft, work, is_changed=wants_others(before or NOBODY, member))
    assign_if_due(ctx, draft, work)
    current = follow_target(ctx, draft, member_id, _owned(ctx, wants), work)
    if is_last:
        is_settled = draft.group.state is ConsumerState.STABLE
        to_classic(ctx, draft, work, is_settled=is_settled)
    else:
        rejoin, session = (
            timer(group.group_id, member_id) for timer in (rejoin_timer, session_timer)
        )
        ctx.timers.set(session, work.now + command.session_timeout_ms)
        ctx.timers.set(rejoin, work.now + command.rebalance_timeout_ms)  # Until it syncs.
    protocol = command.protocols[0].name
    return Joined(ErrorCode.NONE, member_id, current.member_epoch, PROTOCOL_TYPE, protocol)


def _subscription(group: ConsumerGroup, command: JoinGroup) -> Subscription:
    """What a classic member wants, if it could be in a generation with the other classic ones."""
    names = {protocol.name for protocol in command.protocols}
    for member_id, member in group.members.items():
        if member.classic is not None and member_id != command.member_id:
            names &= {name for name, _ in member.classic.protocols}
    try:
        if names and command.protocol_type == PROTOCOL_TYPE:
            return read_subscription(command.protocols[0].metadata)
    except ValueError:
        pass  # It calls itself a consumer and is none.
    raise KafkaError(
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        f"Member {command.member_id}'s protocols are not supported.",
    )


def _takes_place_of_the_last(
    ctx: Context, group: ConsumerGroup, command: JoinGroup, member_id: str
) -> bool:
    """Whether a static member comes back as a classic one and was the last that was none."""
    old_id = group.static.get(command.instance_id or "")
    if old_id is None or old_id == member_id:
        return False
    return group.members[old_id].classic is None and may_downgrade(
        ctx, group, {old_id: None}, replaced=True
    )


def _enter(
    ctx: Context, draft: Draft, command: JoinGroup, member_id: str
) -> ConsumerMemberValue | None:
    group = draft.group
    if command.instance_id is None:
        return group.members.get(member_id)
    if command.member_id:
        check_instance(group, member_id, command.instance_id)
        return group.members[member_id]
    old_id = group.static.get(command.instance_id)
    return None if old_id is None else replace_static(ctx, draft, old_id, member_id)


def _value(command: JoinGroup, wants: Subscription) -> ConsumerMemberValue:
    support = ClassicSupport(
        command.session_timeout_ms, tuple((each.name, each.metadata) for each in command.protocols)
    )
    return ConsumerMemberValue(
        command.instance_id,
        wants.rack_id,
        command.client.client_id,
        command.client.host,
        tuple(sorted(set(wants.topics))),
        None,
        command.rebalance_timeout_ms,
        None,
        support,
    )


def _owned(ctx: Context, wants: Subscription) -> list[Partition]:
    """What a classic member says it has: nothing, if its protocol gives everything up first."""
    return [
        (image.topic_id, index)
        for name, indexes in wants.owned
        if (image := ctx.surroundings.topic(name)) is not None
        for index in indexes
    ]


def _find(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ClassicSupport:
    """A classic member that proved who it is. Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
    if instance_id is not None:
        check_instance(group, member_id, instance_id)
    support = group.find(member_id).classic
    if support is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} does not use the classic protocol."
        )
    return support


def sync(ctx: Context, group: ConsumerGroup, command: SyncGroup, work: Work) -> Synced:
    """A classic member gets what it has, and no longer waits for. Raises KafkaError."""
    support = _find(group, command.member_id, command.instance_id)
    current = group.current(command.member_id)
    if command.generation != current.member_epoch:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    protocol, metadata = support.protocols[0]
    expected = (command.protocol_type or PROTOCOL_TYPE, command.protocol or protocol)
    if expected != (PROTOCOL_TYPE, protocol):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    is_revoking = current.state == MemberState.UNREVOKED_PARTITIONS
    if _is_behind(ctx, group, current, work) and not is_revoking:
        _must_rejoin(ctx, group, command.member_id, work)
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
    ctx.timers.cancel(rejoin_timer(group.group_id, command.member_id))
    timer = session_timer(group.group_id, command.member_id)
    ctx.timers.set(timer, work.now + support.session_timeout_ms)
    assignment = assignment_bytes(ctx, partitions_of(current.assigned), metadata)
    return Synced(ErrorCode.NONE, PROTOCOL_TYPE, protocol, assignment)


def heartbeat(ctx: Context, group: ConsumerGroup, command: Heartbeat, work: Work) -> ErrorCode:
    """A classic member is alive, and is told if it must join again. Raises KafkaError."""
    member_id = command.member_id
    support = _find(group, member_id, command.instance_id)
    current = group.current(member_id)
    if command.generation != current.member_epoch:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    timer = session_timer(group.group_id, member_id)
    ctx.timers.set(timer, work.now + support.session_timeout_ms)
    is_waiting = current.state == MemberState.UNRELEASED_PARTITIONS
    if (
        _is_behind(ctx, group, current, work)
        or current.state == MemberState.UNREVOKED_PARTITIONS
        or (is_waiting and not group.waits_for_others(member_id))
    ):
        _must_rejoin(ctx, group, member_id, work)
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _is_behind(ctx: Context, group: ConsumerGroup, current: CurrentAssignment, work: Work) -> bool:
    """Whether joining again brings a member on. A target that may not be made yet does not: the member
    would join over and over until it may."""
    is_old = current.member_epoch < group.assignment_epoch
    return is_old or is_assignment_due(ctx, group, work)


def _must_rejoin(ctx: Context, group: ConsumerGroup, member_id: str, work: Work) -> None:
    timer = rejoin_timer(group.group_id, member_id)
    if timer not in ctx.timers:
        ctx.timers.set(timer, work.now + group.members[member_id].rebalance_timeout_ms)


def leave(ctx: Context, group: ConsumerGroup, command: LeaveGroup, work: Work) -> list[LeftMember]:
    """Members leave, or an admin has them leave: those of the consumer protocol as well."""
    left: list[LeftMember] = []
    gone: dict[str, None] = {}
    for leaving in command.members:
        try:
            gone[_leaving(group, *leaving)] = None
            left.append(LeftMember(*leaving, ErrorCode.NONE))
        except KafkaError as error:
            left.append(LeftMember(*leaving, error.code))
    if gone:
        fence(ctx, Draft(group, work), gone, work)
    return left


def _leaving(group: ConsumerGroup, member_id: str, instance_id: str | None) -> str:
    """Who is to leave; an admin knows a static member by its instance id alone. Raises KafkaError."""
    if instance_id is not None:
        member_id = member_id or group.static.get(instance_id, "")
        check_instance(group, member_id, instance_id)
    group.find(member_id)
    return member_id
