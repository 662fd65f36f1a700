"""The batches of a partition as they lie in its log, whoever wrote them and however they ended.

Read uncommitted, up to the high watermark: control batches and aborted ones are there too. No record
is decoded here.
"""

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, NamedTuple, Self

from dmq import records
from dmq.errors import ErrorCode, KafkaError
from dmq.records import BatchHeader
from dmq.spark.cluster import Cluster
from dmq.spark.connection import FETCH
from dmq.spark.failures import SparkSourceError, only_partition
from dmq.spark.fetching import FETCH_VERSION_MAX, SETTLE_S
from dmq.spark.offsets import OffsetFinder
from dmq.spark.options import SourceOptions
from dmq.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData

FETCH_BYTES = 1 << 20
FETCH_BYTES_MAX = 1 << 30
_WAIT_MS = 500


class Batch(NamedTuple):
    """A batch and where it lies in the answer it came with."""

    data: Any
    at: int
    header: BatchHeader


class Answer(NamedTuple):
    """What a read brought: no batches if the log ends there."""

    batches: list[Batch]
    log_start: int
    high_watermark: int


class LogReader:
    """Reads one partition, from its leader, through failures that pass. Raises SparkSourceError."""

    def __init__(self, options: Mapping[str, str], topic: str, partition: int) -> None:
        self._options = SourceOptions.of({**options, "subscribe": topic})
        self._cluster = Cluster(self._options.settings)
        self._place = (topic, partition)
        self._name = f"{topic} partition {partition}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._cluster.close()

    def read(self, offset: int) -> Answer:
        """Batches from the one that holds this offset, or the next, on."""
        deadline = time.monotonic() + SETTLE_S  # A new leader may not know its log's end yet.
        size = FETCH_BYTES
        while True:
            data = self._fetch(offset, size)
            if data is None:
                data = self._out_of_range(offset)
                if data.log_start_offset > offset:
                    return self.read(data.log_start_offset)
            buffer: Any = data.records or b""
            batches = [Batch(buffer, at, header) for at, header in records.scan(buffer)]
            if batches or (not len(buffer) and time.monotonic() > deadline):
                return Answer(batches, data.log_start_offset, data.high_watermark)
            if len(buffer):
                size = self._larger(offset, size)

    def _larger(self, offset: int, size: int) -> int:
        if size >= FETCH_BYTES_MAX:
            raise SparkSourceError(
                f"{self._name}: the bytes at offset {offset} are no record batch of format 2"
            )
        return size * 8

    def _out_of_range(self, offset: int) -> PartitionData:
        """Where the log starts; if it is not behind the offset, then the log ends before it."""
        finder = OffsetFinder(self._cluster, self._options)
        first = finder.earliest([self._place])[self._place]
        if first <= offset:
            self._cluster.forget()
            time.sleep(_WAIT_MS / 1000)
        return PartitionData(high_watermark=-1, log_start_offset=first)

    def _fetch(self, offset: int, size: int) -> PartitionData | None:
        """An answer of the leader; None if the offset is out of its log's range."""
        topic, partition = self._place
        asked = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=size)
        request = FetchRequest(
            max_wait_ms=_WAIT_MS,
            min_bytes=1,
            max_bytes=size,
            topics=[FetchTopic(topic=topic, partitions=[asked])],
        )

        def attempt() -> PartitionData | None:
            connection = self._cluster.leader_connection(topic, partition)
            answer = connection.ask(FETCH, request, highest=FETCH_VERSION_MAX)
            try:
                data: PartitionData = only_partition(answer, f"Fetch of {self._name}")
            except KafkaError as error:
                if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    return None
                raise
            return data

        return self._cluster.retry(f"look at {self._name}", attempt)
