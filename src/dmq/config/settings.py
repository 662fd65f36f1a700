"""Settings: a broker's static settings with the dynamic ones laid over them.

Levels, strongest first: per-broker dynamic, cluster-wide dynamic, static, default. Made by the
broker whenever a dynamic config changes; hands out `TopicConfig`s and `GroupConfig`s. `describe.py`
reads the levels.
"""

import dataclasses
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from dmq.config.broker import BROKER, BrokerConfig
from dmq.config.group import GROUP, GroupConfig
from dmq.config.topic import TOPIC, TopicConfig, parse_topic

_COMPUTED = {
    "log.retention.ms": "retention_ms",
    "log.roll.ms": "roll_ms",
    "log.roll.jitter.ms": "roll_jitter_ms",
}
"""Broker settings that are computed from several."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """What holds on this broker now."""

    static: BrokerConfig
    cluster: Mapping[str, str] = dataclasses.field(default_factory=dict)
    node: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @cached_property
    def effective(self) -> BrokerConfig:
        """The broker's settings with all levels counted in."""
        return self.static.with_dynamic(self.cluster, self.node)

    @cached_property
    def topic_defaults(self) -> TopicConfig:
        """The config of a topic that sets nothing itself."""
        values: dict[str, Any] = {
            definition.field: broker_value(self.effective, definition.synonym)
            for definition in TOPIC.values()
            if definition.synonym is not None
        }
        return TopicConfig(**values)

    def topic(self, overrides: Mapping[str, str], *, internal: bool = False) -> TopicConfig:
        """The config of a topic that sets `overrides`. Internal topics are always sync."""
        values = parse_topic(overrides)
        if internal:
            values["durability"] = "sync"
        return dataclasses.replace(self.topic_defaults, **values) if values else self.topic_defaults

    def group(self, overrides: Mapping[str, str]) -> GroupConfig:
        """The config of a group that sets `overrides`."""
        values: dict[str, Any] = {
            definition.field: broker_value(self.effective, definition.synonym)
            for definition in GROUP.values()
            if definition.synonym is not None
        }
        values |= {GROUP[name].field: GROUP[name].parse(text) for name, text in overrides.items()}
        return GroupConfig(**values)


def broker_value(config: BrokerConfig, name: str) -> Any:
    """The value of a broker setting as topics and groups inherit it."""
    return getattr(config, _COMPUTED.get(name) or BROKER[name].field)
