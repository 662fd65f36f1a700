"""Produce, versions 3 to 13: a batch per partition goes to the log; the answer leaves with the ack.

acks 0 gets no answer (an error closes the connection), 1 is answered when the leader's own disk has
the batch, all when the partition's high watermark has passed it. One partition's failure does not
spoil the others. Who asks while a leadership is being handed over waits the few milliseconds until it is
known who has it: a client that is told of no leader looks around, and pauses.

    5  log start offset     7  zstd      8  error messages     9  flexible
    10 the current leader in a refusal (KIP-951)       13 topics by id
    11 TRANSACTION_ABORTABLE by its name    12 joins the transaction by itself (KIP-890)
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from dmq.broker.answer import Answer, when_all
from dmq.broker.intake import Intake
from dmq.broker.internal_topics import check_is_clients
from dmq.broker.multiraft.waiting import ParkedAppend
from dmq.broker.partition import Partition
from dmq.broker.service import Service
from dmq.codecs import Codec
from dmq.doors.call import Call
from dmq.doors.kafka_api.entering import refusals, to_enter
from dmq.doors.kafka_api.leader_hints import MOVED, LeaderHints
from dmq.errors import DmqError, ErrorCode
from dmq.records import CODEC_MASK, MAGIC, TRANSACTIONAL, BatchError
from dmq.wire.messages.k00_produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

ZSTD_VERSION_MIN = 7
HINTS_SINCE = 10
"""Version from which a refusal names the leader."""
_MAGIC_AT = 16
_ATTRIBUTES_AT = 22
"""Low byte of the attributes in a batch: its codec, and whether it is of a transaction."""


Opened = dict[int, tuple[memoryview, int] | DmqError]
"""What was said of batches that had to be opened, or had to wait for a transaction's coordinator, by
identity of the request's part."""


def handle(service: Service, call: Call, request: ProduceRequest) -> None:
    if request.transactional_id is None and _has_transactional(request):
        _refuse_nameless(service, call, request)
        return
    slow = _to_open(service, request)
    entering = [] if request.transactional_id is None else to_enter(service, call, request)
    if not slow and not entering:
        _produce(service, call, request)
        return
    call.connection.hold()
    opened: Answer[Opened] = Answer.of({})
    if slow:
        opened = service.beside(partial(_open_all, slow, service.now()))

    def ready() -> None:
        if not call.connection.is_closed:
            refused = {id(data): error for data, error in refusals(call, entering)}
            _produce(service, call, request, {**opened.get(), **refused})
            call.connection.release()

    waiting: list[Answer[Any]] = [opened, *(answer for _, answer in entering)]
    when_all(waiting, ready)


def _has_transactional(request: ProduceRequest) -> bool:
    return any(
        data.records is not None and _attributes_of(memoryview(data.records)) & TRANSACTIONAL
        for topic in request.topic_data
        for data in topic.partition_data
    )


def _refuse_nameless(service: Service, call: Call, request: ProduceRequest) -> None:
    """Who has not said whose transaction it is may write into none."""
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if request.acks == 0:
        call.hang_up(f"produced with acks=0 and failed: {code.name}")
        return
    production = _Production(service, call, request.acks, request.timeout_ms, None)
    production.refuse_all(request, code)


def _to_open(
    service: Service, request: ProduceRequest
) -> list[tuple[Intake, PartitionProduceData]]:
    """Batches of topics that look inside, unless they are small."""
    found: list[tuple[Intake, PartitionProduceData]] = []
    for topic in request.topic_data:
        intake = service.intake(topic.name, topic.topic_id)
        if intake is not None and not intake.is_plain:
            found += [
                (intake, data)
                for data in topic.partition_data
                if data.records is not None and intake.must_open(memoryview(data.records))
            ]
    return found


def _open_all(slow: list[tuple[Intake, PartitionProduceData]], now: int) -> Opened:
    """In a thread: nobody else has this request now."""
    opened: Opened = {}
    for intake, data in slow:
        try:
            opened[id(data)] = intake.admit(memoryview(data.records or b""), now)
        except BatchError as error:
            opened[id(data)] = error
    return opened


