"""What DescribeConfigs answers: every config of a resource with value, source and synonyms.

The order of sources is Kafka's: the resource's own value, then per-broker, cluster-wide, static and
default values of the broker setting it falls back on. Pure; called by the doors' admin handlers and
by `dmq topic describe`.
"""

import dataclasses
from collections.abc import Iterable, Mapping

from dmq.config.broker import BROKER
from dmq.config.definitions import ConfigDef, ConfigSource, ConfigType, Scope
from dmq.config.group import CLIENT_METRICS, GROUP
from dmq.config.settings import Settings
from dmq.config.topic import TOPIC


@dataclasses.dataclass(frozen=True, slots=True)
class Synonym:
    """A place where a value could come from, and the value that it has there."""

    name: str
    value: str | None
    source: ConfigSource


@dataclasses.dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One config as a client is told it."""

    name: str
    value: str | None
    source: ConfigSource
    type: ConfigType
    is_sensitive: bool
    read_only: bool
    synonyms: tuple[Synonym, ...]
    documentation: str

    @property
    def is_default(self) -> bool:
        return self.source is ConfigSource.DEFAULT


def describe_topic(overrides: Mapping[str, str], settings: Settings) -> list[ConfigEntry]:
    """Every config of a topic that sets `overrides`."""
    config = settings.topic(overrides)
    entries = []
    for name, definition in _listed(TOPIC, overrides):
        synonyms = broker_synonyms(definition.synonym, settings) if definition.synonym else []
        if name in overrides:
            own = Synonym(name, definition.canonical(overrides[name]), ConfigSource.DYNAMIC_TOPIC)
            synonyms.insert(0, own)
        value = definition.text(getattr(config, definition.field))
        entries.append(_entry(definition, value, synonyms, read_only=False))
    return entries


def describe_broker(settings: Settings) -> list[ConfigEntry]:
    """Every setting of the broker itself."""
    entries = []
    for name, definition in BROKER.items():
        value = definition.text(getattr(settings.effective, definition.field))
        if name == "listeners" and not value:
            value = ",".join(map(str, settings.effective.kafka_listeners))
        synonyms = broker_synonyms(name, settings)
        read_only = definition.scope is Scope.READ_ONLY
        entries.append(_entry(definition, value, synonyms, read_only=read_only))
    return entries


def describe_cluster_defaults(settings: Settings) -> list[ConfigEntry]:
    """The cluster-wide dynamic settings: what the broker resource without a name has."""
    entries = []
    for name, text in sorted(settings.cluster.items()):
        definition = BROKER[name]
        value = None if definition.is_sensitive else text
        synonym = Synonym(name, value, ConfigSource.DYNAMIC_DEFAULT_BROKER)
        entries.append(_entry(definition, text, [synonym], read_only=False))
    return entries


def describe_group(overrides: Mapping[str, str], settings: Settings) -> list[ConfigEntry]:
    """Every config of a group that sets `overrides`."""
    config = settings.group(overrides)
    entries = []
    for name, definition in GROUP.items():
        if definition.synonym is not None:
            synonyms = broker_synonyms(definition.synonym, settings)
        else:
            synonyms = [Synonym(name, definition.text(definition.default), ConfigSource.DEFAULT)]
        if name in overrides:
            synonyms.insert(0, Synonym(name, overrides[name], ConfigSource.GROUP))
        value = definition.text(getattr(config, definition.field))
        entries.append(_entry(definition, value, synonyms, read_only=False))
    return entries


def describe_client_metrics(overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """Every config of a client metrics subscription that sets `overrides`."""
    entries = []
    for name, definition in CLIENT_METRICS.items():
        synonyms = []
        if name in overrides:
            synonyms.append(Synonym(name, overrides[name], ConfigSource.CLIENT_METRICS))
        value = overrides.get(name, definition.text(definition.default))
        entries.append(_entry(definition, value, synonyms, read_only=False))
    return entries


def broker_synonyms(name: str, settings: Settings) -> list[Synonym]:
    """Where a broker setting's value could come from, strongest first."""
    chain = [BROKER[name], *(BROKER[other] for other in BROKER[name].also)]
    levels = (
        (ConfigSource.DYNAMIC_BROKER, settings.node),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER, settings.cluster),
        (ConfigSource.STATIC_BROKER, settings.static.values),
    )
    found = [
        Synonym(definition.name, _shown(definition, values[definition.name]), source)
        for source, values in levels
        for definition in chain
        if definition.name in values
    ]
    defaults = [
        Synonym(definition.name, definition.text(definition.default), ConfigSource.DEFAULT)
        for definition in chain
        if definition.default is not None
    ]
    # Like Kafka, the default of another unit (log.retention.hours) counts as a synonym only behind
    # one in the setting's own name.
    if not found and defaults and defaults[0].name != name:
        return []
    return found + defaults


def _shown(definition: ConfigDef, text: str) -> str | None:
    return None if definition.is_sensitive else definition.canonical(text)


def _listed(
    definitions: Mapping[str, ConfigDef], overrides: Mapping[str, str]
) -> Iterable[tuple[str, ConfigDef]]:
    for name, definition in definitions.items():
        if not definition.hidden or name in overrides:
            yield name, definition


def _entry(
    definition: ConfigDef, value: str | None, synonyms: list[Synonym], *, read_only: bool
) -> ConfigEntry:
    return ConfigEntry(
        name=definition.name,
        value=None if definition.is_sensitive else value,
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
        type=definition.type,
        is_sensitive=definition.is_sensitive,
        read_only=read_only,
        synonyms=tuple(synonyms),
        documentation=definition.doc,
    )
