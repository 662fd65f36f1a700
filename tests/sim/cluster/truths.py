"""What clients of a simulated cluster were promised, and what all its brokers must agree on.

one leader per epoch       of each partition and of the metadata
one history                brokers that have applied the metadata up to an offset say the same of them
one use of a name          broker epochs and producer ids are given out once
nothing acknowledged lost  topics, partitions, deletions, records
one log                    what a reader was shown stays, once, in order, and is what was sent to that
                           very topic, also if another had its name before
"""

from collections import Counter
from typing import TYPE_CHECKING, Any
from uuid import UUID

from sim.batches import Entry, read_log
from sim.checkers import BrokenPromiseError

from dmq.machines.state import ClusterState
from dmq.types import Voter

if TYPE_CHECKING:
    from sim.cluster.process import Member


class KnownTopic:
    """A topic that its creator was told of."""

    def __init__(self, name: str, topic_id: UUID, partitions: int, *, is_passing: bool) -> None:
        self.name, self.topic_id = name, topic_id
        self.is_passing = is_passing
        """Its deletion may be asked for."""
        self.partitions = partitions
        """At least."""
        self.may_go = False
        """Somebody asked for its deletion, and was not refused."""
        self.is_gone = False
        self.records: dict[int, dict[int, int]] = {}
        """Acknowledged: partition, offset, number of the attempt."""
        self.shown: dict[int, dict[int, int]] = {}
        """The same, of what a reader saw."""
        self.is_forfeited: set[int] = set()
        """Partitions that an operator's order may have cost records."""
        self.elections: Counter[int] = Counter()
        """Unclean ones that may have been ordered or may yet be, by partition."""

    def may_lose(self, partition: int) -> bool:
        """An order was given for it, or may have been."""
        return partition in self.is_forfeited or self.elections[partition] > 0


