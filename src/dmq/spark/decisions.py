"""The decision log: which batch of which query was decided last, and on which transactions.

Decisions are records of the compacted topic `__dmq_spark_commits`, keyed by the query. Each is written
in a transaction of the query's *decider*, a transactional id that has one owner at a time: who takes it
over fences the owner before, and whatever that had begun to write is aborted first. So between taking
over and the next owner's taking over, what is read here is the truth.

A decision says "these transactions are to be committed"; the same decision with `is_ended` says that
they are. A job that is not a stream has one decision, and a tombstone when it is ended.

Other queries write to the same log. Their open transactions hold the last stable offset back, so readers
go up to the high watermark and judge by the control records themselves.
"""

import json
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from dmq.codecs import Codec
from dmq.errors import ErrorCode, KafkaError
from dmq.records import BatchHeader, Record, iterate, scan
from dmq.spark.cluster import Cluster
from dmq.spark.connection import FETCH, LIST_OFFSETS, METADATA
from dmq.spark.encode import Packing, Producer, Rows, Segment, encode
from dmq.spark.failures import SparkSourceError, check, only_partition
from dmq.spark.routing import Target
from dmq.spark.sending import Sender
from dmq.spark.transactions import LostTransactionError, Transaction, Transactions
from dmq.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from dmq.wire.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from dmq.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from dmq.wire.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)

TOPIC = "__dmq_spark_commits"
LOG = Target(TOPIC, 0)
DECIDER_TIMEOUT_MS = 30_000
"""A decision takes milliseconds. If a driver dies over it, this is how long it stays open."""
CREATE_TOPICS = 19

_CONFIGS = {
    "cleanup.policy": "compact",
    # Every batch reads the log, so it must stay small: the last segment is never compacted, and the
    # ends of transactions go some time after their records.
    "segment.bytes": str(1 << 20),
    "segment.ms": "600000",
    "delete.retention.ms": "3600000",
    "min.cleanable.dirty.ratio": "0.1",
}
_BY_NAME = 12
_FETCH_BYTES = 4 << 20
_EARLIEST, _LATEST = -2, -1
_COMMITTED_ONLY = 1
_CONTROL_KEY = struct.Struct(">hh")
_COMMIT = 1


@dataclass(frozen=True)
class Decision:
    """That these transactions make up a batch."""

    query: str
    batch: int
    transactions: tuple[Transaction, ...]
    run: str = ""
    is_ended: bool = False
    decided_ms: int = 0
    """By the clock of the decider's coordinator, not by the driver's."""
    swept: tuple[Transaction, ...] = ()
    """With `is_ended`: open ones that are about to be aborted, so nobody may decide on them."""

    def ended(self, swept: tuple[Transaction, ...] = ()) -> "Decision":
        """The same, carried out: nobody needs to end the transactions any more."""
        return replace(self, is_ended=True, transactions=(), swept=swept)

    def to_json(self) -> bytes:
        """As it is in the log; ids are cut where they begin alike."""
        body = {
            "version": 1,
            "batch": self.batch,
            "run": self.run,
            "ended": self.is_ended,
            "decided": self.decided_ms,
            "transactions": [list(each) for each in self.transactions],
            "swept": [list(each) for each in self.swept],
        }
        return json.dumps(body, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, query: str, data: bytes) -> "Decision":
        """Raises SparkSourceError for what a newer version of this package may have written."""
        body = json.loads(data)
        if body["version"] != 1:
            raise SparkSourceError(
                f"{TOPIC} has a decision of version {body['version']} for {query}: use the newer dmq"
                " package that wrote it"
            )
        transactions = tuple(Transaction(*each) for each in body["transactions"])
        swept = tuple(Transaction(*each) for each in body.get("swept", ()))
        return cls(
            query, body["batch"], transactions, body["run"], body["ended"], body["decided"], swept
        )


class FencedError(SparkSourceError):
    """A newer driver of the same query has taken over."""


