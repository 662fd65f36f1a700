"""DescribeQuorum, versions 0 to 2: the metadata log's leader, voters and observers.

Answered by any broker: the question goes on to the metadata leader. Only `__cluster_metadata-0` can
be asked for, alone; anything else is unknown, as in Kafka.

    1  times of the last fetch and of being caught up    2  directory ids, where the voters listen
"""

from dmq.broker.answer import Answer
from dmq.broker.quorum import Quorum, QuorumReplica, QuorumView
from dmq.doors.call import Call
from dmq.errors import DmqError, ErrorCode, KafkaError
from dmq.types import METADATA_TOPIC
from dmq.wire.messages.k55_describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
)


def handle(service: Quorum, call: Call, request: DescribeQuorumRequest) -> None:
    if _asked(request) != [(METADATA_TOPIC, [0])]:
        error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        call.reply(_refusal(_asked(request), error))
        return

    def on_told(answer: Answer[QuorumView]) -> None:
        try:
            call.reply(_response(answer.get()))
        except DmqError as error:
            call.reply(_refusal(_asked(request), error))

    service.quorum().on_done(on_told)


def _asked(request: DescribeQuorumRequest) -> list[tuple[str, list[int]]]:
    return [
        (topic.topic_name, [each.partition_index for each in topic.partitions])
        for topic in request.topics
    ]


def _response(view: QuorumView) -> DescribeQuorumResponse:
    partition = ResponsePartitionData(
        0,
        ErrorCode.NONE,
        None,
        view.leader,
        view.leader_epoch,
        view.high_watermark,
        [_replica(each) for each in view.voters],
        [_replica(each) for each in view.observers],
    )
    return DescribeQuorumResponse(
        topics=[ResponseTopicData(METADATA_TOPIC, [partition])],
        nodes=[
            Node(node, [Listener(*where) for where in listeners]) for node, listeners in view.nodes
        ],
    )


def _replica(replica: QuorumReplica) -> ReplicaState:
    return ReplicaState(
        replica.node,
        replica.directory,
        replica.log_end_offset,
        replica.last_fetch_ms,
        replica.last_caught_up_ms,
    )


def _refusal(asked: list[tuple[str, list[int]]], error: DmqError) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(
        topics=[
            ResponseTopicData(
                topic,
                [
                    ResponsePartitionData(
                        index, error.code, str(error), -1, -1, -1, current_voters=[], observers=[]
                    )
                    for index in indexes
                ],
            )
            for topic, indexes in asked
        ],
        nodes=[],
    )
