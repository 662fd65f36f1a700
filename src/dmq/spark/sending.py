"""Record batches on their way: in order per partition, several in flight, again when it fails.

A `Sender` has a lane per partition: batches that are not acknowledged yet, of which the first few are
in flight. Batches carry sequence numbers, so what is sent twice is written once (KIP-98). When anything
fails, all answers are awaited first, then each lane is sent again from its first batch that is not
acknowledged: so no batch overtakes another, whoever leads the partition by now.

    waiting ──send──► in flight ──acknowledged──► gone
       ▲                  │
       └── a failure that may pass: leader moved, broker gone ──┘      other failures are raised
"""

import time
from collections import deque
from dataclasses import dataclass, field

from dmq.errors import RETRIABLE, ErrorCode, KafkaError
from dmq.spark.cluster import Cluster
from dmq.spark.connection import PRODUCE, Connection
from dmq.spark.encode import Batch
from dmq.spark.failures import SparkSourceError, check
from dmq.spark.routing import Target
from dmq.spark.transactions import IN_FLIGHT_MAX, PRODUCE_HIGHEST, LostTransactionError
from dmq.wire.messages.k00_produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)

REQUEST_BYTES = 1 << 20
"""A request is filled with batches of several partitions up to this; one batch may be larger."""
ALL_IN_SYNC = -1
PAUSE_S = (0.02, 1.0)
"""The first pause after a failure, and the longest."""

DOUBTS_MAX = 3
"""So often a leader may say that the transaction is not open before it is believed: the end of the one
before may reach it late. Sending again is safe; a transaction that is over stays over."""


@dataclass
class _Lane:
    """Batches of one partition that are not acknowledged, in order."""

    target: Target
    batches: deque[Batch] = field(default_factory=deque)
    in_flight: int = 0
    """How many of the first are on their way."""
    node: int = -1
    """The broker they went to: the next must not go elsewhere before these are answered."""
    has_failed: bool = False
    """A batch was refused; those behind it will be, too."""

    @property
    def is_waiting(self) -> bool:
        return self.in_flight < len(self.batches)


