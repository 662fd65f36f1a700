"""What a cluster knows about topics, gathered with as few requests as there can be.

Owns the values that `dmq topic list` and `describe` show, and their JSON. Never prints. Sizes come
from DescribeLogDirs, which librdkafka does not speak: see `raw`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    ConfigSource,
    OffsetSpec,
    ResourceType,
    TopicDescription,
)

from dmq.cli.exits import CommandError, Exit
from dmq.cli.kafka_errors import asked, error_of, failure
from dmq.cli.raw import partition_sizes
from dmq.cli.session import REQUEST_TIMEOUT_S, Session

_SOURCES = {
    ConfigSource.DYNAMIC_TOPIC_CONFIG: "topic",
    ConfigSource.DYNAMIC_BROKER_CONFIG: "broker",
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG: "cluster",
    ConfigSource.STATIC_BROKER_CONFIG: "broker file",
    ConfigSource.DEFAULT_CONFIG: "default",
}


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition; `start`, `end` and `size_bytes` are None where nobody could say."""

    partition: int
    leader: int
    replicas: list[int]
    in_sync: list[int]
    start: int | None
    end: int | None
    size_bytes: int | None


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a topic and who set it."""

    name: str
    value: str | None
    source: str

    @property
    def differs(self) -> bool:
        """It is not the default."""
        return self.source != "default"


@dataclass(frozen=True, slots=True)
class Topic:
    """All that `describe` shows."""

    name: str
    topic_id: str
    is_internal: bool
    partitions: list[Partition]
    configs: list[Setting] = field(default_factory=list)

    @property
    def record_count(self) -> int | None:
        """End less start over all partitions: an upper bound where the log is compacted."""
        counts = [
            p.end - p.start for p in self.partitions if p.start is not None and p.end is not None
        ]
        return sum(counts) if len(counts) == len(self.partitions) else None

    @property
    def size_bytes(self) -> int | None:
        """Bytes on disk of the leaders' logs."""
        sizes = [p.size_bytes for p in self.partitions if p.size_bytes is not None]
        return sum(sizes) if len(sizes) == len(self.partitions) else None

    def as_json(self) -> dict[str, Any]:
        """The stable schema of `dmq topic describe --json`."""
        return {
            "topic": self.name,
            "topic_id": self.topic_id,
            "internal": self.is_internal,
            "record_count_max": self.record_count,
            "size_bytes": self.size_bytes,
            "partitions": [
                {
                    "partition": p.partition,
                    "leader": p.leader if p.leader >= 0 else None,
                    "replicas": p.replicas,
                    "in_sync_replicas": p.in_sync,
                    "log_start_offset": p.start,
                    "log_end_offset": p.end,
                    "size_bytes": p.size_bytes,
                }
                for p in self.partitions
            ],
            "configs": {
                c.name: {"value": c.value, "source": c.source, "differs": c.differs}
                for c in self.configs
            },
        }


def overview(session: Session, admin: AdminClient, *, internal: bool) -> list[dict[str, Any]]:
    """Every topic with its counts: one Metadata request for all."""
    metadata = asked(
        session, "Listing topics", lambda: admin.list_topics(timeout=REQUEST_TIMEOUT_S)
    )
    topics = []
    for name, topic in sorted(metadata.topics.items()):
        if name.startswith("__") and not internal:
            continue
        partitions = list(topic.partitions.values())
        topics.append(
            {
                "topic": name,
                "partitions": len(partitions),
                "replication_factor": max((len(p.replicas) for p in partitions), default=0),
                "leaderless": sum(p.leader < 0 for p in partitions),
                "under_replicated": sum(len(p.isrs) < len(p.replicas) for p in partitions),
            }
        )
    return topics


def require(session: Session, admin: AdminClient, names: Sequence[str]) -> list[TopicDescription]:
    """The topics' descriptions; the first that is missing ends the command."""
    found, missing = lookup(session, admin, names)
    if missing:
        raise CommandError(
            f"There is no topic {missing[0]!r}",
            hint="See `dmq topic list`, or create it with `dmq topic create`.",
            code=Exit.NOT_FOUND,
        )
    return found


