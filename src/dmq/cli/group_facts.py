"""What groups look like: asked of a cluster, kept as plain values, with their JSON.

Owns the questions (librdkafka's; over plain connections also ListGroups itself, which knows groups,
states and protocols that librdkafka leaves out) and the putting together of members, committed
offsets and the ends of the logs. Never prints and changes nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from dmq.cli.exits import CommandError, not_found
from dmq.cli.group_wire import LIST_GROUPS, CoordinatorWire
from dmq.cli.kafka_errors import asked, error_of, failure
from dmq.cli.session import REQUEST_TIMEOUT_S, Session

Where = tuple[str, int]

_STATES = {
    ConsumerGroupState.PREPARING_REBALANCING: "PreparingRebalance",
    ConsumerGroupState.COMPLETING_REBALANCING: "CompletingRebalance",
    ConsumerGroupState.STABLE: "Stable",
    ConsumerGroupState.DEAD: "Dead",
    ConsumerGroupState.EMPTY: "Empty",
}
_TYPES = {ConsumerGroupType.CLASSIC: "Classic", ConsumerGroupType.CONSUMER: "Consumer"}
_INACTIVE = ("Empty", "Dead")


@dataclass(frozen=True, slots=True)
class Listed:
    """A group in a list. None is what the cluster, or librdkafka, does not tell."""

    group: str
    state: str | None
    type: str | None
    protocol: str | None
    """What the members speak among themselves: `consumer`, `connect`; empty without members ever."""
    coordinator: int | None

    def as_json(self) -> dict[str, Any]:
        """The stable schema of `dmq group list --json`."""
        return {
            "group": self.group,
            "state": self.state,
            "type": self.type,
            "protocol": self.protocol,
            "coordinator": self.coordinator,
        }


@dataclass(frozen=True, slots=True)
class Member:
    """A member and what it reads."""

    member: str
    client: str
    host: str
    instance: str | None
    partitions: list[Where]
    target: list[Where] | None
    """What it is to read once the group has settled; None in the classic protocol."""

    def as_json(self) -> dict[str, Any]:
        """Part of the stable schema of `dmq group describe --json`."""
        return {
            "member": self.member,
            "client_id": self.client,
            "host": self.host,
            "instance": self.instance,
            "partitions": _partitions_json(self.partitions),
            "target": None if self.target is None else _partitions_json(self.target),
        }


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the group is in one partition. None is what is not there or not known."""

    topic: str
    partition: int
    committed: int | None
    start: int | None
    end: int | None
    member: Member | None
    metadata: str | None = None

    @property
    def lag(self) -> int | None:
        """Offsets between what is committed and the log's end."""
        if self.committed is None or self.end is None:
            return None
        return max(0, self.end - self.committed)

    def as_json(self) -> dict[str, Any]:
        """Part of the stable schema of `dmq group describe --json`."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "committed_offset": self.committed,
            "log_start_offset": self.start,
            "log_end_offset": self.end,
            "lag": self.lag,
            "member": self.member.member if self.member else None,
            "metadata": self.metadata or None,
        }


@dataclass(frozen=True, slots=True)
class Group:
    """All that `describe` shows."""

    group: str
    state: str
    type: str | None
    assignor: str
    coordinator: tuple[int, str, int] | None
    members: list[Member]
    progress: list[Progress]

    @property
    def is_active(self) -> bool:
        """Members are there, so offsets are theirs to commit."""
        return bool(self.members) or self.state not in _INACTIVE

    @property
    def lag(self) -> int | None:
        """Over all partitions with a committed offset; None if there is none."""
        lags = [each.lag for each in self.progress if each.lag is not None]
        return sum(lags) if lags else None

    def as_json(self) -> dict[str, Any]:
        """The stable schema of `dmq group describe --json`."""
        at = self.coordinator
        return {
            "group": self.group,
            "state": self.state,
            "type": self.type,
            "assignor": self.assignor or None,
            "coordinator": at and {"broker": at[0], "host": at[1], "port": at[2]},
            "members": [member.as_json() for member in self.members],
            "partitions": [each.as_json() for each in self.progress],
            "lag": self.lag,
        }


def _partitions_json(partitions: Iterable[Where]) -> list[dict[str, Any]]:
    return [{"topic": topic, "partition": partition} for topic, partition in partitions]


# --- listing -------------------------------------------------------------------------------------


def list_groups(session: Session) -> tuple[list[Listed], list[str]]:
    """Every group, and a sentence for each broker that told nothing."""
    groups, problems = _by_wire(session) if session.is_plain else _by_librdkafka(session)
    return sorted(groups, key=lambda each: each.group), problems


def _by_wire(session: Session) -> tuple[list[Listed], list[str]]:
    from dmq.wire.messages.k16_list_groups import ListGroupsRequest

    session.reach()
    with CoordinatorWire(session) as wire:
        answers, problems = wire.ask_all(LIST_GROUPS, ListGroupsRequest())
    groups = [
        Listed(
            each.group_id,
            each.group_state or None,
            each.group_type.capitalize() or None,
            each.protocol_type,
            node.id,
        )
        for node, response in answers
        for each in response.groups
    ]
    return groups, problems


def _by_librdkafka(session: Session) -> tuple[list[Listed], list[str]]:
    admin = session.admin()  # A client that nobody holds ends, and its questions with it.
    future = admin.list_consumer_groups(request_timeout=REQUEST_TIMEOUT_S)
    result = asked(session, "Listing groups", future.result)
    groups = [
        Listed(
            each.group_id,
            _STATES.get(each.state),
            _TYPES.get(each.type),
            "" if each.is_simple_consumer_group else "consumer",
            None,
        )
        for each in result.valid
    ]
    return groups, [str(error_of(error).str()) for error in result.errors]


# --- describing ----------------------------------------------------------------------------------


def describe(session: Session, admin: AdminClient, name: str) -> Group:
    """Everything about a group. Raises CommandError if there is none."""
    group = find(session, admin, name)
    if group is None:
        raise no_group(name)
    return group


def no_group(name: str) -> CommandError:
    """A group that nobody knows."""
    return not_found(f"There is no group {name!r}", "See `dmq group list`.")


def find(session: Session, admin: AdminClient, name: str) -> Group | None:
    """Everything about a group, or None."""
    described = _described(session, admin, name)
    offsets = committed(session, admin, name)
    if described is None and not offsets:
        return None
    members = [] if described is None else sorted(map(_member, described.members), key=_by_client)
    owners = {where: member for member in members for where in member.partitions}
    wanted = sorted({*offsets, *owners})
    limits = Limits.of(session, admin, wanted)
    progress = [
        Progress(
            *where,
            offsets[where].offset if where in offsets else None,
            limits.starts.get(where),
            limits.ends.get(where),
            owners.get(where),
            offsets[where].metadata if where in offsets else None,
        )
        for where in wanted
    ]
    if described is None:
        return Group(name, "Empty", None, "", None, [], progress)
    at = described.coordinator
    return Group(
        name,
        _STATES.get(described.state) or _listed_state(session, name) or "Unknown",
        _TYPES.get(described.type),
        described.partition_assignor or "",
        None if at is None else (at.id, at.host, at.port),
        members,
        progress,
    )


def _described(session: Session, admin: AdminClient, name: str) -> Any | None:
    """librdkafka's description; None of a group that does not exist."""
    futures = admin.describe_consumer_groups([name], request_timeout=REQUEST_TIMEOUT_S)
    try:
        described = futures[name].result()
    except KafkaException as exception:
        if error_of(exception).code() == KafkaError.GROUP_ID_NOT_FOUND:
            return None
        raise failure(session, f"Describing group {name!r}", exception) from exception
    # Before KIP-1043 a group that does not exist was described as a dead one.
    return None if described.state == ConsumerGroupState.DEAD else described


