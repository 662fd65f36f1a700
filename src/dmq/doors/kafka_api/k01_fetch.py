"""Fetch, versions 4 to 18: record batches from an offset on, as they lie in the files.

Waits up to `max_wait_ms` for `min_bytes`; ends at the high watermark; the first batch is whole even
if it is larger than asked; the last one may be cut. An offset inside a batch gives the whole batch.
Followers answer too, up to their own high watermark or last stable offset, which is -1 as long as they
don't know it; a leader sends a client that says its rack to a replica there (KIP-392).

    5  log start offset     7  sessions        9  leader epoch       11 rack, preferred read replica
    12 flexible, diverging epoch               13 topics by id       16 the leader in a refusal (KIP-951)
Skipped: fetches of replicas (brokers speak another protocol among themselves).
"""

from dmq.broker.fetching import FetchResult, FetchSpec
from dmq.broker.service import Service
from dmq.doors.call import Call
from dmq.doors.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, PartitionKey, Session
from dmq.doors.kafka_api.leader_hints import MOVED, LeaderHints
from dmq.errors import ErrorCode, KafkaError
from dmq.wire.messages.k01_fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

FOLLOWERS_SINCE = 11
"""Version from which a client knows that a follower may answer it (KIP-392)."""
TOPIC_IDS_SINCE = 13
HINTS_SINCE = 16
"""Version from which a refusal names the leader."""
READ_COMMITTED = 1


def handle(service: Service, call: Call, request: FetchRequest) -> None:
    now = service.steady_now()
    try:
        specs, session, is_whole = _what_to_read(call, request, now)
    except KafkaError as error:
        call.reply(FetchResponse(error_code=error.code, session_id=0))
        return

    def on_done(results: list[FetchResult]) -> None:
        call.on_cancel = None
        if session is not None:
            results = session.news(results, all_of_them=is_whole)
        response = _response(request, results, session)
        if call.version >= HINTS_SINCE and any(result.code in MOVED for result in results):
            _add_hints(service, call, response)
        call.reply(response)

    bytes_max = max(0, min(request.max_bytes, service.config.fetch_max_bytes))
    call.on_cancel = service.fetcher.fetch(
        specs,
        bytes_min=min(request.min_bytes, bytes_max),  # Else nothing could ever be enough.
        bytes_max=bytes_max,
        deadline=now + request.max_wait_ms if request.max_wait_ms > 0 else None,
        on_done=on_done,
        rack=request.rack_id if call.version >= FOLLOWERS_SINCE else None,
        committed_only=request.isolation_level == READ_COMMITTED,
    )


def _what_to_read(
    call: Call, request: FetchRequest, now: int
) -> tuple[list[FetchSpec], Session | None, bool]:
    """(partitions to read, the session, whether the answer tells all). Raises KafkaError."""
    sessions = call.connection.door.sessions
    uses_topic_ids = call.version >= TOPIC_IDS_SINCE
    specs = _specs(request)
    if request.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
        if request.session_id:
            sessions.end(request.session_id)
        if request.session_epoch == FINAL_EPOCH:
            return specs, None, True
        return specs, sessions.begin(specs, uses_topic_ids, now), True
    session = sessions.resume(request.session_id, request.session_epoch, uses_topic_ids, now)
    session.update(specs, _forgotten(request))
    if not len(session):  # There is nothing left to remember.
        sessions.end(session.id)
        return [], None, True
    return session.specs(), session, False


def _specs(request: FetchRequest) -> list[FetchSpec]:
    specs = [
        FetchSpec(
            topic.topic,
            topic.topic_id,
            wanted.partition,
            wanted.fetch_offset,
            wanted.partition_max_bytes,
            wanted.current_leader_epoch,
            wanted.last_fetched_epoch,
        )
        for topic in request.topics
        for wanted in topic.partitions
    ]
    if len(specs) > 1:  # Of a partition that is asked for twice the last word counts.
        specs = list({spec[:3]: spec for spec in specs}.values())
    return specs


def _forgotten(request: FetchRequest) -> list[PartitionKey]:
    return [
        (topic.topic, topic.topic_id, index)
        for topic in request.forgotten_topics_data
        for index in topic.partitions
    ]


def _add_hints(service: Service, call: Call, response: FetchResponse) -> None:
    """Name the leaders of partitions that were refused for want of one here."""
    hints = LeaderHints(service, call.connection.door.listener)
    for topic in response.responses:
        for each in topic.partitions:
            if each.error_code in MOVED:
                found = hints.find(topic.topic, topic.topic_id, each.partition_index)
                each.current_leader = None if found is None else LeaderIdAndEpoch(*found)
    response.node_endpoints = [NodeEndpoint(*broker[:4]) for broker in hints.named()]


def _aborted(result: FetchResult) -> list[AbortedTransaction]:
    return [
        AbortedTransaction(aborted.producer_id, aborted.first_offset)
        for aborted in result.aborted or ()
    ]


def _response(
    request: FetchRequest, results: list[FetchResult], session: Session | None
) -> FetchResponse:
    topics: list[FetchableTopicResponse] = []
    current: FetchableTopicResponse | None = None
    is_committed = request.isolation_level == READ_COMMITTED
    for result in results:
        spec = result.spec
        if current is None or current.topic_id != spec.topic_id or current.topic != spec.topic:
            current = FetchableTopicResponse(spec.topic, spec.topic_id, [])
            topics.append(current)
        data = PartitionData(
            partition_index=spec.partition,
            error_code=result.code,
            high_watermark=result.high_watermark,
            last_stable_offset=result.high_watermark
            if result.last_stable_offset is None
            else result.last_stable_offset,
            log_start_offset=result.log_start_offset,
            aborted_transactions=_aborted(result) if is_committed else None,
            preferred_read_replica=result.preferred,
            records=b"" if result.records is None else result.records,
        )
        if result.diverging is not None:
            data.diverging_epoch = EpochEndOffset(*result.diverging)
        current.partitions.append(data)
    return FetchResponse(
        error_code=ErrorCode.NONE,
        session_id=0 if session is None else session.id,
        responses=topics,
    )
