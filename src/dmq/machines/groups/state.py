"""What the log says: the last fact of every key. Durable, changed by `apply` only.

Every replica has it. What it says of a key depends on no other key, so that a log compacted in any
way gives the same state. The leader's knowledge beyond it is in `context.py`.
"""

from collections.abc import Iterator

from dmq.machines.groups.consumer_group import ConsumerGroup
from dmq.machines.groups.facts import ClassicGroupFact, ClassicGroupValue, Fact, OffsetFact
from dmq.machines.groups.offsets import Offsets


class GroupsState:
    """See the module."""

    __slots__ = ("classic", "consumer", "offsets")

    def __init__(self) -> None:
        self.classic: dict[str, ClassicGroupValue] = {}
        self.consumer: dict[str, ConsumerGroup] = {}
        self.offsets = Offsets()

    def apply(self, fact: Fact, producer_id: int = -1) -> None:
        """A record of the log, written by a transactional producer or by nobody."""
        if isinstance(fact, OffsetFact):
            if fact.value is None:
                self.offsets.remove(fact.key)
            else:
                self.offsets.put(fact.key, fact.value, producer_id)
        elif isinstance(fact, ClassicGroupFact):
            if fact.value is None:
                self.classic.pop(fact.group_id, None)
            else:
                self.classic[fact.group_id] = fact.value
        else:
            group = self.consumer.get(fact.group_id)
            if group is None:
                group = self.consumer[fact.group_id] = ConsumerGroup(fact.group_id)
            group.apply(fact)
            if group.is_gone:
                del self.consumer[fact.group_id]

    def group_ids(self) -> Iterator[str]:
        """Every group that the log knows."""
        yield from self.classic
        yield from (name for name in self.consumer if name not in self.classic)
        for name in self.offsets.group_ids():
            if name not in self.classic and name not in self.consumer:
                yield name

    def is_full(self, groups_max: int) -> bool:
        """Whether one more group is one too many; those that are known by their offsets alone are
        counted apart from the others."""
        return (
            len(self.classic) + len(self.consumer) >= groups_max
            or self.offsets.group_count >= groups_max
        )

    def has_group(self, group_id: str) -> bool:
        return (
            group_id in self.classic
            or group_id in self.consumer
            or self.offsets.has_group(group_id)
        )
