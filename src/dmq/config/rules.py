"""What CreateTopics, AlterConfigs and IncrementalAlterConfigs may set, and how it is stored.

Takes the values that a resource would have and gives them back in the form that we keep, or raises
KafkaError with Kafka's code for it. Knows no state: the cluster machine merges old and new values
first. Pure.
"""

from collections.abc import Mapping

from dmq.config.broker import BROKER, check_whole
from dmq.config.definitions import LIST, ConfigDef, ResourceType, Scope
from dmq.config.group import CLIENT_METRICS, GROUP, check_client_match, check_group_bounds
from dmq.config.settings import Settings
from dmq.config.topic import TOPIC, check_together
from dmq.errors import ConfigError, ErrorCode, KafkaError

_TABLES: dict[ResourceType, Mapping[str, ConfigDef]] = {
    ResourceType.TOPIC: TOPIC,
    ResourceType.BROKER: BROKER,
    ResourceType.GROUP: GROUP,
    ResourceType.CLIENT_METRICS: CLIENT_METRICS,
}

_CODES = {
    ResourceType.TOPIC: ErrorCode.INVALID_CONFIG,
    ResourceType.BROKER: ErrorCode.INVALID_REQUEST,
    ResourceType.GROUP: ErrorCode.INVALID_CONFIG,
    ResourceType.CLIENT_METRICS: ErrorCode.INVALID_REQUEST,
}
"""The code that Kafka answers a bad name or value with."""


class ConfigRules:
    """The rules as they stand on this broker; its settings give bounds and defaults."""

    __slots__ = ("settings",)

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def is_list(self, resource: ResourceType, name: str) -> bool:
        """Whether APPEND and SUBTRACT make sense. Raises KafkaError for an unknown name."""
        return self._definition(resource, name).type is LIST

    def inherited(self, resource: ResourceType, name: str) -> str:
        """The value that a resource has while it does not set `name`: what APPEND starts from."""
        definition = self._definition(resource, name)
        if resource is ResourceType.TOPIC:
            value = getattr(self.settings.topic_defaults, definition.field)
        elif resource is ResourceType.BROKER:
            value = getattr(self.settings.effective, definition.field)
        else:
            value = definition.default
        return definition.text(value) or ""

    def check(
        self,
        resource: ResourceType,
        values: Mapping[str, str],
        *,
        changed: tuple[str, ...] | None = None,
    ) -> dict[str, str]:
        """All that a resource would set, as it is stored. Raises KafkaError.

        `changed` are the names that the request touches, all of them if None.
        """
        try:
            if resource is ResourceType.BROKER:
                self._check_reach(tuple(values) if changed is None else changed)
            stored = {key: self._canonical(resource, key, text) for key, text in values.items()}
            self._check_together(resource, stored)
        except ConfigError as error:
            raise KafkaError(_CODES[resource], "; ".join(error.problems)) from None
        return stored

    def _definition(self, resource: ResourceType, name: str) -> ConfigDef:
        definition = _TABLES[resource].get(name)
        if definition is None:
            what = resource.name.lower().replace("_", " ")
            raise KafkaError(_CODES[resource], f"Unknown {what} config name: {name}")
        return definition

    def _canonical(self, resource: ResourceType, name: str, text: str) -> str:
        return self._definition(resource, name).canonical(text)

    def _check_reach(self, names: tuple[str, ...]) -> None:
        fixed = [
            name
            for name in names
            if self._definition(ResourceType.BROKER, name).scope is Scope.READ_ONLY
        ]
        if fixed:
            raise ConfigError([f"Fixed while the broker runs: {', '.join(fixed)}"])

    def _check_together(self, resource: ResourceType, stored: Mapping[str, str]) -> None:
        if resource is ResourceType.TOPIC:
            check_together(self.settings.topic(stored))
        elif resource is ResourceType.GROUP:
            check_group_bounds(self.settings.group(stored), self.settings.effective)
        elif resource is ResourceType.CLIENT_METRICS:
            definition = CLIENT_METRICS["match"]
            check_client_match(definition.parse(stored.get("match", "")))
        elif problems := check_whole(self.settings.effective.with_dynamic(stored)):
            raise ConfigError(problems)
