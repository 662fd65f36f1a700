"""Reads a range of one partition: fetches from its leader, one answer ahead, through every failure.

The next fetch is asked for before this one is decoded, so that the broker works meanwhile. A leader
that moves or dies is found again and the read goes on where it was. Offsets that are gone (retention,
a topic made anew) are an error or skipped, as `failOnDataLoss` says. Runs in executors.

A leader may send a reader that says its rack to a replica there (KIP-392). That one is read from for as
long as it has what is wanted; whatever it fails over, the leader serves the rest of the range, and
judges alone which offsets are gone.
"""

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from dmq.errors import ErrorCode, KafkaError
from dmq.spark.batches import select
from dmq.spark.cluster import Cluster
from dmq.spark.connection import FETCH, Connection
from dmq.spark.decode import Wanted, decode
from dmq.spark.failures import SparkSourceError, only_partition
from dmq.spark.offsets import CONSUMER, READ_COMMITTED, READ_UNCOMMITTED, OffsetFinder
from dmq.spark.options import SourceOptions
from dmq.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData

MAX_WAIT_MS = 500
FETCH_VERSION_MAX = 12
"""The last version that calls topics by their names."""
SETTLE_S = 5.0
"""How long offsets behind the end of a log may take to appear: a new leader may not know its end yet."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Answer:
    """What a fetch brought."""

    data: memoryview
    aborted: list[Any]
    high_watermark: int
    last_stable_offset: int
    is_leaders: bool = True


class RangeReader:
    """The records of one `Wanted`, once."""

    def __init__(self, cluster: Cluster, options: SourceOptions, wanted: Wanted) -> None:
        self._cluster = cluster
        self._options = options
        self._wanted = wanted
        self._offset = wanted.start
        self._asked: Connection | None = None
        """The connection on which a fetch from `_offset` is on its way."""
        self._stuck_since: float | None = None
        self._rack = options.rack
        self._near: int | None = None
        """The replica in our rack to which the leader has sent us."""

    def read(self, schema: Any) -> Iterator[Any]:
        """Arrow record batches, in offset order. Raises SparkSourceError."""
        try:
            while self._offset < self._wanted.end:
                answer = self._fetch()
                if answer is not None:
                    yield from self._decoded(answer, schema)
        finally:
            self._hang_up()

    def _decoded(self, answer: Answer, schema: Any) -> Iterator[Any]:
        chosen = select(
            answer.data,
            answer.aborted if self._options.reads_committed else None,
            checks_crcs=self._options.checks_crcs,
            where=str(self._wanted),
        )
        if chosen.next_offset is None:
            self._nothing_there(answer)
            return
        self._stuck_since = None
        # An answer may begin before what was asked for, with records that are deleted or were read.
        asked_for = replace(self._wanted, start=self._offset)
        self._offset = max(self._offset + 1, chosen.next_offset)
        if self._offset < self._wanted.end:
            self._ask_ahead()
        yield from decode(answer.data, chosen.batches, asked_for, schema)

    # --- fetching

    def _fetch(self) -> Answer | None:
        """The answer to a fetch from `_offset`; None if that was moved, or is to be asked again."""
        try:
            return self._cluster.retry(f"read {self._wanted} at {self._offset}", self._attempt)
        except KafkaError as error:
            if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self._out_of_range()
                return None
            raise self._refused(error) from error
        except SparkSourceError as error:
            cause = error.__cause__
            if not isinstance(cause, KafkaError):
                raise
            if cause.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            self._lost("it is gone (was the topic deleted?)")
            self._offset = self._wanted.end
            return None

    def _attempt(self) -> Answer | None:
        if self._near is None:
            return self._receive()
        try:
            return self._receive()
        except (OSError, KafkaError) as error:
            self._back_to_the_leader(str(error) or type(error).__name__)
            return None

    def _receive(self) -> Answer | None:
        try:
            connection = self._asked or self._ask()
            response = connection.receive()
        finally:
            self._asked = None
        if not (response.error_code or response.responses):
            # A client above its quota gets nothing, and is to wait (KIP-219): no failure.
            time.sleep(response.throttle_time_ms / 1000)
            return None
        what = f"fetch of {self._wanted} at {self._offset}"
        data: PartitionData = only_partition(response, what)
        records: Any = data.records
        if not records and data.preferred_read_replica >= 0 and self._near is None:
            self._near = data.preferred_read_replica
            return None
        return Answer(
            data=memoryview(b"") if records is None else records,
            aborted=data.aborted_transactions or [],
            high_watermark=data.high_watermark,
            last_stable_offset=data.last_stable_offset,
            is_leaders=self._near is None,
        )

    def _back_to_the_leader(self, why: str) -> None:
        """Not to be sent away again: it may take the leader a while to notice what we have."""
        log.info("%s: broker %s does not serve it: %s", self._wanted, self._near, why)
        self._near, self._rack = None, ""

    def _ask(self) -> Connection:
        wanted = self._wanted
        if self._near is None:
            connection = self._cluster.leader_connection(wanted.topic, wanted.partition)
        else:
            connection = self._cluster.connection(self._near)
        connection.send(FETCH, self._request(), highest=FETCH_VERSION_MAX)
        self._asked = connection
        return connection

    def _ask_ahead(self) -> None:
        try:
            self._ask()
        except (OSError, KafkaError, SparkSourceError):
            self._asked = None  # The next attempt meets the failure again, and knows what to do.

    def _request(self) -> FetchRequest:
        size = self._options.fetch_bytes
        partition = FetchPartition(
            partition=self._wanted.partition,
            fetch_offset=self._offset,
            partition_max_bytes=size,
        )
        return FetchRequest(
            replica_id=CONSUMER,
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=size,
            isolation_level=READ_COMMITTED if self._options.reads_committed else READ_UNCOMMITTED,
            topics=[FetchTopic(topic=self._wanted.topic, partitions=[partition])],
            rack_id=self._rack,
        )

    def _hang_up(self) -> None:
        """An answer that nobody will read must not stay in the way of the connection's next user."""
        if self._asked is not None:
            self._asked.close()
            self._asked = None

    # --- offsets that are not there

    def _nothing_there(self, answer: Answer) -> None:
        """An empty answer: wait, unless the log ends before the range does."""
        if not answer.is_leaders:
            self._back_to_the_leader("it has fallen behind")
            return
        end = answer.last_stable_offset if self._options.reads_committed else answer.high_watermark
        if end > self._offset:
            raise SparkSourceError(
                f"{self._wanted}: the batch at offset {self._offset} is larger than a fetch of"
                f" {self._options.fetch_bytes} bytes; raise the option fetchBytes"
            )
        now = time.monotonic()
        self._stuck_since = self._stuck_since or now
        if now - self._stuck_since < SETTLE_S:
            return
        self._lost(
            f"offsets from {self._offset} to {self._wanted.end} are not there: the log ends at {end}"
            " (was the topic deleted and made anew, or is a transaction still open?)"
        )
        self._offset = self._wanted.end

    def _out_of_range(self) -> None:
        wanted = (self._wanted.topic, self._wanted.partition)
        finder = OffsetFinder(self._cluster, self._options)
        first = finder.earliest([wanted])[wanted]
        if first > self._offset:
            self._lost(
                f"offsets from {self._offset} on are gone: the log starts at {first} now (retention"
                " was faster than this query, or records were deleted)"
            )
            self._offset = first
            return
        now = time.monotonic()
        self._stuck_since = self._stuck_since or now
        if now - self._stuck_since < SETTLE_S:
            self._cluster.forget()
            return
        end = finder.latest([wanted])[wanted]
        self._lost(
            f"offset {self._offset} is beyond the end of the log, {end} (was the topic deleted and"
            " made anew?)"
        )
        self._offset = self._wanted.end

    def _lost(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise SparkSourceError(
                f"{self._wanted}: {what}. To go on with what is there, set failOnDataLoss=false; to"
                " begin anew, use another checkpoint."
            )
        log.warning("%s: %s; going on, since failOnDataLoss=false", self._wanted, what)

    def _refused(self, error: KafkaError) -> SparkSourceError:
        if error.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return SparkSourceError(f"this user may not read {self._wanted}: ask for the right to")
        return SparkSourceError(f"{self._wanted} can't be read at {self._offset}: {error}")
