"""`dmq pipeline`: data pipelines on Spark. `init` is here, the others are in `pipeline_…` beside it.

Owns the group and the making of projects. pyspark is imported when a command that needs it runs: what
these commands do is in `dmq.spark.pipelines`, here are options and words.
"""

from pathlib import Path
from typing import Annotated

import typer

from dmq.cli import pipeline_audit, pipeline_land, pipeline_package, pipeline_run
from dmq.cli.command import command
from dmq.cli.completing import topic_names
from dmq.cli.exits import CommandError, usage
from dmq.cli.pipeline_common import mended, sampled_schema
from dmq.cli.plain_help import PlainGroup
from dmq.cli.session import Session

app = typer.Typer(
    cls=PlainGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="Data pipelines on Spark: projects, topics as tables, audits.",
)

_TEMPLATES = ("table", "aggregate", "cdc", "backfill", "join")


def _template_names(incomplete: str) -> list[str]:
    return [name for name in _TEMPLATES if name.startswith(incomplete)]


@command(
    app,
    "init",
    """
    dmq pipeline init sales --template table --topic orders
    dmq pipeline init per-minute --template aggregate --topic orders --to orders-per-minute
    dmq pipeline init paid --template join --topic orders --with payments --on order_id
    dmq pipeline init again --template backfill --table ./warehouse/orders --topic orders-2 --key id
    """,
)
def init(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", show_default=False)],
    template: Annotated[
        str,
        typer.Option(
            "--template",
            metavar="TEMPLATE",
            help=f"One of {', '.join(_TEMPLATES)}.",
            autocompletion=_template_names,
        ),
    ] = "table",
    topic: Annotated[
        str | None,
        typer.Option(
            "--topic",
            metavar="TOPIC",
            help="The topic to read; of backfill, to write. Default: NAME.",
            autocompletion=topic_names,
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="TOPIC", help="aggregate: where results go."),
    ] = None,
    with_: Annotated[
        str | None, typer.Option("--with", metavar="TOPIC", help="join: the other topic.")
    ] = None,
    on: Annotated[
        str | None,
        typer.Option("--on", metavar="FIELD", help="join: the field that both topics have."),
    ] = None,
    table: Annotated[
        str | None,
        typer.Option("--table", metavar="DIR", help="backfill: a folder of Parquet files."),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="FIELD", help="backfill: the column that becomes the key."),
    ] = None,
    schema: Annotated[
        str | None,
        typer.Option(
            "--schema",
            metavar="FIELDS",
            help="Fields of a value, as 'id STRING, amount DOUBLE'. Default: read from the topic.",
        ),
    ] = None,
) -> None:
    """Write a Spark Declarative Pipelines project into the new folder NAME.

    Templates: table (a topic as a table of Parquet files), aggregate (a topic, summed up per key and
    minute, into a topic), cdc (a topic of changes as a table of the current state), backfill (a
    table's rows into a topic), join (two topics, joined, as a table). What does not parse goes to a
    dead-letter topic.

    The schema is taken from the JSON records that the topic holds, if the cluster answers and it
    holds some; otherwise an example is written, to be replaced.
    """
    from dmq.spark.pipelines import templates

    if template not in templates.TEMPLATES:
        raise usage(f"There is no template {template!r}", f"Choose of {', '.join(_TEMPLATES)}.")
    chosen = templates.TEMPLATES[template]
    source = topic or Path(name).name
    if schema is None and template != "backfill":
        schema = _guessed(session, source)
    words = templates.Words(
        topic=source,
        bootstrap=session.bootstrap,
        schema=schema,
        to=to,
        with_=with_,
        with_schema=_guessed(session, with_) if with_ else None,
        on=on,
        table=table,
        key=key,
    )
    with mended():
        made = templates.write(Path(name), chosen, words)
    if session.output.json:
        session.output.emit(
            {"project": name, "template": template, "schema": schema} | _files(made)
        )
        return
    for path in made:
        session.output.note(f"wrote {path}")
    session.output.say(f"{name}: {chosen.title}")
    session.output.say(f"Next: cd {name} && dmq pipeline run")


def _files(made: list[Path]) -> dict[str, list[str]]:
    return {"files": [str(path) for path in made]}


def _guessed(session: Session, topic: str) -> str | None:
    """The schema of a topic's records; a topic that is not there yet is no failure."""
    try:
        schema = sampled_schema(session, topic)
    except CommandError as error:
        session.output.note(f"The schema of {topic!r} is an example: {error.message}.")
        return None
    if schema is None:
        session.output.note(f"The schema of {topic!r} is an example: no JSON objects are in it.")
    return schema


for part in (pipeline_run, pipeline_land, pipeline_audit, pipeline_package):
    app.registered_commands += part.app.registered_commands
