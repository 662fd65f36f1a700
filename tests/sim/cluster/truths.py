"""What clients of a simulated cluster were promised, and what all its brokers must agree on.

one leader per epoch       of each partition and of the metadata
one history                brokers that have applied the metadata up to an offset say the same of them
one use of a name          broker epochs and producer ids are given out once
nothing acknowledged lost  topics, partitions, deletions, records
"""

from collections import Counter
from typing import TYPE_CHECKING, Any
from uuid import UUID

from sim.batches import read_log
from sim.checkers import BrokenPromiseError

from dmq.machines.state import ClusterState
from dmq.types import Voter

if TYPE_CHECKING:
    from sim.cluster.process import Member


class KnownTopic:
    """A topic that its creator was told of."""

    def __init__(self, name: str, topic_id: UUID, partitions: int) -> None:
        self.name, self.topic_id = name, topic_id
        self.partitions = partitions
        """At least."""
        self.may_go = False
        """Somebody asked for its deletion."""
        self.is_gone = False
        self.records: dict[int, dict[int, int]] = {}
        """Acknowledged: partition, offset, number of the attempt."""
        self.is_forfeited: set[int] = set()
        """Partitions that an operator's order may have cost records."""
        self.elections: Counter[int] = Counter()
        """Unclean ones that were asked for and not answered yet, by partition."""

    def may_lose(self, partition: int) -> bool:
        """An order was given for it, or may have been."""
        return partition in self.is_forfeited or self.elections[partition] > 0


class Truths:
    """See the module. Raises BrokenPromiseError."""

    def __init__(self) -> None:
        self.topics: dict[str, KnownTopic] = {}
        self.acknowledged = 0
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

    def wrote(self, topic: KnownTopic, partition: int, offset: int, number: int) -> None:
        records = topic.records.setdefault(partition, {})
        if offset in records and not topic.may_lose(partition):
            raise BrokenPromiseError(f"{topic.name}-{partition} gave offset {offset} out twice")
        records[offset] = number
        self.acknowledged += 1

    @property
    def live(self) -> list[KnownTopic]:
        return [topic for topic in self.topics.values() if not topic.may_go]

    # ---- the end

    def check(self, members: "list[Member]") -> None:
        """When nothing is left to be done: every promise is kept, by every broker."""
        for member in members:
            self._check_topics(member)
        for topic in self.topics.values():
            if not topic.may_go:
                for partition, records in topic.records.items():
                    if not topic.may_lose(partition):
                        self._check_records(members, topic, partition, records)

    def _check_topics(self, member: "Member") -> None:
        state = member.parts.machine.state
        for topic in self.topics.values():
            found = state.topics.get(topic.name)
            if topic.is_gone and found is not None and found.topic_id == topic.topic_id:
                raise BrokenPromiseError(f"{member} still has {topic.name}, which was deleted")
            if topic.may_go:
                continue
            if found is None or found.topic_id != topic.topic_id:
                raise BrokenPromiseError(f"{member} does not know {topic.name}, which was created")
            if len(found.partitions) < topic.partitions:
                raise BrokenPromiseError(f"{topic.name} has lost partitions at {member}")

    def _check_records(
        self, members: "list[Member]", topic: KnownTopic, partition: int, records: dict[int, int]
    ) -> None:
        holders = 0
        for member in members:
            replica = member.parts.node.replica(topic.topic_id, partition)
            if replica is None:
                continue
            holders += 1
            log = replica.log
            kept = {e.base: e.number for e in read_log(log, log.log_start, log.end_offset)}
            lost = {o: n for o, n in records.items() if kept.get(o) != n}
            if lost:
                raise BrokenPromiseError(
                    f"{topic.name}-{partition} at {member} lacks {len(lost)} acknowledged "
                    f"records, the first at {min(lost)}; it ends at {log.end_offset}"
                )
        if records and not holders:
            raise BrokenPromiseError(f"nobody has {topic.name}-{partition} any more")


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
        (state.next_node, state.next_epoch, state.producer_id_next),
        tuple(sorted(state.features.items())),
    )


def _difference(one: tuple[Any, ...], other: tuple[Any, ...]) -> str:
    pairs = [f"{a} here and {b} there" for a, b in zip(one, other, strict=True) if a != b]
    return "; ".join(pairs)[:1000]