class Truths:
    """See the module. Raises BrokenPromiseError."""

    def __init__(self) -> None:
        self.topics: dict[UUID, KnownTopic] = {}
        self.acknowledged = 0
        self._attempts: dict[int, tuple[UUID, int]] = {}
        """By number: where it was sent."""
        self._leaders: dict[tuple[Any, int], Voter] = {}
        self._states: dict[int, tuple[Any, ...]] = {}
        self._epochs: dict[int, int] = {}
        self._producer_ids: dict[int, None] = {}

    # ---- what brokers say

    def look(self, member: "Member") -> None:
        """After a turn of this broker."""
        parts = member.parts
        for replica in parts.node.replicas.values():
            if replica.is_leader:
                key = (replica.key, replica.core.epoch)
                leader = self._leaders.setdefault(key, replica.me)
                if leader != replica.me:
                    raise BrokenPromiseError(f"{key} is led by {leader} and by {replica.me}")
        host = parts.metadata
        if member.looked_at != host.applied <= host.replica.high_watermark:
            member.looked_at = host.applied
            said = digest(parts.machine.state)
            known = self._states.setdefault(host.applied, said)
            if known != said:
                raise BrokenPromiseError(
                    f"{member} says of the metadata at {host.applied}: {_difference(known, said)}"
                )

    def registered(self, node: int, epoch: int) -> None:
        owner = self._epochs.setdefault(epoch, node)
        if owner != node:
            raise BrokenPromiseError(f"brokers {owner} and {node} are both of epoch {epoch}")

    # ---- what clients are told

    def given(self, producer_id: int) -> None:
        if producer_id in self._producer_ids:
            raise BrokenPromiseError(f"producer id {producer_id} was given out twice")
        self._producer_ids[producer_id] = None

    def created(self, topic: KnownTopic) -> bool:
        """Whether another had its name before."""
        is_known = any(other.name == topic.name for other in self.topics.values())
        self.topics[topic.topic_id] = topic
        return is_known

    def attempt(self, number: int, topic: KnownTopic, partition: int) -> int:
        """A record with this number is on its way."""
        self._attempts[number] = topic.topic_id, partition
        return number

    def wrote(self, topic: KnownTopic, partition: int, offset: int, number: int) -> None:
        records = topic.records.setdefault(partition, {})
        if not topic.may_lose(partition):
            if offset in records:
                raise BrokenPromiseError(f"{topic.name}-{partition} gave offset {offset} out twice")
            if topic.shown.get(partition, {}).get(offset, number) != number:
                raise BrokenPromiseError(
                    f"{topic.name}-{partition} had something else at {offset} when it was read"
                )
        records[offset] = number
        self.acknowledged += 1

    def showed(
        self, topic: KnownTopic, partition: int, position: int, entries: list[Entry], end: int
    ) -> None:
        """A reader at `position` got these, of a log that is committed up to `end`."""
        where = f"{topic.name}-{partition}"
        records = topic.records.get(partition, {})
        shown = topic.shown.setdefault(partition, {})
        for entry in entries:
            if entry.base != position or entry.end > end:
                raise BrokenPromiseError(
                    f"{where} shows {entry.base} to {entry.end} at {position}, committed up to {end}"
                )
            position = entry.end
            self._check_origin(topic, partition, entry)
            known = records.get(entry.base, shown.get(entry.base, entry.number))
            if known != entry.number:
                raise BrokenPromiseError(
                    f"{where} shows {entry.number} at {entry.base}, and had {known} there"
                )
            shown[entry.base] = entry.number

    def _check_origin(self, topic: KnownTopic, partition: int, entry: Entry) -> None:
        if self._attempts.get(entry.number) != (topic.topic_id, partition):
            raise BrokenPromiseError(
                f"{topic.name}-{partition} has {entry.number} at {entry.base}, which nobody sent to it"
            )

    @property
    def live(self) -> list[KnownTopic]:
        return [topic for topic in self.topics.values() if not topic.may_go]

    @property
    def free_names(self) -> list[str]:
        """Of topics that were deleted, and whose names nobody is known to have."""
        taken = {topic.name for topic in self.topics.values() if not topic.is_gone}
        gone = [topic.name for topic in self.topics.values() if topic.is_gone]
        return [name for name in dict.fromkeys(gone) if name not in taken]

    @property
    def judged(self) -> list[tuple[KnownTopic, int]]:
        """Partitions whose records must all be there: neither deleted nor given up by an order."""
        return [
            (topic, partition)
            for topic in self.live
            for partition in range(topic.partitions)
            if not topic.may_lose(partition)
        ]

    @property
    def judged_records(self) -> int:
        return sum(len(topic.records.get(partition, ())) for topic, partition in self.judged)

    # ---- the end

    def check(self, members: "list[Member]") -> None:
        """When nothing is left to be done: every promise is kept, by every broker."""
        for member in members:
            self._check_topics(member)
            check_open(member)
        for topic, partition in self.judged:
            self._check_records(members, topic, partition)

    def _check_topics(self, member: "Member") -> None:
        state = member.parts.machine.state
        for topic in self.topics.values():
            found = state.topics_by_id.get(topic.topic_id)
            if topic.is_gone and found is not None:
                raise BrokenPromiseError(f"{member} still has {topic.name}, which was deleted")
            if topic.may_go:
                continue
            found = state.topics.get(topic.name)
            if found is None or found.topic_id != topic.topic_id:
                raise BrokenPromiseError(f"{member} does not know {topic.name}, which was created")
            if len(found.partitions) < topic.partitions:
                raise BrokenPromiseError(f"{topic.name} has lost partitions at {member}")

    def _check_records(self, members: "list[Member]", topic: KnownTopic, partition: int) -> None:
        records = topic.records.get(partition, {}) | topic.shown.get(partition, {})
        holders = 0
        for member in members:
            replica = member.parts.node.replica(topic.topic_id, partition)
            if replica is None:
                continue
            holders += 1
            log = replica.log
            entries = read_log(log, log.log_start, log.end_offset)
            kept = {entry.base: entry.number for entry in entries}
            if len({*kept.values()}) < len(kept):
                raise BrokenPromiseError(f"{topic.name}-{partition} has a record twice")
            for entry in entries:
                self._check_origin(topic, partition, entry)
            lost = {o: n for o, n in records.items() if kept.get(o) != n}
            if lost:
                raise BrokenPromiseError(
                    f"{topic.name}-{partition} at {member} lacks {len(lost)} records that were "
                    f"acknowledged or read, the first at {min(lost)}; it ends at {log.end_offset}"
                )
        if records and not holders:
            raise BrokenPromiseError(f"nobody has {topic.name}-{partition} any more")


def check_open(member: "Member") -> None:
    """When nothing is left to be done: this broker has opened what the metadata place on it."""
    parts = member.parts
    wanted = {
        topic.topic_id: [n for n, p in enumerate(topic.partitions) if member.number in p.members]
        for topic in parts.machine.state.topics.values()
    }
    found = {i: sorted(local.partitions) for i, local in parts.replicas.by_id.items()}
    if found != wanted:
        raise BrokenPromiseError(f"{member} serves {found}, and is to serve {wanted}")


def digest(state: ClusterState) -> tuple[Any, ...]:
    """All that a state says, in a form that can be compared."""
    topics = [
        (t.name, t.topic_id, tuple(map(repr, t.partitions)), tuple(sorted(t.config.items())))
        for t in state.topics.values()
    ]
    brokers = [(n, b.directory, b.epoch, b.is_leaving) for n, b in state.brokers.items()]
    return (
        tuple(sorted(topics)),
        tuple(sorted(brokers)),
        tuple(sorted((str(topic_id), index) for topic_id, index in state.moving)),
        (state.next_node, state.next_epoch, state.former, state.producer_id_next),
        tuple(sorted(state.features.items())),
    )


def _difference(one: tuple[Any, ...], other: tuple[Any, ...]) -> str:
    pairs = [f"{a} here and {b} there" for a, b in zip(one, other, strict=True) if a != b]
    return "; ".join(pairs)[:1000]
