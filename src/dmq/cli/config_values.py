"""`dmq config set|unset|describe`: settings of a running cluster, read and changed.

Owns the choice of what is meant (a topic, one broker, all brokers, a group) and the words. Uses
Kafka's IncrementalAlterConfigs and DescribeConfigs through `cluster_wire`, because librdkafka can't
name "all brokers" or a group; so plain connections only. `dmq topic alter` does topics everywhere.
"""

from typing import Annotated, Any, NamedTuple

import typer

from dmq.cli.cluster_wire import (
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    ClusterWire,
    error_name,
)
from dmq.cli.command import command
from dmq.cli.completing import setting_names
from dmq.cli.exits import CommandError, Exit, usage
from dmq.cli.output import Column
from dmq.cli.session import Session, key_values
from dmq.config.definitions import ConfigSource, ResourceType
from dmq.errors import ErrorCode

app = typer.Typer()

_SET, _DELETE = 0, 1
"""Kafka's codes of what to do with a value."""
_SOURCES = {
    ConfigSource.DYNAMIC_TOPIC: "topic",
    ConfigSource.DYNAMIC_BROKER: "broker",
    ConfigSource.DYNAMIC_DEFAULT_BROKER: "cluster",
    ConfigSource.STATIC_BROKER: "broker file",
    ConfigSource.DEFAULT: "default",
    ConfigSource.GROUP: "group",
}

Topic = Annotated[
    str | None, typer.Option("--topic", metavar="TOPIC", help="The settings of this topic.")
]
BrokerId = Annotated[
    int | None, typer.Option("--broker", metavar="ID", help="The settings of this broker.")
]
Brokers = Annotated[bool, typer.Option("--brokers", help="The settings of all brokers.")]
Group = Annotated[
    str | None, typer.Option("--group", metavar="GROUP", help="The settings of this group.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Let the broker check everything, change nothing.")
]


class Target(NamedTuple):
    """Whose settings: a resource by Kafka's type and name, and the broker that must be asked."""

    kind: ResourceType
    name: str
    node: int | None

    def __str__(self) -> str:
        if self.kind is ResourceType.BROKER:
            return f"broker {self.name}" if self.name else "all brokers"
        return f"{self.kind.name.lower()} {self.name}"


@command(
    app,
    "set",
    """
    dmq config set --topic orders retention.ms=3600000 max.message.bytes=2000000
    dmq config set --brokers log.retention.ms=86400000
    dmq config set --broker 2 logging.level=debug --dry-run
    """,
)
def set_(
    session: Session,
    settings: Annotated[
        list[str],
        typer.Argument(metavar="NAME=VALUE", show_default=False, autocompletion=setting_names),
    ],
    topic: Topic = None,
    broker: BrokerId = None,
    brokers: Brokers = False,
    group: Group = None,
    dry_run: DryRun = False,
) -> None:
    """Change settings of a topic, of brokers or of a group, from now on and for good."""
    target = _target(topic, broker, group, brokers=brokers)
    values = key_values(settings, "NAME=VALUE")
    _alter(session, target, [(name, _SET, value) for name, value in values.items()], dry_run)
    if session.output.json:
        session.output.emit(_json(target) | {"set": values, "unset": [], "dry_run": dry_run})
    would = "would be " if dry_run else ""
    for name, value in values.items():
        session.output.say(f"{target}: {name} {would}set to {value}")


@command(
    app,
    "unset",
    """
    dmq config unset --topic orders retention.ms
    dmq config unset --brokers log.retention.ms
    """,
)
def unset(
    session: Session,
    names: Annotated[
        list[str],
        typer.Argument(metavar="NAME", show_default=False, autocompletion=setting_names),
    ],
    topic: Topic = None,
    broker: BrokerId = None,
    brokers: Brokers = False,
    group: Group = None,
    dry_run: DryRun = False,
) -> None:
    """Take settings back to what they are without: the brokers' value, or the default."""
    target = _target(topic, broker, group, brokers=brokers)
    wanted = list(dict.fromkeys(names))
    _alter(session, target, [(name, _DELETE, None) for name in wanted], dry_run)
    if session.output.json:
        session.output.emit(_json(target) | {"set": {}, "unset": wanted, "dry_run": dry_run})
    would = "would be " if dry_run else ""
    for name in wanted:
        session.output.say(f"{target}: {name} {would}unset")


