"""One task of a write, in an executor: Arrow batches in, record batches to their leaders.

Owns the task's transaction until its last row is acknowledged; then the driver ends it. A task that
fails aborts its own. Never decides anything.

An attempt that Spark no longer waits for (another one won, its executor is thought lost) may begin its
transaction after the driver's last look for such. So one that begins late asks, as soon as its
transaction can be seen, whether the batch is over: either it finds the end, or the driver finds it.
"""

import contextlib
import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from dmq.errors import DmqError, ErrorCode, KafkaError
from dmq.spark.cluster import Cluster
from dmq.spark.connection import INIT_PRODUCER_ID, METADATA
from dmq.spark.encode import Packing, Producer, Segment, encode, next_sequence
from dmq.spark.failures import SparkSourceError, check
from dmq.spark.partitioner import PARTITIONERS
from dmq.spark.routing import Partitions, Routed, Router, Target
from dmq.spark.sending import Sender
from dmq.spark.sink_options import Columns, SinkOptions
from dmq.spark.transactions import Transaction, Transactions
from dmq.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from dmq.wire.messages.k22_init_producer_id import InitProducerIdRequest
from dmq.wire.messages.k32_describe_configs import DescribeConfigsRequest, DescribeConfigsResource

GROUP_BYTES = 16 << 20
"""Rows are sorted and encoded this many bytes at a time: enough for whole record batches."""
TOPIC_PATIENCE_S = 10.0
"""How long a topic may take to be made by the first write to it."""
LATE_S = 0.1
"""A task that begins its transaction later than this may have been overtaken. Spark begins no second
attempt earlier (spark.speculation.minTaskRuntime)."""
DESCRIBE_CONFIGS = 32
_TOPIC_RESOURCE = 2


class OvertakenError(DmqError):
    """The batch is over: nobody waits for this attempt."""


def _never(_: Cluster) -> bool:
    return False


