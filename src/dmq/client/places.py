"""Whether a group's partition begins where its offset says: looked up again with its first message.

While a transaction with offsets is undecided the coordinator answers "unstable", and clients ask again.
When a rebalance comes in between, librdkafka (2.16, against any broker) takes the partitions that stay
for ones without an offset: with `earliest` everything would be read, and put out, again. So the first
messages of a partition that was assigned are held against what is committed, and thrown away if they lie
before it. Until the coordinator can tell, none is given out.

Called by the consumer while it polls; asks the broker once for each assignment, never for long.
"""

from collections.abc import Iterable
from typing import Any

from confluent_kafka import KafkaException

from dmq.client.message import Message
from dmq.client.rebalances import raw_of
from dmq.types import TopicPartition

ASK_S = 0.5
"""For one try: the next poll tries again."""
_PASSING = frozenset({"_TIMED_OUT", "_TRANSPORT", "_WAIT_COORD", "_ALL_BROKERS_DOWN"})


def held_against(raw: Any, unproven: set[TopicPartition], messages: list[Message]) -> list[Message]:
    """The messages that may be given out; `unproven` loses the partitions that are proven now."""
    first: dict[TopicPartition, int] = {}
    for message in messages:
        if message.topic_partition in unproven:
            first.setdefault(message.topic_partition, message.offset)
    if not first:
        return messages
    committed = _committed(raw, first)
    wrong = set()
    for partition, offset in first.items():
        place = committed.get(partition)
        if place is None or place > offset:
            wrong.add(partition)
            target = offset if place is None else place
            raw.seek(raw_of([partition], {partition: target})[0])
        if place is not None:
            unproven.discard(partition)
    return [message for message in messages if message.topic_partition not in wrong]


def _committed(raw: Any, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Where the coordinator can tell: the offset, below 0 if there is none."""
    try:
        answers = raw.committed(raw_of(partitions), ASK_S)
    except KafkaException as raised:
        error = raised.args[0]
        if error.retriable() or error.name() in _PASSING:
            return {}
        raise
    return {
        TopicPartition(each.topic, each.partition): each.offset
        for each in answers
        if each.error is None
    }
