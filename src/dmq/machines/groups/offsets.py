"""Committed offsets of all groups of a coordinator: durable, changed by facts only.

Offsets of open transactions are kept apart until the producer's marker says what becomes of them.
Of two commits of a partition the one later in the log counts, whichever is decided first.
"""

from collections.abc import Iterator
from typing import NamedTuple

from dmq.machines.groups.facts import CommittedOffset, OffsetKey


class _Entry(NamedTuple):
    serial: int
    """Place among all facts applied: log order."""
    value: CommittedOffset


_ByTopic = dict[str, dict[int, _Entry]]


class Offsets:
    """See the module."""

    __slots__ = ("_by_group", "_open", "_pending", "_serial")

    def __init__(self) -> None:
        self._by_group: dict[str, _ByTopic] = {}
        self._pending: dict[int, dict[OffsetKey, _Entry]] = {}
        """By producer id."""
        self._open: dict[str, dict[int, None]] = {}
        """Producers with pending offsets, by group."""
        self._serial = 0

    # --- changing ----------------------------------------------------------------------------

    def put(self, key: OffsetKey, value: CommittedOffset, producer_id: int = -1) -> None:
        """A commit; with a producer, one that its transaction must confirm."""
        self._serial += 1
        entry = _Entry(self._serial, value)
        if producer_id < 0:
            self._put(key, entry)
        else:
            self._pending.setdefault(producer_id, {})[key] = entry
            self._open.setdefault(key.group_id, {})[producer_id] = None

    def remove(self, key: OffsetKey) -> None:
        """Forget an offset, also where it is pending."""
        self._serial += 1
        topics = self._by_group.get(key.group_id, {})
        partitions = topics.get(key.topic, {})
        if partitions.pop(key.partition, None) is not None:
            if not partitions:
                del topics[key.topic]
            if not topics:
                del self._by_group[key.group_id]
        for producer_id in list(self._open.get(key.group_id, ())):
            self._pending[producer_id].pop(key, None)
            self._close_if_empty(key.group_id, producer_id)

    def complete(self, producer_id: int, *, committed: bool) -> None:
        """The producer's marker is in the log."""
        pending = self._pending.pop(producer_id, {})
        for key, entry in pending.items():
            producers = self._open.get(key.group_id, {})
            producers.pop(producer_id, None)
            if not producers:
                self._open.pop(key.group_id, None)
            if committed:
                known = self._entry(key)
                if known is None or known.serial < entry.serial:
                    self._put(key, entry)

    def _put(self, key: OffsetKey, entry: _Entry) -> None:
        topics = self._by_group.setdefault(key.group_id, {})
        topics.setdefault(key.topic, {})[key.partition] = entry

    def _close_if_empty(self, group_id: str, producer_id: int) -> None:
        pending = self._pending[producer_id]
        if any(key.group_id == group_id for key in pending):
            return
        del self._open[group_id][producer_id]
        if not self._open[group_id]:
            del self._open[group_id]
        if not pending:
            del self._pending[producer_id]

    # --- looking -----------------------------------------------------------------------------

    def group_ids(self) -> Iterator[str]:
        """Groups with offsets, committed or pending."""
        yield from self._by_group
        yield from (group_id for group_id in self._open if group_id not in self._by_group)

    @property
    def group_count(self) -> int:
        """Groups with committed or with pending offsets; those with both may count twice."""
        return len(self._by_group) + len(self._open)

    def count(self, group_id: str) -> int:
        """Partitions that a group has offsets of; those that are pending too may count twice."""
        committed = sum(map(len, self._by_group.get(group_id, {}).values()))
        return committed + sum(
            len(self._pending[producer]) for producer in self._open.get(group_id, ())
        )

    def has_group(self, group_id: str) -> bool:
        return group_id in self._by_group or group_id in self._open

    def has_open_transactions(self, group_id: str) -> bool:
        return group_id in self._open

    def is_pending(self, key: OffsetKey) -> bool:
        """Whether an open transaction has committed this offset."""
        return any(key in self._pending[producer] for producer in self._open.get(key.group_id, ()))

    def get(self, key: OffsetKey) -> CommittedOffset | None:
        entry = self._entry(key)
        return None if entry is None else entry.value

    def _entry(self, key: OffsetKey) -> _Entry | None:
        return self._by_group.get(key.group_id, {}).get(key.topic, {}).get(key.partition)

    def of_group(self, group_id: str) -> Iterator[tuple[OffsetKey, CommittedOffset]]:
        """What a group has committed."""
        for topic, partitions in self._by_group.get(group_id, {}).items():
            for partition, entry in partitions.items():
                yield OffsetKey(group_id, topic, partition), entry.value

    def pending_of_group(self, group_id: str) -> Iterator[tuple[OffsetKey, CommittedOffset]]:
        """What open transactions have committed for a group; a key may come more than once."""
        for producer_id in self._open.get(group_id, ()):
            for key, entry in self._pending[producer_id].items():
                if key.group_id == group_id:
                    yield key, entry.value

    def of_topic(self, topic: str) -> Iterator[tuple[OffsetKey, CommittedOffset]]:
        """What all groups have committed, or have pending, for a topic."""
        for group_id, topics in self._by_group.items():
            for partition, entry in topics.get(topic, {}).items():
                yield OffsetKey(group_id, topic, partition), entry.value
        for pending in self._pending.values():
            for key, entry in pending.items():
                if key.topic == topic:
                    yield key, entry.value

    def topics(self) -> dict[str, None]:
        """Every topic that some group has an offset of."""
        found = {topic: None for topics in self._by_group.values() for topic in topics}
        found |= {key.topic: None for pending in self._pending.values() for key in pending}
        return found

    def __eq__(self, other: object) -> bool:
        """The same offsets, committed and pending; serials may differ, as after compaction."""
        if not isinstance(other, Offsets):
            return NotImplemented
        return self._plain() == other._plain()

    __hash__ = None  # type: ignore[assignment]

    def _plain(self) -> object:
        committed = {
            (group_id, topic, partition): entry.value
            for group_id, topics in self._by_group.items()
            for topic, partitions in topics.items()
            for partition, entry in partitions.items()
        }
        pending = {
            producer_id: {key: entry.value for key, entry in entries.items()}
            for producer_id, entries in self._pending.items()
        }
        return committed, pending, {group: set(open_) for group, open_ in self._open.items()}
