"""A group of the consumer protocol (KIP-848), as the log says it is. Durable, changed by facts only.

    epoch          bumped whenever members, their subscriptions or their topics change
    target         what each member is to have, made for one epoch of the group
    current        what each member has; it follows the target, giving up before it takes

    Empty          no members
    Assigning      the target is of an older epoch
    Reconciling    some member does not have its target yet
    Stable         all have
    Dead           what a group that does not exist is called

A partition belongs to the member that has it or has not given it up yet (`owner`), and goes to
another only after that. The rules are in `consumer_heartbeats.py` and its neighbours.
"""

import enum
from typing import TypeVar
from uuid import UUID

from dmq.errors import ErrorCode, KafkaError
from dmq.machines.groups.facts import (
    ConsumerGroupFact,
    ConsumerMemberFact,
    ConsumerMemberValue,
    CurrentAssignment,
    CurrentFact,
    Partitions,
    RegexFact,
    ResolvedRegex,
    TargetEpochFact,
    TargetFact,
)

T = TypeVar("T")

ConsumerFact = (
    ConsumerGroupFact | ConsumerMemberFact | TargetEpochFact | TargetFact | CurrentFact | RegexFact
)


class ConsumerState(enum.Enum):
    """Kafka's words for them."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class MemberState(enum.IntEnum):
    """How far a member is on its way to its target; Kafka's numbers, as they are recorded."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It must give partitions up first."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that others have not given up."""


FIRST_EPOCH = 1
"""Of a group before anything was recorded of it; as Kafka counts."""

AWAY_EPOCH = -2
"""Of a static member that left for a while: its partitions are kept for it."""

NOTHING = CurrentAssignment(0, 0, MemberState.STABLE)
"""What a member has before its first record."""


