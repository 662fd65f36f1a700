"""`dmq pipeline land`: a topic as a table, in one command.

Owns the options and the words; the stream is `dmq.spark.pipelines.landing`.
"""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dmq.cli.command import command
from dmq.cli.completing import topic_names
from dmq.cli.exits import not_found, usage
from dmq.cli.output import count_of
from dmq.cli.pipeline_common import Conf, Master, mended, spark_options, where_of
from dmq.cli.pipeline_view import flow_table, view_of
from dmq.cli.session import REQUEST_TIMEOUT_S, Session

if TYPE_CHECKING:
    from dmq.spark.pipelines.landing import Target

app = typer.Typer()


@command(
    app,
    "land",
    """
    dmq pipeline land orders ./lake/orders --once
    dmq pipeline land orders ./lake/orders --every 30 --partition-by hour
    dmq pipeline land orders ./lake/orders --schema 'id STRING NOT NULL, amount DOUBLE'
    """,
)
def land(
    session: Session,
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", show_default=False, autocompletion=topic_names)
    ],
    place: Annotated[str, typer.Argument(metavar="DIR", show_default=False, help="The table.")],
    once: Annotated[
        bool, typer.Option("--once", help="Up to the topic's end as it is now, then stop.")
    ] = False,
    every: Annotated[
        float, typer.Option("--every", metavar="SECONDS", min=0, help="A batch so often.")
    ] = 10.0,
    schema: Annotated[
        str | None,
        typer.Option(
            "--schema",
            metavar="FIELDS",
            help="Fields of a value: 'id STRING NOT NULL, n BIGINT'. Default: learnt from the topic.",
        ),
    ] = None,
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
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Land a topic as a table: Parquet files in a folder.

    Without --once it goes on until Ctrl-C or `dmq pipeline stop DIR`; the next call goes on where
    this one ended, with the same schema. Each record is there once, also after a crash. The schema
    is learnt from the topic's first records unless --schema says it. Records that don't parse go to
    the dead-letter topic with the reason. Small files are merged.
    """
    from dmq.spark.pipelines import landing
    from dmq.spark.pipelines.tables import new_id

    where = where_of(master, conf)
    partitions = None if partition_by is None else tuple(p for p in partition_by if p != "none")
    order = landing.Order(
        topic=topic,
        source=spark_options(session),
        schema=schema,
        partition_by=partitions,
        headers=headers,
        dead_letters=dead_letters,
        group=group or f"land-{topic}",
        is_once=once,
        every_s=every,
        batch_records=batch_records,
    )
    with mended():
        target = _target(place)
        _prepare(session, topic, dead_letters or f"{topic}-dead")
        session.output.note(f"Landing {topic} in {place} on {where} (Spark's log: {target.log})")
        began = time.monotonic()
        with view_of(session.output, topic) as view:
            progress = landing.land(order, target, where, view.show, new_id())
    seconds = time.monotonic() - began
    if session.output.json:
        facts = {"event": "ended", "topic": topic, "place": place, "seconds": round(seconds, 1)}
        session.output.emit(facts | {"dead_letters": progress.dead_letters} | progress.as_json())
        return
    flow_table(session.output, list(progress.flows.values()))
    dead = count_of(progress.dead_letters, "dead letter")
    rows = count_of(progress.rows, "record")
    session.output.say(f"{topic}: {rows} read, {dead}, in {seconds:.0f} s")


def _target(place: str) -> "Target":
    if "://" in place and not place.startswith("file://"):
        raise usage(f"{place!r} is no folder", "Give a folder that all of Spark can reach.")
    from dmq.spark.pipelines.tables import ParquetTable

    return ParquetTable(Path(place.removeprefix("file://")))


def _prepare(session: Session, topic: str, dead: str) -> None:
    """The topic is there, and the one for its dead letters is from now on."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

    from dmq.cli.kafka_errors import error_of, failure

    admin = session.admin()
    try:
        topics = admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics
        if topic not in topics:
            raise not_found(f"There is no topic {topic!r}", "See `dmq topic list`.")
        if dead not in topics:
            partitions = len(topics[topic].partitions)
            made = admin.create_topics([NewTopic(dead, partitions, -1)], request_timeout=30)
            made[dead].result()
            session.output.note(f"Made topic {dead} for records that don't parse")
    except KafkaException as error:
        if error_of(error).code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise failure(session, f"Looking for {topic!r}", error) from error
