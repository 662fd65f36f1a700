"""What members of classic groups and admins ask the group machine, and what it answers.

Plain values, no behaviour. Commands of offsets are in `offset_commands.py`, those of the consumer
protocol in `consumer_commands.py`. A command that is refused as a whole raises KafkaError, except
where the answer may come later: such answers carry their error.
"""

import dataclasses
from typing import NamedTuple

from dmq.errors import ErrorCode
from dmq.machines.machine import Command


class Client(NamedTuple):
    """Who sent a request: the client's id and the address that it came from."""

    client_id: str
    host: str


class Protocol(NamedTuple):
    """A protocol that a classic member speaks, and what it says in it."""

    name: str
    metadata: bytes


class JoinedMember(NamedTuple):
    """A member as the leader is told of it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Joined:
    """A member's place in a generation, or why it has none. Only a leader is told the members."""

    error: ErrorCode
    member_id: str
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class JoinGroup(Command[Joined]):
    """Become a member, or stay one in the next generation. The answer may come later.

    `needs_member_id`: a new member is given its id first and must ask again with it (version 4).
    `may_skip_assignment`: a leader can be told that the assignment stands (version 9).
    """

    group_id: str
    member_id: str
    instance_id: str | None
    client: Client
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[Protocol, ...]
    needs_member_id: bool = True
    may_skip_assignment: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class Synced:
    """A member's assignment, or why it has none."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclasses.dataclass(frozen=True, slots=True)
class SyncGroup(Command[Synced]):
    """Get one's assignment; the leader brings those of all. The answer may come later."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Heartbeat(Command[ErrorCode]):
    """A member is alive. The answer is NONE or REBALANCE_IN_PROGRESS.

    Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION.
    """

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None = None


class LeavingMember(NamedTuple):
    """Who leaves; a static member may be named by its instance id alone."""

    member_id: str
    instance_id: str | None = None


class LeftMember(NamedTuple):
    """How it went with one member."""

    member_id: str
    instance_id: str | None
    error: ErrorCode


@dataclasses.dataclass(frozen=True, slots=True)
class LeaveGroup(Command[list[LeftMember]]):
    """Members leave, each by itself."""

    group_id: str
    members: tuple[LeavingMember, ...]


class DescribedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class DescribedClassicGroup:
    """A classic group as it stands. `state` is Kafka's word for it."""

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[DescribedMember, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class DescribeClassicGroup(Command[DescribedClassicGroup]):
    """What a classic group is like. Raises GROUP_ID_NOT_FOUND."""

    group_id: str


class ListedGroup(NamedTuple):
    group_id: str
    protocol_type: str
    state: str
    group_type: str


@dataclasses.dataclass(frozen=True, slots=True)
class ListGroups(Command[list[ListedGroup]]):
    """All groups of this coordinator, filtered by state and type; empty filters let all pass."""

    states: tuple[str, ...] = ()
    types: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class DeleteGroup(Command[None]):
    """Forget a group without members, and its offsets.

    Raises GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
    """

    group_id: str
