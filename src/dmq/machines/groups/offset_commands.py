"""What the group machine can be asked about offsets, and what it answers. Plain values.

Topics that don't exist are the caller's to refuse: the machine records what it is told, with the
topic's id where the caller knows it.
"""

import dataclasses
from typing import NamedTuple
from uuid import UUID

from dmq.errors import ErrorCode
from dmq.machines.machine import Command
from dmq.types import NIL_UUID


class OffsetToCommit(NamedTuple):
    """One offset to commit."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    topic_id: UUID = NIL_UUID


class OffsetResult(NamedTuple):
    """How it went with one partition."""

    topic: str
    partition: int
    error: ErrorCode


@dataclasses.dataclass(frozen=True, slots=True)
class CommitOffsets(Command[list[OffsetResult]]):
    """Commit offsets, each by itself.

    `generation` is the member's epoch in a consumer group; negative with no member id: a simple
    consumer. `retention_ms` -1: as the broker says (older clients can ask for more or less).
    `knows_epochs`: the client understands STALE_MEMBER_EPOCH and GROUP_ID_NOT_FOUND (version 9).
    Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, STALE_MEMBER_EPOCH,
    REBALANCE_IN_PROGRESS, GROUP_ID_NOT_FOUND, UNSUPPORTED_VERSION.
    """

    group_id: str
    offsets: tuple[OffsetToCommit, ...]
    member_id: str = ""
    generation: int = -1
    instance_id: str | None = None
    retention_ms: int = -1
    knows_epochs: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class CommitOffsetsInTransaction(Command[list[OffsetResult]]):
    """Commit offsets that count when the producer's transaction commits.

    Whether the producer may is the transaction coordinator's to say, before. Raises as
    CommitOffsets.
    """

    group_id: str
    producer_id: int
    producer_epoch: int
    offsets: tuple[OffsetToCommit, ...]
    member_id: str = ""
    generation: int = -1
    instance_id: str | None = None


class FetchedOffset(NamedTuple):
    """A committed offset; -1 if there is none, or if it is not stable (then with an error)."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    error: ErrorCode


@dataclasses.dataclass(frozen=True, slots=True)
class FetchOffsets(Command[list[FetchedOffset]]):
    """Offsets that a group committed; all of them if no partitions are named.

    A group that is not there has no offsets: that is no error. `require_stable`: partitions with
    offsets in an open transaction answer UNSTABLE_OFFSET_COMMIT. `member_id`: checked against a
    consumer group. Raises UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH.
    """

    group_id: str
    partitions: tuple[tuple[str, int], ...] | None = None
    require_stable: bool = False
    member_id: str | None = None
    member_epoch: int = -1


@dataclasses.dataclass(frozen=True, slots=True)
class DeleteOffsets(Command[list[OffsetResult]]):
    """Forget offsets of topics that the group does not read.

    Raises GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
    """

    group_id: str
    partitions: tuple[tuple[str, int], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class ForgetTopics(Command[int]):
    """Topics were deleted: so are their offsets, of all groups.

    The answer is how many were forgotten; to be given again until that is none.
    """

    topics: tuple[tuple[str, UUID], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class SweepTopics(Command[int]):
    """Forget the offsets of topics that are others of the same name now. To be given again until the
    answer is 0.

    For the start of a leadership, when deletions may have been missed; to be given only when the
    broker's metadata is known to be at least as new as that start.
    """