def lookup(
    session: Session, admin: AdminClient, names: Sequence[str]
) -> tuple[list[TopicDescription], list[str]]:
    """Descriptions of those that exist, names of those that do not. Creates nothing."""
    found, missing = [], []
    futures = admin.describe_topics(TopicCollection(list(names)), request_timeout=REQUEST_TIMEOUT_S)
    for name, future in futures.items():
        try:
            found.append(future.result())
        except KafkaException as exception:
            error = error_of(exception)
            if error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise failure(session, f"Describing {name!r}", error) from exception
            missing.append(name)
    return found, missing


def describe_topics(
    session: Session, admin: AdminClient, names: Sequence[str]
) -> tuple[list[Topic], list[str]]:
    """Everything about the topics that exist, and the names of those that do not."""
    found, missing = lookup(session, admin, names)
    starts = _offsets(admin, found, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
    ends = _offsets(admin, found, OffsetSpec.latest())  # type: ignore[no-untyped-call]
    sizes = _sizes(session, found)
    configs = _configs(session, admin, [d.name for d in found])
    topics = [
        Topic(
            d.name,
            str(d.topic_id),
            d.is_internal,
            [_partition(d.name, p, starts, ends, sizes) for p in d.partitions],
            configs[d.name],
        )
        for d in found
    ]
    return topics, missing


def _partition(
    name: str,
    info: Any,
    starts: Mapping[tuple[str, int], int],
    ends: Mapping[tuple[str, int], int],
    sizes: Mapping[tuple[int, str, int], int],
) -> Partition:
    where = (name, info.id)
    leader = _leader(info)
    return Partition(
        partition=info.id,
        leader=leader,
        replicas=[node.id for node in info.replicas],
        in_sync=[node.id for node in info.isr],
        start=starts.get(where),
        end=ends.get(where),
        size_bytes=sizes.get((leader, *where)),
    )


def _leader(info: Any) -> int:
    """The leader's number; -1 without one, for which librdkafka gives nothing at all."""
    return -1 if info.leader is None else int(info.leader.id)


def _sizes(session: Session, topics: Sequence[TopicDescription]) -> dict[tuple[int, str, int], int]:
    if not session.is_plain:
        return {}
    leaders = {
        p.leader.id: (p.leader.id, p.leader.host, p.leader.port)
        for d in topics
        for p in d.partitions
        if _leader(p) >= 0
    }
    return partition_sizes(leaders.values(), {d.name: len(d.partitions) for d in topics})


def _offsets(
    admin: AdminClient, topics: Sequence[TopicDescription], spec: OffsetSpec
) -> dict[tuple[str, int], int]:
    """Offsets of the partitions that have a leader to ask; the others are left out."""
    wanted = {
        TopicPartition(d.name, p.id): spec for d in topics for p in d.partitions if _leader(p) >= 0
    }
    if not wanted:
        return {}
    offsets = {}
    for where, future in admin.list_offsets(wanted, request_timeout=REQUEST_TIMEOUT_S).items():
        try:
            offsets[(where.topic, where.partition)] = future.result().offset
        except KafkaException:
            continue
    return offsets


def require_settings(
    session: Session, admin: AdminClient, topic: str, names: Sequence[str]
) -> None:
    """A name that is no setting ends the command: a broker deletes what nobody set without a word."""
    known = {setting.name for setting in _configs(session, admin, [topic])[topic]}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise CommandError(
            f"Altering {topic!r} failed: there is no topic setting {unknown[0]!r}",
            hint="See `dmq config list` for settings and their values.",
        )


def _configs(
    session: Session, admin: AdminClient, names: Sequence[str]
) -> dict[str, list[Setting]]:
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    if not resources:
        return {}
    futures = admin.describe_configs(resources, request_timeout=REQUEST_TIMEOUT_S)
    configs = {}
    for resource, future in futures.items():
        entries = asked(session, f"Reading the settings of {resource.name!r}", future.result)
        configs[resource.name] = [
            Setting(e.name, None if e.is_sensitive else e.value, _source(e.source))
            for e in sorted(entries.values(), key=lambda e: e.name)
        ]
    return configs


def _source(source: Any) -> str:
    # librdkafka gives the number, not the enum.
    known = {kind.value: word for kind, word in _SOURCES.items()}
    return known.get(getattr(source, "value", source), "unknown")
