"""Why offsets hold no record: on batches made by hand, and on the logs of a real broker. No Spark."""

import struct
from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from compat.eventually import eventually
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from spark.feeding import QUIET, create, produce, topic_name

from dmq import records
from dmq.broker.partition import CommittedRead, Partition
from dmq.machines.producers.aborted import AbortedTxn
from dmq.spark.cluster import Cluster
from dmq.spark.decode import Wanted
from dmq.spark.fetching import RangeReader
from dmq.spark.options import SourceOptions
from dmq.spark.pipelines.audit import subject_of
from dmq.spark.pipelines.gaps import (
    ABORTED,
    COMPACTED,
    DELETED,
    HIDDEN,
    MARKER,
    MISSING,
    TWICE,
    UNDECIDED,
    Gap,
    Tally,
    Walk,
    tally_of,
)
from dmq.spark.pipelines.log_batches import Answer, Batch, LogReader
from dmq.spark.schema import arrow_schema, source_schema
from dmq.testing import Broker

PATIENCE_S = 90
"""A compaction starts a process; on a loaded machine that takes its time."""


# --- by hand


class Log:
    """Batches of one partition; a few with each answer."""

    def __init__(self, *batches: bytearray, start: int = 0, end: int | None = None) -> None:
        self._batches = [Batch(data, 0, records.read_header(data)) for data in batches]
        self._start = start
        self._end = self._batches[-1].header.next_offset if end is None else end
        self.reads = 0

    def read(self, offset: int) -> Answer:
        self.reads += 1
        offset = max(offset, self._start)
        first = bisect_right(self._batches, offset, key=lambda each: each.header.next_offset)
        return Answer(self._batches[first : first + 100], self._start, self._end)


def data(*offsets: int, producer: int = -1, epoch: int = 0, **settings: Any) -> bytearray:
    attributes = 0 if producer < 0 else records.TRANSACTIONAL
    rows = [records.Record(offset, 0, b"k", b"v") for offset in offsets]
    return records.build_batch(
        rows, producer_id=producer, producer_epoch=epoch, attributes=attributes, **settings
    )


def marker(offset: int, producer: int, *, is_commit: bool, epoch: int = 0) -> bytearray:
    row = records.Record(offset, 0, struct.pack(">hh", 0, is_commit), struct.pack(">hi", 0, 0))
    attributes = records.TRANSACTIONAL | records.CONTROL
    return records.build_batch(
        [row], producer_id=producer, producer_epoch=epoch, attributes=attributes
    )


def explained(log: Log, *ranges: tuple[int, int], is_compacted: bool = False) -> Tally:
    tally = Tally()
    walk = Walk(log, tally, is_compacted=is_compacted)
    walk.explain(Gap("t", 0, start, end) for start, end in ranges)
    assert sum(tally.counts.values()) == sum(end - start for start, end in ranges)
    return tally


def test_an_unread_record_is_aborted_only_if_the_marker_behind_it_says_so() -> None:
    for is_commit, reason in ((False, ABORTED), (True, HIDDEN)):
        log = Log(data(0, 1, producer=7), data(2), marker(3, 7, is_commit=is_commit))
        assert explained(log, (0, 2), (3, 4)).counts == {reason: 2, MARKER: 1}
        # The marker may lie behind all gaps, amid offsets of others, and have a later epoch.
        log = Log(
            data(0, 1, producer=7),
            data(2, producer=8),
            marker(3, 8, is_commit=not is_commit),
            data(4),
            marker(5, 7, is_commit=is_commit, epoch=1),
        )
        assert explained(log, (0, 2)).counts == {reason: 2}


def test_a_marker_of_an_older_epoch_ends_nothing_and_without_one_nothing_is_explained() -> None:
    log = Log(data(0, producer=7, epoch=3), marker(1, 7, is_commit=False, epoch=2), data(2))
    tally = explained(log, (0, 2))
    assert tally.counts == {UNDECIDED: 1, MARKER: 1}
    assert tally.samples[UNDECIDED] == [("t", 0, 0, 1)]


