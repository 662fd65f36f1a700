"""The tables of settings as Markdown: docs/CONFIGURATION.md is this module's output.

`python -m dmq.config.document > docs/CONFIGURATION.md` writes it anew; a test holds it up to date.
"""

import sys
from collections.abc import Mapping
from types import ModuleType

from dmq.config import broker_cluster, broker_groups, broker_log, broker_network, broker_node
from dmq.config.broker import ALIASES, BROKER
from dmq.config.definitions import LONG_MAX, ConfigDef, Scope, definitions_of
from dmq.config.group import CLIENT_METRICS, GROUP
from dmq.config.kafka_names import DIFFERENT
from dmq.config.topic import TOPIC

INTRODUCTION = """\
# Configuration

Every setting, from the tables in `src/dmq/config`. Names, types and defaults are Kafka's where Kafka
has the setting, so that tools and files carry over.

## How settings are given

A broker reads flags, then the environment, then a file; what comes first wins.

| where | how |
|---|---|
| flag | `dmq serve --set num.partitions=3` |
| environment | `DMQ_NUM_PARTITIONS=3`: the name in capitals, underscores for dots |
| file | `dmq serve --config broker.yaml`: `num.partitions: 3`, or nested, or a Kafka `*.properties` |

All problems are reported at once, each with its place. {aliases}
Settings of Kafka's that mean nothing here are accepted in a file with a warning; those that promise
protection that dmq does not have yet (`ssl.*`, `sasl.*`) are refused. What differs from Kafka's
defaults is listed at the end.

While brokers run, settings marked *dynamic* can be changed for one broker or for all with
`kafka-configs`, `dmq` or any admin client. The order of strength is then: the topic's or group's
own value, this broker's dynamic value, the cluster-wide dynamic value, the broker's static value,
the default.

*No effect* marks what is listed for Kafka's sake and changes nothing.
"""

BROKER_SECTIONS: tuple[tuple[str, ModuleType, str], ...] = (
    ("Identity, place and voice", broker_node, "NodeSettings"),
    ("Cluster", broker_cluster, "ClusterSettings"),
    ("Connections and requests", broker_network, "NetworkSettings"),
    ("Topics", broker_log, "TopicSettings"),
    ("Logs", broker_log, "LogSettings"),
    ("Compaction", broker_log, "CleanerSettings"),
    ("Journal and disk", broker_log, "DiskSettings"),
    ("Committed offsets", broker_groups, "OffsetsSettings"),
    ("Consumer groups", broker_groups, "GroupSettings"),
    ("Share groups", broker_groups, "ShareSettings"),
    ("Streams groups", broker_groups, "StreamsSettings"),
    ("Producers and transactions", broker_groups, "TransactionSettings"),
)


def document() -> str:
    """The whole document."""
    aliases = ", ".join(f"`{other}` is `{name}`" for other, name in sorted(ALIASES.items()))
    parts = [INTRODUCTION.format(aliases=f"Other names: {aliases}.")]
    parts.append("## Topic configs\n\n" + table(TOPIC, falls_back=True))
    parts.append("## Broker settings\n")
    listed: list[str] = []
    for title, module, name in BROKER_SECTIONS:
        definitions = definitions_of(getattr(module, name))
        listed += definitions
        parts.append(f"### {title}\n\n" + table(definitions, falls_back=False))
    assert sorted(listed) == sorted(BROKER), "a section is missing"
    parts.append("## Group configs\n\n" + table(GROUP, falls_back=True))
    parts.append("## Client metrics subscriptions\n\n" + table(CLIENT_METRICS, falls_back=False))
    parts.append("## Where a default is not Kafka's\n\n" + _differences())
    return "\n".join(parts)


def _differences() -> str:
    lines = ["| name | here | why |", "|---|---|---|"]
    for name, reason in DIFFERENT.items():
        definition = BROKER.get(name) or TOPIC[name]
        lines.append(f"| `{name}` | {_default(definition)} | {reason} |")
    return "\n".join(lines) + "\n"


def table(definitions: Mapping[str, ConfigDef], *, falls_back: bool) -> str:
    """One table of settings."""
    lines = ["| name | type | default | values | |", "|---|---|---|---|---|"]
    for definition in definitions.values():
        if not definition.hidden:
            lines.append(_row(definition, falls_back=falls_back))
    return "\n".join(lines) + "\n"


def _row(definition: ConfigDef, *, falls_back: bool) -> str:
    notes = [definition.doc]
    if definition.scope is Scope.CLUSTER_WIDE:
        notes.append("*Dynamic.*")
    if definition.inert:
        notes.append("*No effect.*")
    if falls_back and definition.synonym is not None:
        notes.append(f"Broker: `{definition.synonym}`.")
    check = "" if definition.check is None else str(definition.check)
    cells = (
        f"`{definition.name}`",
        definition.type.name.lower() + (f", {definition.unit}" if definition.unit else ""),
        _default(definition),
        check,
        " ".join(notes),
    )
    return "| " + " | ".join(cells) + " |"


def _default(definition: ConfigDef) -> str:
    if definition.default is None:
        return "not set"
    if definition.default == LONG_MAX:
        return "no limit"
    return f"`{text}`" if (text := definition.text(definition.default)) else "empty"


if __name__ == "__main__":
    sys.stdout.write(document())