def _listed_state(session: Session, name: str) -> str | None:
    """The state by its own name where librdkafka knows none: some of the new protocol's."""
    if not session.is_plain:
        return None
    return next((each.state for each in list_groups(session)[0] if each.group == name), None)


def _member(member: Any) -> Member:
    target = getattr(member, "target_assignment", None)
    return Member(
        member.member_id,
        member.client_id,
        member.host.removeprefix("/"),
        member.group_instance_id,
        _pairs(member.assignment),
        None if target is None else _pairs(target),
    )


def _by_client(member: Member) -> tuple[str, str]:
    return member.client, member.member


def _pairs(assignment: Any) -> list[Where]:
    return sorted((each.topic, each.partition) for each in assignment.topic_partitions)


# --- offsets -------------------------------------------------------------------------------------


def committed(session: Session, admin: AdminClient, name: str) -> dict[Where, TopicPartition]:
    """What the group has committed, with librdkafka's details."""
    request = [ConsumerGroupTopicPartitions(name)]
    future = admin.list_consumer_group_offsets(request, request_timeout=REQUEST_TIMEOUT_S)[name]
    try:
        answer = future.result()
    except KafkaException as exception:
        if error_of(exception).code() == KafkaError.GROUP_ID_NOT_FOUND:
            return {}
        raise failure(session, f"Reading the offsets of group {name!r}", exception) from exception
    return {
        (each.topic, each.partition): each
        for each in answer.topic_partitions or []
        if each.error is None and each.offset >= 0
    }


@dataclass(frozen=True, slots=True)
class Limits:
    """Where logs begin and end; what nobody told is left out."""

    starts: Mapping[Where, int]
    ends: Mapping[Where, int]

    @classmethod
    def of(cls, session: Session, admin: AdminClient, wanted: Iterable[Where]) -> "Limits":
        """Of those of the partitions that have a leader."""
        led = with_leader(session, admin, wanted)
        return cls(
            offsets_at(admin, led, OffsetSpec.earliest()),  # type: ignore[no-untyped-call]
            offsets_at(admin, led, OffsetSpec.latest()),  # type: ignore[no-untyped-call]
        )


def partition_counts(session: Session, admin: AdminClient) -> dict[str, int]:
    """Every topic with its number of partitions."""
    metadata = asked(
        session, "Listing topics", lambda: admin.list_topics(timeout=REQUEST_TIMEOUT_S)
    )
    return {name: len(topic.partitions) for name, topic in metadata.topics.items()}


def with_leader(session: Session, admin: AdminClient, wanted: Iterable[Where]) -> list[Where]:
    """Those that can be asked: librdkafka would wait its whole timeout for the others."""
    metadata = asked(
        session, "Listing topics", lambda: admin.list_topics(timeout=REQUEST_TIMEOUT_S)
    )
    led = {
        (name, partition.id)
        for name, topic in metadata.topics.items()
        for partition in topic.partitions.values()
        if partition.leader >= 0
    }
    return [where for where in wanted if where in led]


def offsets_at(admin: AdminClient, wanted: Iterable[Where], spec: OffsetSpec) -> dict[Where, int]:
    """Offsets of partitions at the beginning, the end or a moment; -1: nothing so late."""
    asked_for = {TopicPartition(*where): spec for where in wanted}
    if not asked_for:
        return {}
    offsets = {}
    for where, future in admin.list_offsets(asked_for, request_timeout=REQUEST_TIMEOUT_S).items():
        try:
            offsets[(where.topic, where.partition)] = future.result().offset
        except KafkaException:  # Unknown: the caller shows it so, or refuses.
            continue
    return offsets