def test_records_that_are_there_and_were_not_read_are_a_finding() -> None:
    log = Log(data(0, 1), data(2, 3, 4), data(5))
    tally = explained(log, (1, 2), (3, 5))
    assert tally.counts == {HIDDEN: 3}
    assert tally.samples[HIDDEN] == [("t", 0, 1, 2), ("t", 0, 3, 5)]


def test_compaction_explains_holes_of_compacted_topics_only() -> None:
    # Offsets 0, 3 to 5 and 8 are gone; 2 and 7 are there and were not read.
    log = Log(data(1, 2, base_offset=0, last_offset=3), data(6, 7, last_offset=8), data(9))
    holes = [(0, 1), (2, 6), (7, 9)]
    assert explained(log, *holes, is_compacted=True).counts == {COMPACTED: 5, HIDDEN: 2}
    tally = explained(log, *holes)
    assert tally.counts == {MISSING: 5, HIDDEN: 2}


def test_what_is_not_in_the_log_up_to_its_end_is_missing() -> None:
    log = Log(data(2, 3), data(6), end=7)
    tally = explained(log, (0, 2), (4, 6))
    assert tally.counts == {MISSING: 4}
    assert tally.samples[MISSING] == [("t", 0, 0, 2), ("t", 0, 4, 6)]
    for is_compacted in (False, True):  # No compaction takes the end of a log.
        assert explained(log, (7, 9), is_compacted=is_compacted).counts == {MISSING: 2}


def test_what_was_deleted_since_the_audit_began_is_no_loss() -> None:
    log = Log(data(0, 1, 2, 3), data(6), start=2)
    assert explained(log, (0, 6)).counts == {DELETED: 2, HIDDEN: 2, MISSING: 2}


def test_many_gaps_are_explained_with_few_reads_and_far_ones_without_reading_between() -> None:
    transactions = range(0, 60_000, 3)
    log = Log(
        *(
            each
            for at in transactions
            for each in (data(at, at + 1, producer=1), marker(at + 2, 1, is_commit=True))
        )
    )
    assert explained(log, *((at + 2, at + 3) for at in transactions)).counts == {MARKER: 20_000}
    assert log.reads <= 40_000 / 100 + 1
    log.reads = 0
    assert explained(log, (2, 3), (59_999, 60_000)).counts == {MARKER: 2}
    assert log.reads == 2


# --- a real broker, read by the source's own reader


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    often = {"log.retention.check.interval.ms": 100, "log.cleaner.backoff.ms": 100}
    with Broker(often) as running:
        yield running


def tally_as_read(broker: Broker, topic: str, *, is_compacted: bool = False) -> tuple[int, Tally]:
    """How many records a reader is given, and the reasons for all other offsets."""
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    [whole] = subject_of("here", options, [topic]).ranges()
    offsets = read_offsets(broker, topic, whole.start, whole.end)
    steps = [
        {"topic": topic, "partition": 0, "before": before, "offset": offset}
        for before, offset in pairwise([whole.start - 1, *offsets, whole.end])
        if offset - before != 1
    ]
    compacted = frozenset({topic} if is_compacted else ())
    return len(offsets), tally_of(options, steps, compacted)


def read_offsets(broker: Broker, topic: str, start: int, end: int) -> list[int]:
    options = SourceOptions.of(
        {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic}
    )
    cluster = Cluster(options.settings)
    try:
        reader = RangeReader(cluster, options, Wanted(topic, 0, start, end))
        batches = reader.read(arrow_schema(source_schema(includes_headers=False)))
        return [offset for batch in batches for offset in batch["offset"].to_pylist()]
    finally:
        cluster.close()


