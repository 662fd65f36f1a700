"""What the group machine reads of its broker: topics, configs of groups, limits.

Reading them is no input: what a command makes of them is in its records, so replicas need not see
the same. The broker implements `Surroundings` on its metadata.
"""

import dataclasses
from collections.abc import Iterable
from typing import NamedTuple, Protocol
from uuid import UUID

from dmq.config.broker import BrokerConfig
from dmq.config.group import GroupConfig

MINUTE_MS = 60_000


class TopicImage(NamedTuple):
    """A topic as assignors see it. `racks`: by partition, where its replicas are; may be empty."""

    name: str
    topic_id: UUID
    partition_count: int
    racks: tuple[frozenset[str], ...] = ()


class Surroundings(Protocol):
    """See the module."""

    def topic(self, name: str) -> TopicImage | None:
        """The topic of that name, as this broker knows it now."""
        ...

    def topic_by_id(self, topic_id: UUID) -> TopicImage | None:
        """The topic of that id."""
        ...

    def topic_names(self) -> Iterable[str]:
        """All topics, in a fixed order."""
        ...

    def topics_version(self) -> int:
        """Grows whenever a topic comes, goes or changes."""
        ...

    def group_config(self, group_id: str) -> GroupConfig:
        """The configs of a group, resolved."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """The broker's settings that bound groups."""

    classic_size_max: int
    consumer_size_max: int
    session_timeout_min_ms: int
    session_timeout_max_ms: int
    initial_rebalance_delay_ms: int
    offset_metadata_max: int
    groups_max: int
    offsets_max: int
    member_bytes_max: int
    offsets_retention_ms: int
    offsets_check_interval_ms: int
    assignors: tuple[str, ...]
    migration_policy: str
    protocols: tuple[str, ...]

    @classmethod
    def of(cls, config: BrokerConfig) -> "Limits":
        """The limits that a broker's settings make."""
        return cls(
            classic_size_max=config.group_max_size,
            consumer_size_max=config.group_consumer_max_size,
            session_timeout_min_ms=config.group_min_session_timeout_ms,
            session_timeout_max_ms=config.group_max_session_timeout_ms,
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            offset_metadata_max=config.offset_metadata_max_bytes,
            groups_max=config.group_coordinator_max_groups,
            offsets_max=config.group_max_offsets,
            member_bytes_max=config.group_member_metadata_max_bytes,
            offsets_retention_ms=config.offsets_retention_minutes * MINUTE_MS,
            offsets_check_interval_ms=config.offsets_retention_check_interval_ms,
            assignors=config.group_consumer_assignors,
            migration_policy=config.group_consumer_migration_policy.lower(),
            protocols=config.group_coordinator_rebalance_protocols,
        )

    @property
    def may_upgrade(self) -> bool:
        """Whether a classic group may become a consumer group by who joins it."""
        return self.migration_policy in ("bidirectional", "upgrade")

    @property
    def may_downgrade(self) -> bool:
        """Whether a consumer group may become a classic group by who leaves it."""
        return self.migration_policy in ("bidirectional", "downgrade")