@command(
    app,
    "describe",
    """
    dmq config describe --topic orders
    dmq config describe --broker 1 --all --json
    """,
)
def describe(
    session: Session,
    topic: Topic = None,
    broker: BrokerId = None,
    brokers: Brokers = False,
    group: Group = None,
    all_: Annotated[
        bool, typer.Option("--all", help="Every setting, not only those that somebody set.")
    ] = False,
) -> None:
    """Show the settings in force and who set them."""
    target = _target(topic, broker, group, brokers=brokers)
    entries = sorted(_described(session, target), key=lambda entry: str(entry.name))
    shown = [e for e in entries if all_ or e.config_source != ConfigSource.DEFAULT]
    if session.output.json:
        told = [
            {
                "name": e.name,
                "value": None if e.is_sensitive else e.value,
                "source": _source(e.config_source),
                "read_only": e.read_only,
            }
            for e in shown
        ]
        session.output.emit(_json(target) | {"settings": told})
        return
    if shown:
        columns = [Column("setting"), Column("value"), Column("set by")]
        rows = [[e.name, _value(e), _source(e.config_source)] for e in shown]
        session.output.table(columns, rows)
    else:
        session.output.note(f"{target} has no settings of its own")


def _value(entry: Any) -> str | None:
    if entry.is_sensitive:
        return "(secret)"
    value: str | None = entry.value
    return value


def _source(code: int) -> str:
    return next((word for source, word in _SOURCES.items() if source == code), "unknown")


def _target(topic: str | None, broker: int | None, group: str | None, *, brokers: bool) -> Target:
    found: list[Target] = []
    if topic is not None:
        found.append(Target(ResourceType.TOPIC, topic, None))
    if broker is not None:
        found.append(Target(ResourceType.BROKER, str(broker), broker))
    if brokers:
        found.append(Target(ResourceType.BROKER, "", None))
    if group is not None:
        found.append(Target(ResourceType.GROUP, group, None))
    if len(found) != 1:
        raise usage(
            "Whose settings?" if not found else "One at a time",
            "Give one of --topic, --broker, --brokers, --group.",
        )
    return found[0]


def _json(target: Target) -> dict[str, Any]:
    return {"for": target.kind.name.lower(), "name": target.name}


def _alter(
    session: Session, target: Target, changes: list[tuple[str, int, str | None]], dry_run: bool
) -> None:
    from dmq.wire.messages.k44_incremental_alter_configs import (
        AlterableConfig,
        AlterConfigsResource,
        IncrementalAlterConfigsRequest,
    )

    configs = [AlterableConfig(name, operation, value) for name, operation, value in changes]
    resource = AlterConfigsResource(target.kind, target.name, configs)
    request = IncrementalAlterConfigsRequest([resource], dry_run)
    with ClusterWire(session) as wire:
        response = wire.ask_broker(target.node, INCREMENTAL_ALTER_CONFIGS, request)
    _check(f"Changing settings of {target}", response.responses)


def _described(session: Session, target: Target) -> list[Any]:
    from dmq.wire.messages.k32_describe_configs import (
        DescribeConfigsRequest,
        DescribeConfigsResource,
    )

    resource = DescribeConfigsResource(target.kind, target.name, None)
    with ClusterWire(session) as wire:
        response = wire.ask_broker(
            target.node, DESCRIBE_CONFIGS, DescribeConfigsRequest([resource])
        )
    _check(f"Reading settings of {target}", response.results)
    configs: list[Any] = response.results[0].configs
    return configs


_NOT_FOUND = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.GROUP_ID_NOT_FOUND)


def _check(doing: str, results: list[Any]) -> None:
    [result] = results
    code = result.error_code
    if not code:
        return
    why = result.error_message or error_name(code)
    if code in _NOT_FOUND:
        raise CommandError(f"{doing} failed: {why}", code=Exit.NOT_FOUND)
    hint = "See `dmq config list`." if code == ErrorCode.INVALID_CONFIG else ""
    raise CommandError(f"{doing} failed: {why}", hint=hint)