class Sender:
    """Sends for one producer; `transactional_id` is None if there is no transaction."""

    def __init__(
        self, cluster: Cluster, transactional_id: str | None, *, patience_s: float
    ) -> None:
        self._cluster = cluster
        self._transactional_id = transactional_id
        self._patience_s = patience_s
        self._lanes: dict[Target, _Lane] = {}
        self._lines: dict[int, Connection] = {}
        """By broker: connections of our own, since the cluster's have nothing in flight."""
        self._flights: dict[int, deque[list[_Lane]]] = {}
        """By broker: the lanes of each request in flight."""
        self._failure: Exception | None = None
        self._waiting_bytes = 0
        self._doubts = 0

    def add(self, target: Target, batch: Batch) -> None:
        """Put a batch behind those of its partition; sends when enough has come together."""
        lane = self._lanes.get(target)
        if lane is None:
            lane = self._lanes[target] = _Lane(target)
        lane.batches.append(batch)
        self._waiting_bytes += len(batch.data)
        if self._waiting_bytes >= REQUEST_BYTES:
            self.push()

    def push(self) -> None:
        """Send all that waits; returns when it is on its way, not when it has arrived."""
        self._run(until_acknowledged=False)

    def flush(self) -> None:
        """Send all and wait until the brokers have it."""
        self._run(until_acknowledged=True)

    def close(self) -> None:
        """Hang up; what is in flight is given up."""
        for line in self._lines.values():
            line.close()
        self._lines.clear()
        self._flights.clear()

    def _run(self, *, until_acknowledged: bool) -> None:
        self._waiting_bytes = 0
        deadline, pause_s = None, PAUSE_S[0]
        while True:
            before = self._left()
            try:
                self._send_waiting()
                if until_acknowledged:
                    self._await_all()
            except (OSError, KafkaError) as error:
                self._note(error)
            if self._failure is None:
                return
            self._await_all()
            failure = self._recover()
            now = time.monotonic()
            if deadline is None or self._left() < before:
                deadline, pause_s = now + self._patience_s, PAUSE_S[0]
            if now + pause_s > deadline:
                raise self._given_up(failure) from failure
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S[1])

    def _left(self) -> int:
        return sum(len(lane.batches) for lane in self._lanes.values())

    # --- out

    def _send_waiting(self) -> None:
        by_node: dict[int, list[_Lane]] = {}
        for lane in self._lanes.values():
            if lane.is_waiting:
                node = lane.node if lane.in_flight else self._cluster.leader(*lane.target)
                by_node.setdefault(node, []).append(lane)
        for node, lanes in by_node.items():
            while self._failure is None and (chosen := self._fill(lanes)):
                flight = self._flights.setdefault(node, deque())
                if len(flight) >= IN_FLIGHT_MAX:
                    self._await_one(node)
                if self._failure is None:
                    self._send(node, chosen)

    @staticmethod
    def _fill(lanes: list[_Lane]) -> list[_Lane]:
        """Lanes for the next request: one batch each, to about `REQUEST_BYTES`."""
        chosen: list[_Lane] = []
        size = 0
        for lane in lanes:
            if lane.is_waiting:
                size += len(lane.batches[lane.in_flight].data)
                if chosen and size > REQUEST_BYTES:
                    break
                chosen.append(lane)
        return chosen

    def _send(self, node: int, lanes: list[_Lane]) -> None:
        topics: dict[str, list[PartitionProduceData]] = {}
        for lane in lanes:
            data = lane.batches[lane.in_flight].data
            part = PartitionProduceData(lane.target.partition, memoryview(data))
            topics.setdefault(lane.target.topic, []).append(part)
        request = ProduceRequest(
            transactional_id=self._transactional_id,
            acks=ALL_IN_SYNC,
            timeout_ms=int(self._cluster.settings.request_timeout_s * 1000),
            topic_data=[TopicProduceData(name=n, partition_data=p) for n, p in topics.items()],
        )
        try:
            self._line(node).send(PRODUCE, request, highest=PRODUCE_HIGHEST)
        except OSError:
            self._flights[node].clear()
            raise
        for lane in lanes:
            lane.in_flight += 1
            lane.node = node
        self._flights[node].append(lanes)

    def _line(self, node: int) -> Connection:
        line = self._lines.get(node)
        if line is None or not line.is_open:
            assert not self._flights[node], "answers are lost with their connection"
            line = self._lines[node] = self._cluster.new_connection(node)
        return line

    # --- back

    def _await_all(self) -> None:
        for node, flight in self._flights.items():
            while flight:
                self._await_one(node)

    def _await_one(self, node: int) -> None:
        """The answer to the oldest request at a broker; failures are noted, not raised."""
        try:
            response = self._lines[node].receive()
        except OSError as error:
            self._note(error)
            self._flights[node].clear()
            return
        lanes = {lane.target: lane for lane in self._flights[node].popleft()}
        for topic in response.responses:
            for part in topic.partition_responses:
                self._answered(lanes[Target(topic.name, part.index)], part)

    def _answered(self, lane: _Lane, part: PartitionProduceResponse) -> None:
        code = part.error_code
        if lane.has_failed:
            return  # Behind a batch that failed: it is sent again in any case.
        if code in (0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            lane.batches.popleft()
            lane.in_flight -= 1
            return
        lane.has_failed = True
        try:
            self._refused(lane, part)
        except KafkaError as error:
            self._note(error)

    def _refused(self, lane: _Lane, part: PartitionProduceResponse) -> None:
        where, code = f"{lane.target.topic}-{lane.target.partition}", part.error_code
        if code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
            batch = lane.batches[0]
            raise SparkSourceError(
                f"{where} takes no batch of {len(batch.data)} bytes ({batch.count} records): raise the"
                " topic's max.message.bytes, or set kafka.max.request.size below it"
            )
        if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise SparkSourceError(
                f"not allowed to write to topic {lane.target.topic!r}: ask for it"
            )
        if code in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED):
            raise LostTransactionError(
                ErrorCode(code),
                f"{where}: the transaction {self._transactional_id} was ended by others; it was open"
                " longer than kafka.transaction.timeout.ms, or the job was given up",
            )
        if code == ErrorCode.INVALID_TIMESTAMP:
            raise SparkSourceError(
                f"{where} refuses the time of the records ({part.error_message or 'no reason given'}):"
                " the clock of this machine and the broker's differ, set them right; or raise the"
                " topic's message.timestamp.after.max.ms"
            )
        if code == ErrorCode.INVALID_TXN_STATE and self._doubts < DOUBTS_MAX:
            self._doubts += 1
            code = ErrorCode.CONCURRENT_TRANSACTIONS
        check(code, part.error_message or f"writing to {where}")

    # --- after a failure

    def _note(self, error: Exception) -> None:
        """Keep the first failure that can't pass, else the first."""
        if self._failure is None or (_may_pass(self._failure) and not _may_pass(error)):
            self._failure = error

    def _recover(self) -> Exception:
        failure, self._failure = self._failure, None
        assert failure is not None
        if not _may_pass(failure):
            raise failure
        for lane in self._lanes.values():
            lane.in_flight, lane.has_failed = 0, False
        self._cluster.forget()
        return failure

    def _given_up(self, failure: Exception) -> SparkSourceError:
        stuck = [f"{t.topic}-{t.partition}" for t, lane in self._lanes.items() if lane.batches]
        return SparkSourceError(
            f"{', '.join(stuck[:5])}: not written within {self._patience_s:.0f} s"
            f" ({str(failure) or type(failure).__name__}). Look at the brokers' health"
            " (dmq cluster show), or raise kafka.delivery.timeout.ms."
        )


def _may_pass(error: Exception) -> bool:
    if isinstance(error, KafkaError):
        return error.code in RETRIABLE or error.code == ErrorCode.BROKER_NOT_AVAILABLE
    return isinstance(error, OSError)
