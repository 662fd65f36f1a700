"""Which of the messages that librdkafka hands over are to be written, and when the reading is done.

Owns the two ways to read: chosen spans without a group, and a group's share. Turns librdkafka's
error events into the end of a partition, of the command, or nothing. Called by `consume`.
"""

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from dmq.cli.kafka_errors import failure
from dmq.cli.reading import Reading, Where
from dmq.cli.session import Session

Record: TypeAlias = "Message[Any, Any]"

_PASSING = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
}
"""librdkafka goes on by itself after these; the reader's patience is the judge."""


class Sieve(Protocol):
    """What the loop of `consume` asks."""

    @property
    def is_done(self) -> bool: ...

    def sift(self, messages: Sequence[Record]) -> list[Record]: ...

    def written(self, messages: Sequence[Record]) -> None: ...


class SpanSieve:
    """Records of chosen spans; done when every span is read."""

    def __init__(self, session: Session, consumer: Consumer, reading: Reading) -> None:
        self._session = session
        self._consumer = consumer
        self._reading = reading

    @property
    def is_done(self) -> bool:
        """Every partition has reached its end."""
        return self._reading.is_done

    def sift(self, messages: Sequence[Record]) -> list[Record]:
        """The records in the spans. A partition that is read to its end is fetched no more."""
        was_open = set(self._reading.open)
        wanted = []
        for message in messages:
            where, offset = place_of(message)
            if is_log_end(self._session, message):
                self._reading.at_log_end(where, offset)
            elif message.error() is None and self._reading.wants(where, offset):
                wanted.append(message)
        closed = was_open - set(self._reading.open)
        if closed and not self._reading.is_done:
            self._consumer.pause([TopicPartition(*where) for where in sorted(closed)])
        return wanted

    def written(self, messages: Sequence[Record]) -> None:
        """Nobody remembers."""


class GroupSieve:
    """A group's share: every record; done at the end of all partitions, or never."""

    def __init__(self, session: Session, consumer: Consumer, follow: bool) -> None:
        self._session = session
        self._consumer = consumer
        self._follow = follow
        self._at_end: set[Where] = set()

    @property
    def is_done(self) -> bool:
        """All partitions that are ours now stand at their end."""
        if self._follow or not self._at_end:
            return False
        ours = {(tp.topic, tp.partition) for tp in self._consumer.assignment()}
        return bool(ours) and ours <= self._at_end

    def sift(self, messages: Sequence[Record]) -> list[Record]:
        """All records."""
        wanted = []
        for message in messages:
            where, _ = place_of(message)
            if is_log_end(self._session, message):
                self._at_end.add(where)
            elif message.error() is None:
                self._at_end.discard(where)
                wanted.append(message)
        return wanted

    def written(self, messages: Sequence[Record]) -> None:
        """What was written may be committed, and nothing else."""
        ends = {where: offset + 1 for where, offset in map(place_of, messages)}
        ours = {(tp.topic, tp.partition) for tp in self._consumer.assignment()}
        stored = [TopicPartition(*where, end) for where, end in ends.items() if where in ours]
        if stored:
            self._consumer.store_offsets(offsets=stored)


def place_of(message: Record) -> tuple[Where, int]:
    """Partition and offset; of an event that has none, an empty place."""
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    return (topic or "", -1 if partition is None else partition), -1 if offset is None else offset


def is_log_end(session: Session, message: Record) -> bool:
    """The message says that the consumer reached the log's end. Other errors end the command."""
    error = message.error()
    if error is None:
        return False
    if error.code() == KafkaError._PARTITION_EOF:
        return True
    if error.code() in _PASSING and not error.fatal():
        return False
    raise failure(session, "Reading", error)
