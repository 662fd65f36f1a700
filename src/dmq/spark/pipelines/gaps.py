"""Why offsets hold no record: told by the batches in the log, their headers and their markers.

Offsets without a record are the rule where transactions end (their markers take offsets), where
transactions are aborted and where logs are compacted. What none of these explains is a finding. An
unread record counts as aborted only if the marker behind it in the log says so: what the leader tells
its readers of aborted transactions is what they left records out for, and so no witness.

Owns the judgement; batches come from `log_batches`. Runs in executors: `explainer` is what they do.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, NamedTuple, Protocol

from dmq import records
from dmq.spark.pipelines.findings import SAMPLES_MAX
from dmq.spark.pipelines.log_batches import Answer, Batch, LogReader

MARKER = "transaction markers"
ABORTED = "aborted transactions"
COMPACTED = "compaction"
DELETED = "deleted while the audit ran"
EXPLAINED = (MARKER, ABORTED, COMPACTED, DELETED)

MISSING = "offsets hold no record"
HIDDEN = "records are in the log, committed, and readers are not given them"
UNDECIDED = "records are of transactions that have no end in the log"
TWICE = "offsets were read twice"
FINDINGS = (MISSING, HIDDEN, UNDECIDED, TWICE)

TALLY = (
    "reason string, offsets long,"
    " samples array<struct<topic:string,partition:int,start:long,end:long>>"
)
"""What `explainer` makes, as Spark's schema."""

_ABORT_MARKER = 0


class Gap(NamedTuple):
    """Offsets from `start` to before `end` that no record was read from."""

    topic: str
    partition: int
    start: int
    end: int


class Log(Protocol):
    """Where the batches of one partition come from."""

    def read(self, offset: int) -> Answer:
        """Batches from the one that holds this offset, or the next, on."""
        ...