class Transactions:
    """A transactional producer; each call is a transaction."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "transactional.id": topic_name("gaps"),
                **QUIET,
            }
        )
        self._producer.init_transactions()

    def write(self, count: int, *, is_commit: bool | None, partition: int = 0) -> None:
        """None: it stays open."""
        self._producer.begin_transaction()
        for number in range(count):
            self._producer.produce(self._topic, f"{number}", "k", partition)
        self._producer.flush()
        if is_commit:
            self._producer.commit_transaction()
        elif is_commit is not None:
            self._producer.abort_transaction()


def test_transactions_are_explained_from_the_first_offset_to_the_last_stable_one(
    broker: Broker,
) -> None:
    topic = create(broker.bootstrap_servers, topic_name("transfers"))
    writer, other = Transactions(broker, topic), Transactions(broker, topic)
    writer.write(3, is_commit=False)
    writer.write(2, is_commit=True)
    assert tally_as_read(broker, topic)[1].counts == {ABORTED: 3, MARKER: 2}
    other.write(1, is_commit=None)
    writer.write(5, is_commit=True)  # Behind the last stable offset.
    read, tally = tally_as_read(broker, topic)
    assert (read, tally.counts) == (2, {ABORTED: 3, MARKER: 2})


def test_a_partition_that_gives_no_record_at_all_is_explained_too(broker: Broker) -> None:
    topic = create(broker.bootstrap_servers, topic_name("aborted"))
    Transactions(broker, topic).write(4, is_commit=False)
    read, tally = tally_as_read(broker, topic)
    assert (read, tally.counts) == (0, {ABORTED: 4, MARKER: 1})


def test_a_committed_transaction_that_a_broker_hides_is_found(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = create(broker.bootstrap_servers, topic_name("hidden"))
    produce(broker.bootstrap_servers, topic, [(b"k", b"before")])
    Transactions(broker, topic).write(3, is_commit=True)
    produce(broker.bootstrap_servers, topic, [(b"k", b"behind")])
    assert tally_as_read(broker, topic)[1].counts == {MARKER: 1}
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    with LogReader(options, topic, 0) as log:
        producer = log.read(1).batches[0].header.producer_id
    lie = [AbortedTxn(producer, first_offset=1, last_offset=4, last_stable_offset=5)]
    honest = Partition.read_committed

    def broken_promise(*asked: Any, **how: Any) -> CommittedRead | None:
        found = honest(*asked, **how)
        return None if found is None else found._replace(aborted=lie)

    monkeypatch.setattr(Partition, "read_committed", broken_promise)
    read, tally = tally_as_read(broker, topic)
    assert (read, tally.counts) == (2, {HIDDEN: 3, MARKER: 1})
    assert tally.samples[HIDDEN] == [(topic, 0, 1, 4)]


def test_what_compaction_took_is_explained_on_compacted_topics_only(broker: Broker) -> None:
    settings = {
        "cleanup.policy": "compact",
        "internal.segment.bytes": "1200",
        "min.cleanable.dirty.ratio": "0",
    }
    topic = create(broker.bootstrap_servers, topic_name("latest"), config=settings)
    for number in range(30):
        produce(broker.bootstrap_servers, topic, [(b"k", b"%400d" % number)])

    def fewer() -> tuple[int, Tally] | None:
        found = tally_as_read(broker, topic, is_compacted=True)
        return found if found[0] < 30 else None

    found = eventually(fewer, "a compaction", PATIENCE_S)
    assert found is not None
    read, tally = found
    assert tally.counts == {COMPACTED: 30 - read}
    read, tally = tally_as_read(broker, topic)
    assert tally.counts == {MISSING: 30 - read}


def test_records_deleted_before_and_while_an_audit_runs(broker: Broker) -> None:
    topic = create(broker.bootstrap_servers, topic_name("deleted"))
    produce(broker.bootstrap_servers, topic, [(b"k", b"v")] * 10)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, **QUIET})
    for future in admin.delete_records([TopicPartition(topic, 0, 4)]).values():
        future.result(30)
    read, tally = tally_as_read(broker, topic)
    assert (read, tally.counts) == (6, {})
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    step = {"topic": topic, "partition": 0, "before": -1, "offset": 4}
    assert tally_of(options, [step], frozenset()).counts == {DELETED: 4}
    # A log that ends before what was read of it has lost its end.
    step = {"topic": topic, "partition": 0, "before": 9, "offset": 12}
    assert tally_of(options, [step], frozenset()).counts == {MISSING: 2}


def test_offsets_that_come_twice_are_told(broker: Broker) -> None:
    steps = [{"topic": "t", "partition": 0, "before": 5, "offset": 5}] * 2
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    assert tally_of(options, steps, frozenset()).counts == {TWICE: 2}
