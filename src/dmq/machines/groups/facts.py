"""What one record of `__consumer_offsets` says, as plain values.

Each fact is keyed and stands for itself: the state is the last fact of each key, so that a log
compacted in any way says the same. `value` None: the record is a tombstone. The bytes are Kafka's;
a `Codec` makes them, because `wire` lies beside the machines and not below them.
"""

import dataclasses
from typing import NamedTuple, Protocol, TypeAlias
from uuid import UUID

from dmq.machines.machine import Record
from dmq.types import NIL_UUID

Partitions: TypeAlias = tuple[tuple[UUID, tuple[int, ...]], ...]
"""Partitions by topic id, both sorted."""

Held: TypeAlias = tuple[tuple[UUID, tuple[int, ...], tuple[int, ...]], ...]
"""Partitions that a member has, by topic id, and the epoch since which it has each; sorted."""

# --- offsets -------------------------------------------------------------------------------------


class OffsetKey(NamedTuple):
    """Whose offset, and where."""

    group_id: str
    topic: str
    partition: int


@dataclasses.dataclass(frozen=True, slots=True)
class CommittedOffset:
    """An offset that a group committed. `expire_ms` is set by clients before version 5 only."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_ms: int = 0
    expire_ms: int | None = None
    topic_id: UUID = NIL_UUID


class OffsetFact(NamedTuple):
    key: OffsetKey
    value: CommittedOffset | None


# --- classic groups ------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class ClassicMemberValue:
    """A member of a generation, with its subscription to the protocol that was chosen."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class ClassicGroupValue:
    """A generation of a classic group."""

    protocol_type: str | None
    generation: int
    protocol: str | None
    leader: str | None
    state_since_ms: int
    members: tuple[ClassicMemberValue, ...] = ()


class ClassicGroupFact(NamedTuple):
    group_id: str
    value: ClassicGroupValue | None


# --- consumer groups (KIP-848) -------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class ConsumerGroupValue:
    """The epoch of a group, and a hash of what its topics were like."""

    epoch: int
    metadata_hash: int = 0


class ConsumerGroupFact(NamedTuple):
    group_id: str
    value: ConsumerGroupValue | None


@dataclasses.dataclass(frozen=True, slots=True)
class ClassicSupport:
    """What a member of the classic protocol brought into a consumer group."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class ConsumerMemberValue:
    """Who a member is and what it wants. `classic` None: it speaks the consumer protocol."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]
    topic_regex: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic: ClassicSupport | None = None


class ConsumerMemberFact(NamedTuple):
    group_id: str
    member_id: str
    value: ConsumerMemberValue | None


class TargetEpochFact(NamedTuple):
    """The group epoch that the target assignment was made for, and when."""

    group_id: str
    value: tuple[int, int] | None


class TargetFact(NamedTuple):
    """What a member is to have."""

    group_id: str
    member_id: str
    value: Partitions | None


@dataclasses.dataclass(frozen=True, slots=True)
class CurrentAssignment:
    """What a member has, and what it was told to give up. `state` is Kafka's number of it."""

    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned: Held = ()
    pending_revocation: Held = ()


class CurrentFact(NamedTuple):
    group_id: str
    member_id: str
    value: CurrentAssignment | None


@dataclasses.dataclass(frozen=True, slots=True)
class ResolvedRegex:
    """The topics that a pattern matched, in a version of the metadata, at a time."""

    topics: tuple[str, ...]
    version: int
    resolved_ms: int


class RegexFact(NamedTuple):
    group_id: str
    regex: str
    value: ResolvedRegex | None


Fact: TypeAlias = (
    OffsetFact
    | ClassicGroupFact
    | ConsumerGroupFact
    | ConsumerMemberFact
    | TargetEpochFact
    | TargetFact
    | CurrentFact
    | RegexFact
)


class Codec(Protocol):
    """Facts as records and back."""

    def encode(self, fact: Fact) -> Record: ...

    def decode(self, record: Record) -> Fact | None:
        """What a record says; None if it is none of ours (share groups, streams groups).

        Raises DmqError for bytes that can't be read.
        """
        ...
