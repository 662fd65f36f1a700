"""ConsumerGroupDescribe, versions 0 and 1: members and state of consumer groups (KIP-848).

A classic group is not found here. Partitions of topics that are gone are left out.

    1  which protocol each member speaks
"""

from functools import partial
from uuid import UUID

from dmq.broker.answer import Answer, when_all
from dmq.broker.coordinators import CoordinatingService
from dmq.broker.coordinators import consumer_commands as group
from dmq.doors.call import Call
from dmq.doors.kafka_api.k15_describe_groups import ON_GROUPS
from dmq.errors import DmqError, ErrorCode
from dmq.wire.messages.k69_consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)

CLASSIC_MEMBER = 0
CONSUMER_MEMBER = 1


def handle(service: CoordinatingService, call: Call, request: ConsumerGroupDescribeRequest) -> None:
    answers = [
        service.groups.submit(group_id, group.DescribeConsumerGroup(group_id))
        for group_id in request.group_ids
    ]

    def reply() -> None:
        described = list(map(partial(_described, service), request.group_ids, answers))
        if request.include_authorized_operations:
            for each in described:
                if each.error_code == ErrorCode.NONE:
                    each.authorized_operations = ON_GROUPS
        call.reply(ConsumerGroupDescribeResponse(groups=described))

    when_all(answers, reply)


def _described(
    service: CoordinatingService, group_id: str, answer: Answer[group.DescribedConsumerGroup]
) -> DescribedGroup:
    try:
        found = answer.get()
    except DmqError as error:
        return DescribedGroup(error.code, str(error), group_id)
    return DescribedGroup(
        ErrorCode.NONE,
        None,
        group_id,
        found.state,
        found.epoch,
        found.assignment_epoch,
        found.assignor,
        [_member(service, member) for member in found.members],
    )


def _member(service: CoordinatingService, member: group.DescribedConsumer) -> Member:
    return Member(
        member.member_id,
        member.instance_id,
        member.rack_id,
        member.member_epoch,
        member.client_id,
        member.client_host,
        list(member.topic_names),
        member.topic_regex or "",
        _assignment(service, member.assignment),
        _assignment(service, member.target),
        CLASSIC_MEMBER if member.is_classic else CONSUMER_MEMBER,
    )


def _assignment(
    service: CoordinatingService, partitions: tuple[tuple[UUID, tuple[int, ...]], ...]
) -> Assignment:
    known = service.cluster.topics_by_id
    return Assignment(
        [
            TopicPartitions(topic_id, known[topic_id].name, list(indexes))
            for topic_id, indexes in partitions
            if topic_id in known
        ]
    )
