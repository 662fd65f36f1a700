"""ElectLeaders, versions 0 to 2: give partitions the leader that is preferred, or any leader at all.

Preferred elections bring back the first replica of each list. Unclean ones are the last resort for
partitions of which no majority is left; records may be lost. Null instead of a list of partitions
means all of them, and then those that need no election are not told.

    1  unclean elections, an error of the whole    2  flexible
"""

from dmq.broker.answer import Answer
from dmq.broker.elections import PREFERRED, UNCLEAN, Elected, Elections
from dmq.doors.call import Call
from dmq.errors import DmqError, ErrorCode, KafkaError
from dmq.wire.messages.k43_elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)


def handle(service: Elections, call: Call, request: ElectLeadersRequest) -> None:
    wanted = _wanted(request)
    kind = request.election_type
    if kind not in (PREFERRED, UNCLEAN):
        error = KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown election type {kind}")
        call.reply(_refusal(request, error))
        return

    def on_elected(answer: Answer[list[Elected]]) -> None:
        try:
            elected = answer.get()
        except DmqError as error:
            call.reply(_refusal(request, error))
            return
        if wanted is None:
            elected = [each for each in elected if each.code is not ErrorCode.ELECTION_NOT_NEEDED]
        call.reply(ElectLeadersResponse(replica_election_results=_by_topic(elected, request)))

    service.elect_leaders(kind, wanted, request.timeout_ms).on_done(on_elected)


def _wanted(request: ElectLeadersRequest) -> list[tuple[str, int]] | None:
    if request.topic_partitions is None:
        return None
    every = (
        (topic.topic, index) for topic in request.topic_partitions for index in topic.partitions
    )
    return list(dict.fromkeys(every))


def _refusal(request: ElectLeadersRequest, error: DmqError) -> ElectLeadersResponse:
    """For version 0 too, which has no place for an error of the whole."""
    refused = [Elected(*where, error.code, str(error)) for where in _wanted(request) or ()]
    results = _by_topic(refused, request)
    return ElectLeadersResponse(error_code=error.code, replica_election_results=results)


def _by_topic(elected: list[Elected], request: ElectLeadersRequest) -> list[ReplicaElectionResult]:
    """Every topic that was named, also one without partitions."""
    found: dict[str, list[PartitionResult]] = {
        topic.topic: [] for topic in request.topic_partitions or ()
    }
    for each in sorted(elected, key=lambda each: each.partition):
        result = PartitionResult(each.partition, each.code, each.message)
        found.setdefault(each.topic, []).append(result)
    return [ReplicaElectionResult(topic, found[topic]) for topic in sorted(found)]