class DecisionLog:
    """Reads the log, and makes the topic if it is missing."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def read(self) -> dict[str, Decision]:
        """The last decision of each query, as of now."""
        decisions: dict[str, Decision] = {}
        for record in self._committed() if self.exists() else ():
            query = (record.key or b"").decode()
            if record.value is None:
                decisions.pop(query, None)
            else:
                decisions[query] = Decision.from_json(query, record.value)
        return decisions

    def exists(self) -> bool:
        """Is the topic there?"""
        wanted = [MetadataRequestTopic(name=TOPIC)]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)

        def attempt() -> bool:
            code = self._cluster.any_connection().ask(METADATA, request).topics[0].error_code
            if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return False
            check(code, f"look for topic {TOPIC}")
            return True

        return self._cluster.retry(f"look for topic {TOPIC}", attempt)

    def ensure(self) -> None:
        """Make the topic unless it is there. Raises SparkSourceError if that is not allowed."""
        if self.exists():
            return
        configs = [CreatableTopicConfig(name, value) for name, value in _CONFIGS.items()]
        topic = CreatableTopic(TOPIC, num_partitions=1, replication_factor=-1, configs=configs)

        def attempt() -> None:
            connection = self._cluster.any_connection()
            result = connection.ask(CREATE_TOPICS, CreateTopicsRequest(topics=[topic])).topics[0]
            if result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
                return
            if result.error_code in (
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                ErrorCode.POLICY_VIOLATION,
            ):
                raise SparkSourceError(
                    f"exactly-once needs the topic {TOPIC}, which may not be made from here"
                    f" ({result.error_message}): let an administrator make it with 1 partition and"
                    ' cleanup.policy=compact, or write with option("delivery", "at-least-once")'
                )
            check(result.error_code, result.error_message or f"make topic {TOPIC}")

        self._cluster.retry(f"make topic {TOPIC}", attempt)

    # --- reading

    def _committed(self) -> Iterator[Record]:
        """Records of committed transactions, in the order of their commits."""
        stable = self._offset(_LATEST, _COMMITTED_ONLY)
        end = self._offset(_LATEST)
        pending: dict[int, list[Record]] = {}
        for header, records in self._batches(self._offset(_EARLIEST), end):
            if not header.is_transactional:
                yield from records
            elif not header.is_control:
                pending.setdefault(header.producer_id, []).extend(records)
            else:
                kept = pending.pop(header.producer_id, [])
                if records and _CONTROL_KEY.unpack_from(records[0].key or b"")[1] == _COMMIT:
                    yield from kept
        # Compaction may drop the end of a committed transaction, never that of an aborted one whose
        # records are there. So what lies below the last stable offset without an end is committed.
        for records in pending.values():
            yield from (record for record in records if record.offset < stable)

    def _batches(self, start: int, end: int) -> Iterator[tuple[BatchHeader, list[Record]]]:
        while start < end:
            data = self._fetch(start, end)
            if not data:
                return  # Compaction has left nothing up to the end.
            for at, header in scan(data):
                if start <= header.last_offset < end:
                    yield header, list(iterate(data, at, header))
                start = max(start, header.next_offset)

    def _fetch(self, start: int, end: int) -> memoryview:
        part = FetchPartition(partition=0, fetch_offset=start, partition_max_bytes=_FETCH_BYTES)
        request = FetchRequest(
            max_wait_ms=100, min_bytes=1, topics=[FetchTopic(topic=TOPIC, partitions=[part])]
        )

        def attempt() -> memoryview:
            connection = self._cluster.leader_connection(*LOG)
            response = connection.ask(FETCH, request, highest=_BY_NAME)
            found = only_partition(response, f"read {TOPIC}")
            if not found.records and found.high_watermark < end:
                # A new leader that does not know yet how far the log is committed.
                raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, f"read {TOPIC}")
            return memoryview(found.records or b"")

        return self._cluster.retry(f"read {TOPIC}", attempt)

    def _offset(self, timestamp: int, isolation: int = 0) -> int:
        part = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        request = ListOffsetsRequest(
            replica_id=-1, isolation_level=isolation, topics=[ListOffsetsTopic(TOPIC, [part])]
        )

        def attempt() -> int:
            response = self._cluster.leader_connection(*LOG).ask(LIST_OFFSETS, request)
            found = response.topics[0].partitions[0]
            check(found.error_code, f"read {TOPIC}")
            return int(found.offset)

        return self._cluster.retry(f"read {TOPIC}", attempt)


class Decider:
    """The owner of a query's decisions, from `take_over` until somebody else takes over."""

    def __init__(self, cluster: Cluster, transactions: Transactions, id_: str, query: str) -> None:
        self._cluster = cluster
        self._transactions = transactions
        self._id = id_
        self._query = query
        self._owned: Transaction | None = None
        self._sequence = 0
        self._ahead_ms: int | None = None
        """How far the coordinator's clock is ahead of our monotonic one, while a transaction is open."""

    def take_over(self) -> None:
        """Fence whoever decided for this query before."""
        self._owned = self._transactions.begin(self._id, DECIDER_TIMEOUT_MS)
        self._sequence = 0
        self._ahead_ms = None

    def begin(self) -> int:
        """Open the transaction of a decision, unless it is open; what time it is for its coordinator.

        The coordinators' clocks count the time of transactions, and ours may be far off. How long the
        answer took is added, so it is never too early. Raises FencedError.
        """
        assert self._owned is not None, "a decider takes over first"
        if self._ahead_ms is None:
            asked_ms = _monotonic_ms()
            try:
                self._transactions.add(self._owned, [LOG])
            except LostTransactionError as error:
                raise self._fenced() from error
            found = self._transactions.standing([self._id]).get(self._id)
            if found is None or not found.is_open or found.transaction != self._owned:
                raise self._fenced()
            self._ahead_ms = found.started_ms - asked_ms
        return _monotonic_ms() + self._ahead_ms

    def open(self, decision: Decision | None) -> None:
        """Write a decision, or None for a tombstone; it holds when it is `sealed`."""
        now_ms = self.begin()
        assert self._owned is not None
        value = None if decision is None else decision.to_json()
        rows = Rows(pa.array([value], pa.binary()), pa.array([self._query.encode()], pa.binary()))
        producer = Producer(self._owned.producer_id, self._owned.epoch, is_transactional=True)
        codec = Codec.ZSTD if value and len(value) > 1000 else Codec.NONE
        segment = Segment(0, 1, self._sequence)
        sender = Sender(self._cluster, self._id, patience_s=DECIDER_TIMEOUT_MS / 1000)
        try:
            for _, batch in encode(rows, [segment], Packing(producer, int(codec)), now_ms):
                sender.add(LOG, batch)
            sender.flush()
        except LostTransactionError as error:
            raise self._fenced() from error
        finally:
            sender.close()
        self._sequence += 1

    def seal(self) -> None:
        """Commit what was written: from here on it is decided. Raises FencedError."""
        assert self._owned is not None
        try:
            self._transactions.end(self._owned, commit=True)
        except LostTransactionError as error:
            raise self._fenced() from error
        self._ahead_ms = None

    def _fenced(self) -> FencedError:
        return FencedError(
            f"another driver has taken {self._query} over: this one stops. If that was not meant, see"
            " to it that only one query runs with this checkpoint."
        )


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000