class ConsumerGroup:
    """See the module."""

    __slots__ = (
        "_owners",
        "_wishes",
        "currents",
        "epoch",
        "group_id",
        "members",
        "metadata_hash",
        "regexes",
        "static",
        "target_epoch",
        "target_ms",
        "targets",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch: int | None = None
        self.metadata_hash = 0
        self.members: dict[str, ConsumerMemberValue] = {}
        self.static: dict[str, str] = {}
        """Member ids by instance id."""
        self.target_epoch: int | None = None
        self.target_ms = 0
        self.targets: dict[str, Partitions] = {}
        self.currents: dict[str, CurrentAssignment] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        self._owners: dict[tuple[UUID, int], str] = {}
        self._wishes: dict[tuple[tuple[str, ...], str | None], int] = {}
        """What members want to read, by name and by pattern, and how many of them: mostly all want the
        same, and there may be thousands."""

    # --- changing ----------------------------------------------------------------------------

    def apply(self, fact: ConsumerFact) -> None:
        """Take in what a record says."""
        if isinstance(fact, ConsumerGroupFact):
            self.epoch = None if fact.value is None else fact.value.epoch
            self.metadata_hash = 0 if fact.value is None else fact.value.metadata_hash
        elif isinstance(fact, ConsumerMemberFact):
            self._apply_member(fact)
        elif isinstance(fact, TargetEpochFact):
            self.target_epoch, self.target_ms = fact.value or (None, 0)
        elif isinstance(fact, TargetFact):
            _upsert(self.targets, fact.member_id, fact.value)
        elif isinstance(fact, CurrentFact):
            self._apply_current(fact)
        else:
            _upsert(self.regexes, fact.regex, fact.value)

    def _apply_member(self, fact: ConsumerMemberFact) -> None:
        old = self.members.get(fact.member_id)
        instance_id = None if old is None else old.instance_id
        if instance_id is not None and self.static.get(instance_id) == fact.member_id:
            del self.static[instance_id]
        if old is not None:
            self._wish(old, -1)
        if fact.value is not None:
            self._wish(fact.value, 1)
        _upsert(self.members, fact.member_id, fact.value)
        if fact.value is not None and fact.value.instance_id is not None:
            self.static[fact.value.instance_id] = fact.member_id

    def _wish(self, member: ConsumerMemberValue, more: int) -> None:
        wish = member.topic_names, member.topic_regex
        count = self._wishes.get(wish, 0) + more
        if count:
            self._wishes[wish] = count
        else:
            del self._wishes[wish]

    def _apply_current(self, fact: CurrentFact) -> None:
        for partition in _owned(self.currents.get(fact.member_id)):
            if self._owners.get(partition) == fact.member_id:
                del self._owners[partition]
        _upsert(self.currents, fact.member_id, fact.value)
        for partition in _owned(fact.value):
            self._owners[partition] = fact.member_id

    def copy(self) -> "ConsumerGroup":
        """Another one that says the same, to be changed by itself."""
        other = ConsumerGroup(self.group_id)
        for slot in ConsumerGroup.__slots__:
            value = getattr(self, slot)
            setattr(other, slot, dict(value) if isinstance(value, dict) else value)
        return other

    # --- looking -----------------------------------------------------------------------------

    @property
    def is_gone(self) -> bool:
        """Whether no record of it is left."""
        parts = (self.members, self.targets, self.currents, self.regexes)
        return self.epoch is None and self.target_epoch is None and not any(parts)

    @property
    def group_epoch(self) -> int:
        return FIRST_EPOCH if self.epoch is None else self.epoch

    @property
    def assignment_epoch(self) -> int:
        return FIRST_EPOCH if self.target_epoch is None else self.target_epoch

    @property
    def state(self) -> ConsumerState:
        if not self.members:
            return ConsumerState.EMPTY
        if self.group_epoch > self.assignment_epoch:
            return ConsumerState.ASSIGNING
        for member_id in self.members:
            current = self.current(member_id)
            if current.state != MemberState.STABLE or current.member_epoch != self.assignment_epoch:
                return ConsumerState.RECONCILING
        return ConsumerState.STABLE

    def current(self, member_id: str) -> CurrentAssignment:
        """What a member has."""
        return self.currents.get(member_id, NOTHING)

    def owner(self, topic_id: UUID, partition: int) -> str | None:
        """The member that has a partition, or has not given it up yet."""
        return self._owners.get((topic_id, partition))

    def waits_for_others(self, member_id: str) -> bool:
        """Whether others have what a member is to have."""
        return any(
            self._owners.get((topic_id, index), member_id) != member_id
            for topic_id, indexes in self.targets.get(member_id, ())
            for index in indexes
        )

    def find(self, member_id: str) -> ConsumerMemberValue:
        """A member. Raises UNKNOWN_MEMBER_ID."""
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {member_id} is not a member of group {self.group_id}.",
            )
        return member

    def topics_of(self, member: ConsumerMemberValue) -> tuple[str, ...]:
        """The topics that a member reads: by name, and by its pattern as it was last resolved."""
        return self._topics(member.topic_names, member.topic_regex)

    def _topics(self, names: tuple[str, ...], regex: str | None) -> tuple[str, ...]:
        resolved = self.regexes.get(regex or "")
        return names if resolved is None else tuple(dict.fromkeys((*names, *resolved.topics)))

    @property
    def patterns(self) -> dict[str, None]:
        """Every pattern that some member reads by."""
        return dict.fromkeys(regex for _, regex in self._wishes if regex is not None)

    @property
    def subscribed(self) -> dict[str, None]:
        """Every topic that some member reads."""
        found: dict[str, None] = {}
        for names, regex in self._wishes:
            found.update(dict.fromkeys(self._topics(names, regex)))
        return found

    def is_subscribed_to(self, topic: str) -> bool:
        return any(topic in self._topics(names, regex) for names, regex in self._wishes)


def _upsert(table: dict[str, T], key: str, value: T | None) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value


def _owned(current: CurrentAssignment | None) -> list[tuple[UUID, int]]:
    if current is None:
        return []
    held = (*current.assigned, *current.pending_revocation)
    return [(topic_id, index) for topic_id, indexes, _ in held for index in indexes]
