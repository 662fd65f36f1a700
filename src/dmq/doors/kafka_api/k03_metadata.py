"""Metadata, versions 0 to 13: brokers, topics, partitions and who leads them.

Topics may be asked by name or, from version 12 on, by id; none at all means all of them (in version
0 by an empty list, later by null). An unknown name is created first where client and broker allow it,
and answered when it is there, so that the first answer is already the right one. Other brokers are
asked first whether they are still there: a dead leader that is named once is believed for a second.

    1  controller, racks    2  cluster id    4  allow_auto_topic_creation    5  offline replicas
    6  LISTENER_NOT_FOUND    7  leader epochs    8  authorized operations    9  flexible
    10  topic ids    13  error code
There is no authorizer: everybody may do everything.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple
from uuid import UUID

from dmq.broker.answer import Answer
from dmq.broker.internal_topics import INTERNAL_TOPICS
from dmq.broker.service import Service
from dmq.broker.views import BrokerView, PartitionView, TopicView
from dmq.doors.call import Call
from dmq.doors.kafka_api import operations
from dmq.errors import DmqError, ErrorCode, KafkaError
from dmq.types import NIL_UUID, NO_LEADER
from dmq.wire.messages.k03_metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

AUTO_CREATION_IS_ASKED_SINCE = 4
LISTENERS_ARE_KNOWN_SINCE = 6
BY_ID_SINCE = 12
ENCODED_IN_LOOP_MAX = 1000
"""Topics; to encode more of them takes longer than the loop has."""


Wanted = tuple[str | None, UUID]
"""Name and id, either of which may be missing."""


def handle(service: Service, call: Call, request: MetadataRequest) -> None:
    service.when_sure(partial(call.perform, _tell, service, call, request))


def _tell(service: Service, call: Call, request: MetadataRequest) -> None:
    def reply(wanted: list[Wanted], tell: Callable[[Wanted], MetadataResponseTopic]) -> None:
        """Tell of each topic; not all in one go if they are many."""
        service.in_slices(wanted, tell, partial(_reply, service, call, request))

    strangers = service.strangers(call.connection.door.listener)
    look_up = partial(_look_up, service, _Unnamed(strangers, _unreachable(call.version)))
    if request.topics is None or (call.version == 0 and not request.topics):
        every = [(name, NIL_UUID) for name in service.topic_names()]
        service.in_slices(every, look_up, partial(_reply_all, service, call, request))
        return
    wanted = list(dict.fromkeys((topic.name, topic.topic_id) for topic in request.topics))
    if call.version < BY_ID_SINCE and any(
        name is None or topic_id != NIL_UUID for name, topic_id in wanted
    ):
        reply(wanted, _refused)
        return
    may_create = call.version < AUTO_CREATION_IS_ASKED_SINCE or request.allow_auto_topic_creation
    missing = [
        name for name, topic_id in wanted if name and topic_id == NIL_UUID and not service.has(name)
    ]
    if not missing or not (may_create and service.config.auto_create_topics_enable):
        reply(wanted, look_up)
        return

    def on_created(answer: Answer[dict[str, KafkaError | None]]) -> None:
        try:
            failed = {name: error.code for name, error in answer.get().items() if error is not None}
        except DmqError as error:  # All of them: the disk refused.
            failed = dict.fromkeys(missing, error.code)

        def tell(one: Wanted) -> MetadataResponseTopic:
            name = one[0]
            if name is None or name not in failed or service.has(name):
                return look_up(one)
            return _failed(name, failed[name])

        reply(wanted, tell)

    service.admin.auto_create(missing).on_done(on_created)


class _Unnamed(NamedTuple):
    """Leaders that are not told to this client, and what it is told instead."""

    nodes: frozenset[int]
    code: ErrorCode


def _unreachable(version: int) -> ErrorCode:
    """Of a leader that has no listener of the name that the client came by."""
    if version >= LISTENERS_ARE_KNOWN_SINCE:
        return ErrorCode.LISTENER_NOT_FOUND
    return ErrorCode.LEADER_NOT_AVAILABLE


def _look_up(service: Service, unnamed: _Unnamed, wanted: Wanted) -> MetadataResponseTopic:
    name, topic_id = wanted
    if topic_id != NIL_UUID:
        view = service.topic_by_id(topic_id)
        if view is None:
            return MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id)
        return _topic(view, unnamed)
    view = service.topic(name or "")
    if view is None:
        name = name or ""
        why = service.why_no_topic(name)
        return MetadataResponseTopic(why, name, is_internal=name in INTERNAL_TOPICS)
    return _topic(view, unnamed)


def _refused(wanted: Wanted) -> MetadataResponseTopic:
    """Versions 10 and 11 have a field for ids, but questions by id are allowed later only."""
    name, topic_id = wanted
    return MetadataResponseTopic(ErrorCode.INVALID_REQUEST, name or "", topic_id)


def _failed(name: str, code: ErrorCode) -> MetadataResponseTopic:
    if code is ErrorCode.TOPIC_ALREADY_EXISTS:
        code = ErrorCode.LEADER_NOT_AVAILABLE  # Somebody else is creating it just now.
    return MetadataResponseTopic(code, name)


def _topic(view: TopicView, unnamed: _Unnamed) -> MetadataResponseTopic:
    partitions = [_partition(part, unnamed) for part in view.partitions]
    return MetadataResponseTopic(
        ErrorCode.NONE, view.name, view.topic_id, view.is_internal, partitions
    )


def _partition(view: PartitionView, unnamed: _Unnamed) -> MetadataResponsePartition:
    code, leader = ErrorCode.NONE, view.leader
    if not is_led(view):
        code, leader = ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER
    elif leader in unnamed.nodes:
        code, leader = unnamed.code, NO_LEADER
    return MetadataResponsePartition(
        code, view.partition, leader, view.leader_epoch, view.replicas, view.isr, view.offline
    )


def is_led(view: PartitionView) -> bool:
    """Whether there is a leader that clients could reach: one that is down leads nobody."""
    return view.leader >= 0 and view.leader not in view.offline


def controller(service: Service, brokers: Iterable[BrokerView]) -> int:
    """Where clients send what is for the controller: the metadata leader if it is up. Else to us: each
    broker passes such requests on, and clients that know no controller would not even ask (librdkafka
    waits for one before it describes a topic). Kafka names any broker that is up."""
    leader = service.controller_id
    is_up = any(broker.node_id == leader and not broker.is_fenced for broker in brokers)
    return leader if is_up else service.identity.node_id


def _reply_all(
    service: Service, call: Call, request: MetadataRequest, topics: list[MetadataResponseTopic]
) -> None:
    """Without those that were deleted while the others were told."""
    there = [topic for topic in topics if topic.error_code == ErrorCode.NONE]
    _reply(service, call, request, there)


def _reply(
    service: Service, call: Call, request: MetadataRequest, topics: list[MetadataResponseTopic]
) -> None:
    """When what was told is committed; if the disk refused it instead, tell anew."""
    response = _response(service, call, request, topics)

    def settled(is_true: bool) -> None:
        if not is_true:
            _tell(service, call, request)
        elif len(topics) <= ENCODED_IN_LOOP_MAX:
            call.reply(response)
        else:
            call.reply_large(response)

    service.when_settled(settled)


def _response(
    service: Service, call: Call, request: MetadataRequest, topics: list[MetadataResponseTopic]
) -> MetadataResponse:
    if request.include_topic_authorized_operations:
        for topic in topics:
            topic.topic_authorized_operations = operations.ON_TOPICS
    is_asked = request.include_cluster_authorized_operations
    brokers = service.brokers(call.connection.door.listener)
    return MetadataResponse(
        brokers=[MetadataResponseBroker(*broker[:4]) for broker in brokers],
        cluster_id=service.cluster_id,
        controller_id=controller(service, brokers),
        topics=topics,
        cluster_authorized_operations=operations.ON_CLUSTER if is_asked else operations.NOT_ASKED,
    )