def _produce(
    service: Service, call: Call, request: ProduceRequest, opened: Opened | None = None
) -> None:
    acks = request.acks
    if acks == 0:
        _produce_unanswered(service, call, request, opened)
        return
    if acks in (-1, 1) and len(request.topic_data) == 1:
        topic = request.topic_data[0]
        if len(topic.partition_data) == 1:
            _produce_one(service, call, acks, request.timeout_ms, topic, opened)
            return
    production = _Production(service, call, acks, request.timeout_ms, opened)
    if acks not in (-1, 1):
        production.refuse_all(request, ErrorCode.INVALID_REQUIRED_ACKS)
        return
    for topic in request.topic_data:
        production.add_topic(topic)
    production.all_added()


def _produce_one(
    service: Service,
    call: Call,
    acks: int,
    timeout_ms: int,
    topic: TopicProduceData,
    opened: Opened | None,
    *,
    has_waited: bool = False,
) -> None:
    """A single partition: the usual request of many small producers, on the shortest way."""
    name, topic_id = topic.name, topic.topic_id
    data = topic.partition_data[0]
    index, now = data.index, service.now()

    def answer(result: PartitionProduceResponse) -> None:
        response = ProduceResponse([TopicProduceResponse(name, topic_id, [result])])
        if result.error_code:
            _add_hints(service, call, response)
        call.reply(response)

    try:
        partition, append = _append(service, call, topic, data, now, acks, opened)
    except DmqError as error:
        again = partial(
            _produce_one, service, call, acks, timeout_ms, topic, opened, has_waited=True
        )
        if has_waited or not _is_moving(service, topic, index, error, again):
            answer(PartitionProduceResponse(index, error.code, -1, error_message=str(error)))
        return

    def on_appended(code: ErrorCode) -> None:  # It outlives the request: no word of its records.
        if code is ErrorCode.NONE:
            start = partition.log.log_start
            result = PartitionProduceResponse(
                index, 0, append.base_offset, append.append_time, start
            )
        else:
            result = PartitionProduceResponse(index, code, -1)
        answer(result)

    append.deadline = service.steady_now() + max(timeout_ms, 1)
    append.on_done = on_appended


class _Production:
    """One request's partitions until the last of them has its outcome."""

    __slots__ = (
        "_acks",
        "_call",
        "_deadline",
        "_has_refused",
        "_now",
        "_opened",
        "_response",
        "_service",
        "_waiting",
    )

    def __init__(
        self, service: Service, call: Call, acks: int, timeout_ms: int, opened: Opened | None
    ) -> None:
        self._service = service
        self._acks = acks
        self._call = call
        self._opened = opened
        self._now = service.now()
        self._deadline = service.steady_now() + max(timeout_ms, 1)
        self._response = ProduceResponse(responses=[])
        self._has_refused = False
        self._waiting = 1  # One for `all_added`.

    def add_topic(self, topic: TopicProduceData) -> None:
        answers: list[PartitionProduceResponse] = []
        self._response.responses.append(TopicProduceResponse(topic.name, topic.topic_id, answers))
        for data in topic.partition_data:
            answer = PartitionProduceResponse(index=data.index, base_offset=-1)
            answers.append(answer)
            self._waiting += 1
            self._add(topic, data, answer)

    def _add(
        self,
        topic: TopicProduceData,
        data: PartitionProduceData,
        answer: PartitionProduceResponse,
        *,
        has_waited: bool = False,
    ) -> None:
        try:
            partition, append = _append(
                self._service, self._call, topic, data, self._now, self._acks, self._opened
            )
        except DmqError as error:
            again = partial(self._add, topic, data, answer, has_waited=True)
            if has_waited or not _is_moving(self._service, topic, data.index, error, again):
                answer.error_code = error.code
                answer.error_message = str(error)
                self._has_refused = True
                self.all_added()
            return
        append.deadline = self._deadline
        append.on_done = self._on_appended(partition, append, answer)

    def _on_appended(
        self, partition: Partition, append: ParkedAppend, answer: PartitionProduceResponse
    ) -> Callable[[ErrorCode], None]:
        def on_appended(code: ErrorCode) -> None:
            if code is ErrorCode.NONE:
                answer.base_offset = append.base_offset
                answer.log_append_time_ms = append.append_time
                answer.log_start_offset = partition.log_start_offset
            else:
                answer.error_code = code
                self._has_refused = True
            self.all_added()

        return on_appended

    def all_added(self) -> None:
        self._waiting -= 1
        if not self._waiting:
            if self._has_refused:
                _add_hints(self._service, self._call, self._response)
            self._call.reply(self._response)

    def refuse_all(self, request: ProduceRequest, code: ErrorCode) -> None:
        for topic in request.topic_data:
            answers = [
                PartitionProduceResponse(index=data.index, error_code=code, base_offset=-1)
                for data in topic.partition_data
            ]
            self._response.responses.append(
                TopicProduceResponse(topic.name, topic.topic_id, answers)
            )
        self.all_added()