class TaskWriter:
    """Writes the rows of one task."""

    def __init__(
        self,
        options: SinkOptions,
        columns: Columns,
        transactional_id: str | None,
        is_over: Callable[[Cluster], bool] = _never,
    ) -> None:
        self._options = options
        self._id = transactional_id
        self._is_over = is_over
        self._made_at = time.monotonic()
        self._cluster = Cluster(options.settings)
        self._transactions = Transactions(self._cluster)
        self._router = Router(
            columns, options.topic, PARTITIONERS[options.partitioner], self._partitions_of
        )
        self._topics: dict[str, Partitions] = {}
        self._bytes_max = options.batch_bytes_max
        self._sequences: dict[Target, int] = {}
        self._producer: Producer | None = None
        self._sender: Sender | None = None
        self.transaction: Transaction | None = None
        """Open from the first row on; None for a task without rows, or without a transaction."""
        self.rows = 0

    def write(self, batches: Iterable[Any]) -> None:
        """All rows, until every one is acknowledged. What was written is aborted if that fails.

        Raises OvertakenError, with nothing written, if the batch is over.
        """
        try:
            for group in grouped(batches):
                self._write(group)
            if self._sender is not None:
                self._sender.flush()
        except BaseException:
            self._give_up()
            raise
        finally:
            self._close()

    def _write(self, group: Any) -> None:
        routed = self._router.route(group)
        producer = self._begin()
        self._join(routed.targets)
        packing = Packing(producer, self._options.codec, self._bytes_max)
        segments = self._segments(routed)
        now_ms = time.time_ns() // 1_000_000
        assert self._sender is not None
        for index, batch in encode(routed.rows, segments, packing, now_ms):
            self._sender.add(routed.targets[index], batch)
        self._sender.push()
        self.rows += len(routed.rows)

    def _segments(self, routed: Routed) -> list[Segment]:
        segments = []
        for index, target in enumerate(routed.targets):
            start, stop = routed.bounds[index], routed.bounds[index + 1]
            sequence = self._sequences.get(target, 0)
            self._sequences[target] = next_sequence(sequence, stop - start)
            segments.append(Segment(start, stop, sequence))
        return segments

    # --- the producer

    def _begin(self) -> Producer:
        if self._producer is None:
            if self._id is None:
                self._producer = self._idempotent()
            else:
                self.transaction = self._transactions.begin(
                    self._id, self._options.transaction_timeout_ms
                )
                self._producer = Producer(
                    self.transaction.producer_id, self.transaction.epoch, is_transactional=True
                )
            self._sender = Sender(
                self._cluster, self._id, patience_s=self._options.delivery_timeout_s
            )
        return self._producer

    def _idempotent(self) -> Producer:
        """An id without a transaction: what is sent again after a failure is written once."""

        def attempt() -> Producer:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            response = self._cluster.any_connection().ask(INIT_PRODUCER_ID, request)
            check(response.error_code, "get a producer id")
            return Producer(response.producer_id, response.producer_epoch)

        return self._cluster.retry("get a producer id", attempt)

    def _join(self, targets: list[Target]) -> None:
        if self.transaction is not None:
            new = [target for target in targets if target not in self._sequences]
            if new:
                self._transactions.add(self.transaction, new)
            if not self._sequences and time.monotonic() - self._made_at > LATE_S:
                self._look()

    def _look(self) -> None:
        if self._is_over(self._cluster):
            raise OvertakenError(f"{self._id}: the batch is over")

    def _give_up(self) -> None:
        if self.transaction is not None:
            # The driver's sweep comes later, and a broker's time-out in the end.
            with contextlib.suppress(OSError, DmqError):
                self._transactions.abort(self.transaction)

    def _close(self) -> None:
        if self._sender is not None:
            self._sender.close()
        self._cluster.close()

    # --- topics

    def _partitions_of(self, topic: str) -> Partitions:
        if topic not in self._topics:
            self._topics[topic] = self._cluster.retry(
                f"find the partitions of topic {topic!r}", lambda: self._find(topic)
            )
            self._bytes_max = min(self._bytes_max, self._allowed(topic))
        return self._topics[topic]

    def _find(self, topic: str) -> Partitions:
        """Ask for the topic in such a way that brokers which may make it do so."""
        deadline = time.monotonic() + TOPIC_PATIENCE_S
        wanted = [MetadataRequestTopic(name=topic)]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=True)
        while True:
            found = self._cluster.any_connection().ask(METADATA, request).topics[0]
            available = [p.partition_index for p in found.partitions if p.leader_id >= 0]
            if not found.error_code and available:
                return Partitions(len(found.partitions), sorted(available))
            _refuse(topic, found.error_code)
            if time.monotonic() > deadline:
                if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise SparkSourceError(
                        f"there is no topic {topic!r}, and the brokers do not make topics by"
                        f" themselves: make it with `dmq topic create {topic}`, or set"
                        " auto.create.topics.enable=true on the brokers"
                    )
                raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {topic!r} has no leaders")
            time.sleep(0.05)

    def _allowed(self, topic: str) -> int:
        """The topic's max.message.bytes; our own limit if the brokers do not tell."""
        resource = DescribeConfigsResource(_TOPIC_RESOURCE, topic, ["max.message.bytes"])
        try:
            response = self._cluster.any_connection().ask(
                DESCRIBE_CONFIGS, DescribeConfigsRequest(resources=[resource])
            )
            return int(response.results[0].configs[0].value)
        except (OSError, DmqError, IndexError, TypeError, ValueError):
            return self._options.batch_bytes_max


def _refuse(topic: str, code: int) -> None:
    if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        raise SparkSourceError(f"not allowed to write to topic {topic!r}: ask for Write on it")
    if code == ErrorCode.INVALID_TOPIC_EXCEPTION:
        raise SparkSourceError(
            f"{topic!r} is no name for a topic: use up to 249 letters, digits, '.', '_' and '-'"
        )


def grouped(batches: Iterable[Any]) -> Iterator[Any]:
    """Arrow batches of about `GROUP_BYTES`: small ones together, large ones in slices."""
    held: list[Any] = []
    size = 0
    for batch in batches:
        for part in _sliced(batch):
            held.append(part)
            size += part.nbytes
            if size >= GROUP_BYTES:
                yield _together(held)
                held, size = [], 0
    if held:
        yield _together(held)


def _sliced(batch: Any) -> Iterator[Any]:
    if not batch.num_rows:
        return
    parts = min(-(-batch.nbytes // GROUP_BYTES), batch.num_rows)
    bounds = np.linspace(0, batch.num_rows, parts + 1).astype(int).tolist()
    for start, stop in itertools.pairwise(bounds):
        yield batch.slice(start, stop - start)


def _together(batches: list[Any]) -> Any:
    if len(batches) == 1:
        return batches[0]
    return pa.concat_batches(batches)
