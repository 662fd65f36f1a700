"""A consumer's share of its group, as it changes: callbacks, starts, and what was handed out of it.

Called by librdkafka inside of `poll`, on the thread that polls. The application's callback runs
first, then the change is made: so `on_revoke` can still commit, and a `seek` in `on_assign` says
where reading begins.

    assigned   on_assign → librdkafka starts reading, at the sought offsets where there are some
    revoked    on_revoke → what was handed out is forgotten → librdkafka stops reading
    lost       on_lost (else on_revoke): others own the partitions already; a commit would be refused
"""

from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import TopicPartition as RawPartition

from dmq.client.message import Message
from dmq.types import TopicPartition

OnRebalance = Callable[[list[TopicPartition]], None]


class Share:
    """The partitions that a consumer has, and the offset after the last message it gave out of each."""

    def __init__(self, *, is_incremental: bool, proves: bool = False) -> None:
        self._is_incremental = is_incremental
        self._proves = proves
        self.unproven: set[TopicPartition] = set()
        """Assigned, and where they begin is to be held against what is committed (places.py)."""
        self.handed: dict[TopicPartition, int] = {}
        """Offsets to commit: of the next message, as Kafka counts."""
        self.stored: dict[TopicPartition, int] = {}
        """Those that librdkafka has for its next automatic commit."""
        self.paused: set[TopicPartition] = set()
        self.sought: dict[TopicPartition, int] = {}
        """Where reading goes on that has not given a message since: librdkafka does not tell."""
        self.coming: set[TopicPartition] = set()
        """Those that on_assign is being told of."""
        self.taken: set[TopicPartition] = set()
        """Partitions that went away during the poll that is under way."""
        self._starts: dict[TopicPartition, int] | None = None
        """Seeks inside of on_assign; None outside."""

    def hand_out(self, messages: Iterable[Message]) -> None:
        for message in messages:
            partition = TopicPartition(message.topic, message.partition)
            self.handed[partition] = message.offset + 1
            self.sought.pop(partition, None)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self.handed.pop(partition, None)
            self.stored.pop(partition, None)
            self.sought.pop(partition, None)

    def start_at(self, partition: TopicPartition, offset: int) -> bool:
        """Note a seek inside of on_assign; False outside."""
        if self._starts is None:
            return False
        self._starts[partition] = offset
        return True

    # --- the callbacks for librdkafka

    def callbacks(
        self,
        on_assign: OnRebalance | None,
        on_revoke: OnRebalance | None,
        on_lost: OnRebalance | None,
    ) -> dict[str, Callable[[Any, list[RawPartition]], None]]:
        def assigned(raw: Any, partitions: list[RawPartition]) -> None:
            self._starts = {}
            self.coming.update(known(partitions))
            try:
                if on_assign is not None:
                    on_assign(known(partitions))
            finally:
                starts, self._starts = self._starts, None
                self.coming.clear()
                self._assign(raw, partitions, starts)

        def revoked(raw: Any, partitions: list[RawPartition]) -> None:
            try:
                if on_revoke is not None:
                    on_revoke(known(partitions))
            finally:
                self._drop(raw, partitions)

        def lost(raw: Any, partitions: list[RawPartition]) -> None:
            callback = on_lost or on_revoke
            try:
                if callback is not None:
                    callback(known(partitions))
            finally:
                self._drop(raw, partitions)

        return {"on_assign": assigned, "on_revoke": revoked, "on_lost": lost}

    def _assign(
        self, raw: Any, partitions: list[RawPartition], starts: dict[TopicPartition, int]
    ) -> None:
        for partition in partitions:
            key = TopicPartition(partition.topic, partition.partition)
            partition.offset = starts.get(key, partition.offset)
            self.taken.discard(key)
            if self._proves and key not in starts:
                self.unproven.add(key)
        if self._is_incremental:
            raw.incremental_assign(partitions)
        else:
            raw.assign(partitions)
        paused = self.paused.intersection(known(partitions))
        if paused:  # In on_assign, before librdkafka knew them.
            raw.pause(raw_of(paused))

    def _drop(self, raw: Any, partitions: list[RawPartition]) -> None:
        gone = known(partitions)
        self.forget(gone)
        self.paused.difference_update(gone)
        self.unproven.difference_update(gone)
        self.taken.update(gone)
        if self._is_incremental:
            raw.incremental_unassign(partitions)
        else:
            raw.unassign()


def known(partitions: Iterable[RawPartition]) -> list[TopicPartition]:
    """librdkafka's partitions as ours."""
    return [TopicPartition(partition.topic, partition.partition) for partition in partitions]


def raw_of(
    partitions: Iterable[tuple[str, int]], offsets: dict[TopicPartition, int] | None = None
) -> list[RawPartition]:
    """Ours as librdkafka's, with offsets where there are some."""
    if offsets is None:
        return [RawPartition(topic, number) for topic, number in partitions]
    return [
        RawPartition(topic, number, offsets[TopicPartition(topic, number)])
        for topic, number in partitions
    ]