def _is_moving(
    service: Service,
    topic: TopicProduceData,
    index: int,
    error: DmqError,
    again: Callable[[], None],
) -> bool:
    """Whether we can't take it just now for want of a leader; then it is tried `again` soon."""
    if error.code is not ErrorCode.NOT_LEADER_OR_FOLLOWER:
        return False
    return service.when_moved(topic.name, topic.topic_id, index, again)


def _add_hints(service: Service, call: Call, response: ProduceResponse) -> None:
    """Name the leaders of partitions that were refused for want of one here."""
    if call.version < HINTS_SINCE:
        return
    hints = LeaderHints(service, call.connection.door.listener)
    for topic in response.responses:
        for each in topic.partition_responses:
            if each.error_code in MOVED:
                found = hints.find(topic.name, topic.topic_id, each.index)
                each.current_leader = None if found is None else LeaderIdAndEpoch(*found)
    response.node_endpoints = [NodeEndpoint(*broker[:4]) for broker in hints.named()]


def _append(
    service: Service,
    call: Call,
    topic: TopicProduceData,
    data: PartitionProduceData,
    now: int,
    acks: int,
    opened: Opened | None,
) -> tuple[Partition, ParkedAppend]:
    partition = service.find(topic.name, topic.topic_id, data.index)
    check_is_clients(partition.topic)
    records = data.records
    if records is None or not len(records):
        raise BatchError(ErrorCode.INVALID_RECORD, "no record batch for the partition")
    records = memoryview(records)
    if call.version < ZSTD_VERSION_MIN and _codec_of(records) == Codec.ZSTD:
        raise BatchError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or later"
        )
    admitted = None if opened is None else opened.get(id(data))
    if admitted is None:
        return partition, partition.append(records, now, acks)
    if isinstance(admitted, DmqError):
        raise admitted
    return partition, partition.append_admitted(*admitted, acks)


def _codec_of(records: memoryview) -> int:
    return _attributes_of(records) & CODEC_MASK


def _attributes_of(records: memoryview) -> int:
    """Of a batch; what is no batch, or of an older format, is refused by its own check."""
    is_batch = len(records) > _ATTRIBUTES_AT and records[_MAGIC_AT] == MAGIC
    return records[_ATTRIBUTES_AT] if is_batch else 0


def _produce_unanswered(
    service: Service, call: Call, request: ProduceRequest, opened: Opened | None
) -> None:
    """acks=0: the only way to report a failure is to close the connection.

    The call lasts until its batches are durable all the same: its bytes are in memory until then.
    """
    now = service.now()
    left = 1

    def ended(code: ErrorCode) -> None:
        nonlocal left
        left -= 1
        if code is not ErrorCode.NONE:
            call.hang_up(f"produced with acks=0 and failed: {code.name}")
        elif not left:
            call.reply_nothing()

    for topic in request.topic_data:
        for data in topic.partition_data:
            try:
                _, append = _append(service, call, topic, data, now, 0, opened)
            except DmqError as error:
                call.hang_up(f"produced with acks=0 and failed: {error}")
                return
            left += 1
            append.on_done = ended
    ended(ErrorCode.NONE)
