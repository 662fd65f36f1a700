"""What `dmq consume` reads: for each partition, from which offset to which.

Owns the translation of places (`--from`, `--to`) into offsets, with the cluster's answers, and the
bookkeeping of which partitions have reached their end. Never prints, never fetches records.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, TopicPartition

from dmq.cli.exits import CommandError, not_found
from dmq.cli.kafka_errors import failure
from dmq.cli.moments import Kind, Place
from dmq.cli.session import REQUEST_TIMEOUT_S, Session

Where = tuple[str, int]
_AS_MS_FROM = 10**11
"""A number from here on looks like a moment in milliseconds (1973), less like an offset."""


@dataclass(slots=True)
class Span:
    """A partition's part in the reading: offsets from `start` up to, not including, `end`."""

    start: int
    end: int | None
    """None reads on for ever."""

    @property
    def is_empty(self) -> bool:
        """There is nothing to read."""
        return self.end is not None and self.start >= self.end


class Reading:
    """The spans still open. A partition leaves when its end is reached."""

    def __init__(self, spans: dict[Where, Span]) -> None:
        self.open = {where: span for where, span in spans.items() if not span.is_empty}
        self.record_count_max = sum(
            span.end - span.start for span in self.open.values() if span.end is not None
        )

    @property
    def is_done(self) -> bool:
        """Every partition has reached its end."""
        return not self.open

    def wants(self, where: Where, offset: int) -> bool:
        """Is this record part of the reading? The last one, or one beyond, closes its partition."""
        span = self.open.get(where)
        if span is None:
            return False
        if span.end is not None and offset >= span.end - 1:
            del self.open[where]
            return offset < span.end
        return True

    def at_log_end(self, where: Where, offset: int) -> bool:
        """The consumer stands at the log's end, `offset`: True if that closes the partition.

        The last offsets of a log may hold no record that a consumer sees (compaction, transaction
        markers), so the last wanted record may never come.
        """
        span = self.open.get(where)
        if span is None or span.end is None or offset < span.end:
            return False
        del self.open[where]
        return True


def partitions_of(topics: Iterable[tuple[str, int]], chosen: Sequence[int] | None) -> list[Where]:
    """All partitions, or those chosen, of (topic, number of partitions)."""
    wanted: list[Where] = []
    for name, count in topics:
        for partition in chosen if chosen else range(count):
            if not 0 <= partition < count:
                has = f"0 to {count - 1}" if count > 1 else "only partition 0"
                raise not_found(f"Topic {name!r} has no partition {partition}", f"It has {has}.")
            wanted.append((name, partition))
    return wanted


def plan(
    session: Session, consumer: Consumer, wanted: Sequence[Where], first: Place, last: Place | None
) -> dict[Where, Span]:
    """The spans of the partitions. `last` None reads on for ever."""
    try:
        limits = {where: _limits(consumer, where) for where in wanted}
        starts = _offsets(consumer, limits, first)
        ends = {} if last is None else _offsets(consumer, limits, last)
    except KafkaException as error:
        raise failure(session, "Asking for offsets", error) from error
    if first.kind is Kind.OFFSET:
        starts = _within(session, starts, limits)
    return {where: Span(starts[where], ends.get(where)) for where in wanted}


def _limits(consumer: Consumer, where: Where) -> tuple[int, int]:
    limits = consumer.get_watermark_offsets(TopicPartition(*where), timeout=REQUEST_TIMEOUT_S)
    if limits is None:
        raise CommandError(
            f"Partition {where[1]} of {where[0]!r} did not tell its offsets in time",
            hint="See `dmq topic describe`: it may have no leader.",
        )
    return limits


def _offsets(
    consumer: Consumer, limits: dict[Where, tuple[int, int]], at: Place
) -> dict[Where, int]:
    if at.kind is Kind.TIMESTAMP:
        return _by_time(consumer, limits, at.number)
    if at.kind is Kind.BEGINNING:
        return {where: low for where, (low, _) in limits.items()}
    if at.kind is Kind.END:
        return {where: high for where, (_, high) in limits.items()}
    if at.kind is Kind.BEFORE_END:
        return {where: max(low, high - at.number) for where, (low, high) in limits.items()}
    return dict.fromkeys(limits, at.number)


def _by_time(
    consumer: Consumer, limits: dict[Where, tuple[int, int]], moment_ms: int
) -> dict[Where, int]:
    """The first record at or after the moment; the end where there is none."""
    asked = [TopicPartition(topic, partition, moment_ms) for topic, partition in limits]
    offsets = {}
    for answer in consumer.offsets_for_times(asked, timeout=REQUEST_TIMEOUT_S):
        if answer.error is not None:
            raise KafkaException(answer.error)
        where = (answer.topic, answer.partition)
        offsets[where] = answer.offset if answer.offset >= 0 else limits[where][1]
    return offsets


def _within(
    session: Session, starts: dict[Where, int], limits: dict[Where, tuple[int, int]]
) -> dict[Where, int]:
    """Offsets asked for, moved into the logs. That no partition has the offset is an error."""
    for where, start in starts.items():
        low, high = limits[where]
        if low <= start <= high:
            break
    else:
        raise not_found(
            f"Partition {where[1]} of {where[0]!r} has no offset {start}: it has {low} to {high}",
            f"For a moment in time write --from @{start}." if start > _AS_MS_FROM else "",
        )
    moved = {}
    for where, start in starts.items():
        low, high = limits[where]
        moved[where] = min(max(start, low), high)
        if start < low:
            session.output.note(f"{where[0]}-{where[1]} starts at {low}; what was before is gone")
    return moved
