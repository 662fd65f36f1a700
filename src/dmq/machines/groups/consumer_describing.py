"""ConsumerGroupDescribe: a consumer group and its members, as they stand."""

from dmq.errors import ErrorCode, KafkaError
from dmq.machines.groups.assignors import pack
from dmq.machines.groups.consumer_changes import assignor_of
from dmq.machines.groups.consumer_commands import (
    DescribeConsumerGroup,
    DescribedConsumer,
    DescribedConsumerGroup,
)
from dmq.machines.groups.consumer_group import ConsumerGroup
from dmq.machines.groups.context import Context
from dmq.machines.groups.group_rules import not_found
from dmq.machines.groups.reconciling import held


def describe_consumer(ctx: Context, command: DescribeConsumerGroup) -> DescribedConsumerGroup:
    """A consumer group. Raises INVALID_GROUP_ID, GROUP_ID_NOT_FOUND."""
    if not command.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    group = ctx.state.consumer.get(command.group_id)
    if group is None:
        if ctx.classic(command.group_id) is not None:
            raise KafkaError(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"Group {command.group_id} is not a consumer group.",
            )
        raise not_found(command.group_id)
    return DescribedConsumerGroup(
        group.group_id,
        group.state.value,
        group.group_epoch,
        group.assignment_epoch,
        assignor_of(ctx, group),
        tuple(_described(group, member_id) for member_id in group.members),
    )


def _described(group: ConsumerGroup, member_id: str) -> DescribedConsumer:
    member, current = group.members[member_id], group.current(member_id)
    return DescribedConsumer(
        member_id,
        member.instance_id,
        member.rack_id,
        current.member_epoch,
        member.client_id,
        member.client_host,
        member.topic_names,
        member.topic_regex,
        pack((*held(current.assigned), *held(current.pending_revocation))),
        group.targets.get(member_id, ()),
        member.classic is not None,
    )