class Tally:
    """How many offsets have which reason, with some examples of each."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.samples: dict[str, list[Gap]] = {}

    def add(self, reason: str, gap: Gap, offsets: int | None = None) -> None:
        """Offsets of a gap; all of them, if it is not said how many."""
        count = gap.end - gap.start if offsets is None else offsets
        if count <= 0:
            return
        self.counts[reason] += count
        known = self.samples.setdefault(reason, [])
        if known and known[-1][:2] == gap[:2] and known[-1].end == gap.start:
            known[-1] = known[-1]._replace(end=gap.end)
        elif len(known) < SAMPLES_MAX:
            known.append(gap)


class _Waiting(NamedTuple):
    """Records of a transaction whose marker is still to come."""

    epoch: int
    gap: Gap
    offsets: int


class Walk:
    """Explains the gaps of one partition, in offset order, while its batches go by once.

    Stretches without a gap are not read, unless a transaction's marker is looked for.
    """

    def __init__(self, log: Log, tally: Tally, *, is_compacted: bool) -> None:
        self._log = log
        self._tally = tally
        self._absent = COMPACTED if is_compacted else MISSING
        self._batches: list[Batch] = []
        """Fetched and still to go by, the next one last."""
        self._passed = 0
        """The offset behind the last batch that went by."""
        self._log_start = 0
        self._high_watermark = 0
        self._waiting: dict[int, list[_Waiting]] = {}
        """By producer id."""

    def explain(self, gaps: Iterable[Gap]) -> None:
        """Put every offset of these gaps into the tally."""
        for gap in gaps:
            self._explain(gap)
        # What the last stable offset has passed is decided by a marker below the high watermark.
        end = self._high_watermark
        while self._waiting and self._passed < end and self._peek(self._passed) is not None:
            self._pass()
        for waiting in self._waiting.values():
            for each in waiting:
                self._tally.add(UNDECIDED, each.gap, each.offsets)
        self._waiting.clear()

    def _explain(self, gap: Gap) -> None:
        while gap.start < gap.end:
            batch = self._peek(gap.start)
            if gap.start < self._log_start:
                gap = self._take(gap, self._log_start, DELETED)
            elif batch is None:
                ends_before = self._high_watermark < gap.end
                gap = self._take(gap, gap.end, MISSING if ends_before else self._absent)
            elif batch.header.base_offset > gap.start:
                gap = self._take(gap, batch.header.base_offset, self._absent)
            else:
                until = min(batch.header.next_offset, gap.end)
                self._judge(batch, gap._replace(end=until))
                gap = gap._replace(start=until)
                if until == batch.header.next_offset:
                    self._pass()

    def _take(self, gap: Gap, until: int, reason: str) -> Gap:
        """Offsets up to `until` have this reason; returns what is left of the gap."""
        until = min(until, gap.end)
        self._tally.add(reason, gap._replace(end=until))
        return gap._replace(start=until)

    def _judge(self, batch: Batch, gap: Gap) -> None:
        """All offsets of this gap lie within the batch."""
        header = batch.header
        if header.is_control:
            self._tally.add(MARKER, gap)
            return
        there = _records_between(batch, gap.start, gap.end)
        self._tally.add(self._absent, gap, gap.end - gap.start - there)
        if not header.is_transactional:
            self._tally.add(HIDDEN, gap, there)
        elif there:
            waiting = _Waiting(header.producer_epoch, gap, there)
            self._waiting.setdefault(header.producer_id, []).append(waiting)

    # --- batches

    def _peek(self, offset: int) -> Batch | None:
        """The first batch that ends behind an offset; None if the log ends before it."""
        while True:
            while self._batches:
                if self._batches[-1].header.next_offset > offset:
                    return self._batches[-1]
                self._pass()
            answer = self._log.read(self._passed if self._waiting else offset)
            self._log_start = max(self._log_start, answer.log_start)
            self._high_watermark = answer.high_watermark
            if not answer.batches:
                return None
            self._batches = answer.batches[::-1]

    def _pass(self) -> None:
        batch = self._batches.pop()
        self._passed = batch.header.next_offset
        if batch.header.is_control and batch.header.producer_id in self._waiting:
            self._end(batch)

    def _end(self, marker: Batch) -> None:
        """A transaction ends: what waited for it is known to be aborted, or should have been read."""
        header = marker.header
        reason = ABORTED if _is_abort(marker) else HIDDEN
        # A marker may have a later epoch than the records: that of who ended it (KIP-890, fencing).
        left = []
        for each in self._waiting.pop(header.producer_id):
            if each.epoch <= header.producer_epoch:
                self._tally.add(reason, each.gap, each.offsets)
            else:
                left.append(each)
        if left:
            self._waiting[header.producer_id] = left


def explainer(
    options: Mapping[str, str], compacted: frozenset[str]
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """What an executor does with its share of steps between offsets: `before` to `offset`, in order.

    Takes and makes Arrow batches, as `mapInArrow` has them.
    """

    def explain_steps(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        steps = (step for batch in batches for step in batch.to_pylist())
        tally = tally_of(options, steps, compacted)
        rows = [
            {
                "reason": reason,
                "offsets": count,
                "samples": [gap._asdict() for gap in tally.samples[reason]],
            }
            for reason, count in tally.counts.items()
        ]
        yield pa.RecordBatch.from_pylist(rows, _arrow_schema())

    return explain_steps


def tally_of(
    options: Mapping[str, str], steps: Iterable[Mapping[str, Any]], compacted: frozenset[str]
) -> Tally:
    """The reasons for all steps that are not one: from an offset `before` to the next, `offset`."""
    tally = Tally()

    def gaps_of(steps: Iterable[Mapping[str, Any]]) -> Iterator[Gap]:
        for step in steps:
            topic, partition, offset = step["topic"], step["partition"], step["offset"]
            if offset == step["before"]:
                tally.add(TWICE, Gap(topic, partition, offset, offset + 1))
            else:
                yield Gap(topic, partition, step["before"] + 1, offset)

    by_partition = groupby(steps, lambda step: (step["topic"], step["partition"]))
    for (topic, partition), of_partition in by_partition:
        with LogReader(options, topic, partition) as log:
            Walk(log, tally, is_compacted=topic in compacted).explain(gaps_of(of_partition))
    return tally


def _records_between(batch: Batch, start: int, end: int) -> int:
    """How many records a batch holds at these offsets."""
    header = batch.header
    if header.record_count == header.last_offset_delta + 1:
        return end - start
    if not header.record_count:
        return 0
    data = bytes(records.open_batch(batch.data, batch.at, header))
    deltas = [each.offset_delta for each in records.glance(data, header.record_count)]
    return bisect_left(deltas, end - header.base_offset) - bisect_left(
        deltas, start - header.base_offset
    )


def _is_abort(marker: Batch) -> bool:
    """What the marker's key says: a version and a type, two bytes each."""
    for record in records.iterate(marker.data, marker.at, marker.header):
        return record.key is not None and record.key[2:4] == _ABORT_MARKER.to_bytes(2)
    return False


def _arrow_schema() -> Any:
    import pyarrow as pa

    gap = pa.struct(
        [
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("start", pa.int64()),
            ("end", pa.int64()),
        ]
    )
    return pa.schema([("reason", pa.string()), ("offsets", pa.int64()), ("samples", pa.list_(gap))])
