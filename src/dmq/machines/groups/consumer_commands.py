"""What members of the consumer protocol (KIP-848) ask, and what they are answered. Plain values."""

import dataclasses
from typing import NamedTuple

from dmq.machines.groups.commands import Client
from dmq.machines.groups.facts import Partitions
from dmq.machines.machine import Command

LEAVE_EPOCH = -1
AWAY_EPOCH = -2


@dataclasses.dataclass(frozen=True, slots=True)
class ConsumerBeat:
    """A member's epoch and, if it changed or was asked for, its assignment."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: Partitions | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class ConsumerHeartbeat(Command[ConsumerBeat]):
    """A member joins (epoch 0), is alive, or leaves (-1; static members for a while: -2).

    None: the same as last time. `needs_member_id`: the client makes its own id (version 1).
    Raises INVALID_REQUEST, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, UNRELEASED_INSTANCE_ID,
    FENCED_INSTANCE_ID, UNSUPPORTED_ASSIGNOR, GROUP_MAX_SIZE_REACHED, GROUP_ID_NOT_FOUND,
    INVALID_REGULAR_EXPRESSION.
    """

    group_id: str
    member_id: str
    member_epoch: int
    client: Client
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topic_names: tuple[str, ...] | None = None
    topic_regex: str | None = None
    server_assignor: str | None = None
    owned: Partitions | None = None
    needs_member_id: bool = True


class DescribedConsumer(NamedTuple):
    """A member; `is_classic`: it speaks the classic protocol. `assignment` is what it has, with what
    it has not given up yet."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]
    topic_regex: str | None
    assignment: Partitions
    target: Partitions
    is_classic: bool


@dataclasses.dataclass(frozen=True, slots=True)
class DescribedConsumerGroup:
    """A consumer group as it stands. `state` is Kafka's word for it."""

    group_id: str
    state: str
    epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[DescribedConsumer, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class DescribeConsumerGroup(Command[DescribedConsumerGroup]):
    """What a consumer group is like. Raises GROUP_ID_NOT_FOUND, also for a classic group."""

    group_id: str
