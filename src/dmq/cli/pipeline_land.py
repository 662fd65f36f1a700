"""`dmq pipeline land`: a topic as a table, in one command.

Owns the options and the words; the stream is `dmq.spark.pipelines.landing`.
"""

import base64
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dmq.cli.command import command
from dmq.cli.completing import topic_names
from dmq.cli.exits import CommandError, not_found, usage
from dmq.cli.output import Output, count_of
from dmq.cli.pipeline_common import Conf, Master, mended, spark_options, where_of
from dmq.cli.pipeline_dead_letters import prepare
from dmq.cli.pipeline_view import flow_table, view_of
from dmq.cli.session import Session

if TYPE_CHECKING:
    from dmq.spark.pipelines.landing import Target
    from dmq.spark.pipelines.progress import Progress

app = typer.Typer()

_FORMATS = ("json", "avro", "protobuf")
_POSTGRES = ("postgresql://", "postgres://")


@command(
    app,
    "land",
    """
    dmq pipeline land orders ./lake/orders --once
    dmq pipeline land orders ./lake/orders --every 30 --partition-by hour
    dmq pipeline land orders ./lake/orders --schema 'id STRING NOT NULL, amount DOUBLE'
    dmq pipeline land orders postgresql://app@db/shop --table orders --key order_id
    """,
)
def land(
    session: Session,
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", show_default=False, autocompletion=topic_names)
    ],
    place: Annotated[
        str, typer.Argument(metavar="DIR|postgresql://…", show_default=False, help="The table.")
    ],
    once: Annotated[
        bool, typer.Option("--once", help="Up to the topic's end as it is now, then stop.")
    ] = False,
    every: Annotated[
        float, typer.Option("--every", metavar="SECONDS", min=0, help="A batch so often.")
    ] = 10.0,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format", metavar="FORMAT", help=f"Of values: {', '.join(_FORMATS)}. Default: json."
        ),
    ] = None,
    schema: Annotated[
        str | None,
        typer.Option(
            "--schema",
            metavar="FIELDS|FILE",
            help="JSON: 'id STRING, n BIGINT'. Avro: an .avsc file. Protobuf: a descriptor set.",
        ),
    ] = None,
    message: Annotated[
        str | None,
        typer.Option("--message", metavar="NAME", help="Protobuf: which message, as shop.Order."),
    ] = None,
    skip_bytes: Annotated[
        int,
        typer.Option(
            "--skip-bytes",
            metavar="N",
            min=0,
            help="Avro, Protobuf: leave out so many before each value; 5 for a registry's Avro.",
        ),
    ] = 0,
    partition_by: Annotated[
        list[str] | None,
        typer.Option(
            "--partition-by",
            metavar="WHAT",
            help="day (the default) or hour of the record's time, or fields; none; repeatable.",
        ),
    ] = None,
    headers: Annotated[
        bool, typer.Option("--headers", help="Keep the records' headers, as _headers.")
    ] = False,
    dead_letters: Annotated[
        str | None,
        typer.Option(
            "--dead-letters",
            metavar="TOPIC",
            help="Where records go that don't parse. Default: TOPIC-dead.",
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option("--group", "-g", metavar="NAME", help="Shows the lag. Default: land-TOPIC."),
    ] = None,
    batch_records: Annotated[
        int,
        typer.Option("--batch-records", metavar="N", min=1, help="At most so many per batch."),
    ] = 1_000_000,
    table: Annotated[
        str | None,
        typer.Option("--table", metavar="NAME", help="PostgreSQL: which. Default: TOPIC."),
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(
            "--key", metavar="FIELD", help="PostgreSQL: rows are replaced by it; repeatable."
        ),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            "--state",
            metavar="DIR",
            help="PostgreSQL: where the checkpoint is. Default: ./land-TABLE.",
        ),
    ] = None,
    skip_lost: Annotated[
        bool,
        typer.Option(
            "--skip-lost",
            help="Go on where records are gone before they were landed, instead of failing.",
        ),
    ] = False,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Land a topic as a table: Parquet files in a folder, or rows of a PostgreSQL table.

    Without --once it goes on until Ctrl-C or `dmq pipeline stop DIR`; the next call goes on where
    this one ended, with the same schema. Each record is there once, also after a crash. The schema
    is learnt from the topic's first records unless --schema says it. Records that don't parse go to
    the dead-letter topic with the reason. Small files are merged.
    """
    from dmq.spark.pipelines import landing
    from dmq.spark.pipelines.tables import new_id

    if format_ is not None and format_ not in _FORMATS:
        raise usage(f"There is no format {format_!r}", f"Choose of {', '.join(_FORMATS)}.")
    where = where_of(master, conf)
    partitions = None if partition_by is None else tuple(p for p in partition_by if p != "none")
    if place.startswith(_POSTGRES):
        if partition_by is not None:
            raise usage("--partition-by is of folders", "Leave it out for PostgreSQL.")
        partitions = ()
    order = landing.Order(
        topic=topic,
        source=spark_options(session),
        format=format_,
        schema=_schema(format_, schema),
        message=message,
        skip_bytes=skip_bytes,
        partition_by=partitions,
        headers=headers,
        dead_letters=dead_letters,
        group=group or f"land-{topic}",
        is_once=once,
        every_s=every,
        batch_records=batch_records,
        skips_lost=skip_lost,
    )
    with mended():
        target = _target(topic, place, table, key, state)
        known = target.landing()
        dead = known.dead_letters if known is not None else f"{topic}-dead"
        prepare(session, topic, dead_letters or dead)
        shown = place.rpartition("@")[2]  # Not the password.
        session.output.note(f"Landing {topic} in {shown} on {where} (Spark's log: {target.log})")
        began = time.monotonic()
        with view_of(session.output, topic) as view:
            progress = landing.land(order, target, where, view.show, new_id())
    _tell_of_end(session.output, topic, shown, progress, time.monotonic() - began)


def _tell_of_end(
    output: Output, topic: str, shown: str, progress: "Progress", seconds: float
) -> None:
    if output.json:
        facts = {"event": "ended", "topic": topic, "place": shown, "seconds": round(seconds, 1)}
        facts |= {"dead_letters": progress.dead_letters, "skipped": progress.skipped}
        output.emit(facts | progress.as_json())
        return
    flow_table(output, list(progress.flows.values()))
    letters = count_of(progress.dead_letters, "dead letter")
    output.say(f"{topic}: {count_of(progress.rows, 'record')} read, {letters}, in {seconds:.0f} s")
    if progress.skipped:
        lost = count_of(progress.skipped, "offset")
        output.say(f"{lost} gone from the topic before being landed: skipped")


def _schema(format_: str | None, schema: str | None) -> str | None:
    """The schema's text; of Avro and Protobuf it is in a file."""
    if schema is None or format_ in (None, "json"):
        return schema
    try:
        data = Path(schema).expanduser().read_bytes()
    except FileNotFoundError as error:
        raise not_found(f"There is no schema file {schema!r}") from error
    except OSError as error:
        raise CommandError(f"The schema file {schema!r} can't be read: {error}") from error
    return data.decode() if format_ == "avro" else base64.b64encode(data).decode()


def _target(
    topic: str, place: str, table: str | None, key: list[str] | None, state: Path | None
) -> "Target":
    if place.startswith(_POSTGRES):
        from dmq.spark.pipelines.postgres import PostgresTable

        name = table or topic
        return PostgresTable(place, name, tuple(key or ()), state or Path(f"land-{name}"))
    if table is not None or key is not None or state is not None:
        raise usage("--table, --key and --state are of PostgreSQL", "Leave them out for a folder.")
    if "://" in place and not place.startswith("file://"):
        raise usage(f"{place!r} is no folder", "Give a folder that all of Spark can reach.")
    from dmq.spark.pipelines.tables import ParquetTable

    return ParquetTable(Path(place.removeprefix("file://")))
