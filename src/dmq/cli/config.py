"""`dmq config list|show`: every setting of brokers, topics and groups, from the tables in `config`.

Owns the words around them; the settings' own words live with their definitions. Needs no cluster. The
commands that read and change settings of a running cluster are in `config_values`.
"""

import difflib
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from dmq.cli import config_values
from dmq.cli.command import command
from dmq.cli.completing import setting_names
from dmq.cli.exits import not_found, usage
from dmq.cli.output import Column, count_of
from dmq.cli.plain_help import PlainGroup
from dmq.cli.session import Session
from dmq.config.broker import BROKER
from dmq.config.definitions import ConfigDef
from dmq.config.group import GROUP
from dmq.config.topic import TOPIC

app = typer.Typer(
    cls=PlainGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="Explain every setting of brokers, topics and groups; read and change them.",
)
app.registered_commands += config_values.app.registered_commands

TABLES = {"broker": BROKER, "topic": TOPIC, "group": GROUP}
IMPORTANCES = ("high", "medium", "low")


@command(
    app,
    "list",
    """
    dmq config list
    dmq config list retention --for topic
    dmq config list --importance high --json
    """,
    cluster=False,
)
def list_(
    session: Session,
    text: Annotated[
        str | None,
        typer.Argument(metavar="TEXT", help="Only settings with this in name or documentation."),
    ] = None,
    for_: Annotated[
        str | None, typer.Option("--for", metavar="|".join(TABLES), help="Only these settings.")
    ] = None,
    importance: Annotated[
        str | None,
        typer.Option("--importance", metavar="|".join(IMPORTANCES), help="Only these settings."),
    ] = None,
    active: Annotated[
        bool,
        typer.Option("--active", help="Without those that Kafka has and that do nothing here."),
    ] = False,
) -> None:
    """List settings with type, default and what they do."""
    _check("--for", for_, TABLES)
    _check("--importance", importance, IMPORTANCES)
    found = [
        (kind, definition)
        for kind, table in TABLES.items()
        if for_ in (None, kind)
        for definition in table.values()
        if _is_wanted(definition, text, importance, active=active)
    ]
    if session.output.json:
        session.output.emit({"settings": [as_json(kind, d) for kind, d in found]})
        return
    for kind, table in TABLES.items():
        rows = [_row(d) for k, d in found if k == kind and d.name in table]
        if rows:
            session.output.heading(f"{kind.capitalize()} settings")
            columns = [Column("setting"), Column("type"), Column("default"), Column("what it does")]
            session.output.table(columns, rows)
    session.output.note(
        f"{count_of(len(found), 'setting')}; `dmq config show NAME` tells all of one"
    )


def _check(option: str, value: str | None, known: Iterable[str]) -> None:
    if value is not None and value not in known:
        raise usage(f"{option} {value!r} is unknown", f"Use {', '.join(known)}.")


def _is_wanted(
    definition: ConfigDef, text: str | None, importance: str | None, *, active: bool
) -> bool:
    if definition.inert and active:
        return False
    if importance is not None and definition.importance.value != importance:
        return False
    return text is None or text.lower() in f"{definition.name} {definition.doc}".lower()


def _row(definition: ConfigDef) -> list[str | None]:
    kind = definition.type.name.lower()
    note = "(Does nothing here.) " if definition.inert else ""
    return [definition.name, kind, _default(definition), note + first_sentence(definition.doc)]


def first_sentence(doc: str) -> str:
    """The documentation up to its first full stop."""
    end = doc.find(". ")
    return doc if end < 0 else doc[: end + 1]


def _default(definition: ConfigDef) -> str:
    text = definition.text(definition.default)
    return "none" if text is None else text if text else '""'


@command(
    app, "show", "dmq config show retention.ms\ndmq config show log.dirs --json", cluster=False
)
def show(
    session: Session,
    name: Annotated[
        str, typer.Argument(metavar="NAME", show_default=False, autocompletion=setting_names)
    ],
) -> None:
    """Tell everything about one setting."""
    found = [(kind, table[name]) for kind, table in TABLES.items() if name in table]
    if not found:
        known = sorted({known for table in TABLES.values() for known in table})
        close = ", ".join(difflib.get_close_matches(name, known))
        hint = f"Did you mean {close}?" if close else "See `dmq config list`."
        raise not_found(f"There is no setting {name!r}", hint)
    if session.output.json:
        session.output.emit({"settings": [as_json(kind, d) for kind, d in found]})
        return
    for kind, definition in found:
        session.output.heading(f"{definition.name}  ({kind})")
        session.output.say(f"  {definition.doc}")
        for label, value in _facts(kind, definition):
            session.output.say(f"  {label}: {value}")


def _facts(kind: str, definition: ConfigDef) -> list[tuple[str, str]]:
    facts = [("type", definition.type.name.lower()), ("default", _default(definition))]
    if definition.check is not None:
        facts.append(("valid", str(definition.check)))
    if definition.unit:
        facts.append(("unit", definition.unit))
    facts.append(("importance", definition.importance.value))
    if kind == "broker":
        facts += [("changes while running", definition.scope.value)]
        facts += [("environment", environment_name(definition.name))]
    if definition.synonym:
        facts.append(("where not set, takes the broker's", definition.synonym))
    if definition.also:
        facts.append(("where not set, computed from", ", ".join(definition.also)))
    if definition.inert:
        facts.append(("note", "accepted for Kafka's sake; changes nothing here"))
    return facts


def environment_name(name: str) -> str:
    """The variable that sets a broker setting: `node.id` → `DMQ_NODE_ID`."""
    return "DMQ_" + name.upper().replace(".", "_")


def as_json(kind: str, definition: ConfigDef) -> dict[str, Any]:
    """The stable schema of `dmq config list --json`."""
    return {
        "name": definition.name,
        "for": kind,
        "type": definition.type.name.lower(),
        "default": definition.text(definition.default),
        "valid": None if definition.check is None else str(definition.check),
        "unit": definition.unit or None,
        "importance": definition.importance.value,
        "scope": definition.scope.value if kind == "broker" else None,
        "environment": environment_name(definition.name) if kind == "broker" else None,
        "synonym": definition.synonym,
        "inert": definition.inert,
        "documentation": definition.doc,
    }
