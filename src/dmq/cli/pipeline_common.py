"""What the pipeline commands share: which Spark, how a failure is told, a topic's schema by example."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from dmq.cli.exits import CommandError, Exit, usage
from dmq.cli.session import REQUEST_TIMEOUT_S, Session, key_values

if TYPE_CHECKING:
    from dmq.spark.pipelines.sessions import Where

_SPARK = "Spark"
_OF_THE_EXTRA = ("fastavro", "google", "grpc", "numpy", "pandas", "pyarrow", "pyspark")
_SAMPLES_AT_ONCE = 100
_POLL_S = 0.2

Master = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help="Which Spark: local[*] (the default), spark://host:7077, k8s://…",
        rich_help_panel=_SPARK,
        show_default=False,
    ),
]
Remote = Annotated[
    str | None,
    typer.Option(
        "--remote",
        metavar="URL",
        help="A Spark Connect server instead: sc://host:15002.",
        rich_help_panel=_SPARK,
        show_default=False,
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option(
        "--conf",
        metavar="NAME=VALUE",
        help="A setting of Spark; repeatable.",
        rich_help_panel=_SPARK,
        show_default=False,
    ),
]


def where_of(master: str | None, conf: list[str] | None, remote: str | None = None) -> "Where":
    """The Spark that the options name."""
    from dmq.spark.pipelines.sessions import LOCAL, Where

    if master is not None and remote is not None:
        raise usage("--master and --remote name two different Sparks", "Give one of them.")
    if remote is not None and not remote.startswith("sc://"):
        raise usage(f"--remote {remote!r} is no Connect address", "Write sc://host:15002.")
    return Where(master or LOCAL, remote, key_values(conf or [], "--conf"))


@contextmanager
def mended() -> Iterator[None]:
    """Turn what `dmq.spark` raises into a command's end."""
    from dmq.spark.failures import SparkSourceError
    from dmq.spark.pipelines.failures import PipelineError

    try:
        yield
    except PipelineError as error:
        code = Exit.NOT_FOUND if error.is_missing else Exit.FAILURE
        raise CommandError(error.message, hint=error.hint, code=code) from error
    except SparkSourceError as error:
        raise CommandError(str(error)) from error
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _OF_THE_EXTRA:
            raise
        raise CommandError(
            f"{error.name} is not installed", hint="Install it with `pip install 'dmq[spark]'`."
        ) from error


def spark_options(session: Session) -> dict[str, str]:
    """Where the cluster is and how to log in, as options of `format("dmq")`."""
    client = {f"kafka.{name}": value for name, value in session.client_config.items()}
    return {"kafka.bootstrap.servers": session.bootstrap} | client


def sampled_schema(session: Session, topic: str) -> str | None:
    """The schema of a topic's newest JSON values; None if there are none. Raises CommandError."""
    from confluent_kafka import KafkaException, TopicPartition

    from dmq.cli.kafka_errors import failure
    from dmq.spark.pipelines.inferring import SAMPLE_MAX, schema_of

    settings = {"group.id": "dmq-cli-sample", "enable.auto.commit": False}
    consumer = session.consumer(settings | {"enable.partition.eof": True})
    values: list[bytes | None] = []
    try:
        partitions = consumer.list_topics(topic, timeout=REQUEST_TIMEOUT_S).topics[topic]
        if partitions.error is not None or not partitions.partitions:
            raise CommandError(f"there is no topic {topic!r}", code=Exit.NOT_FOUND)
        each = max(1, SAMPLE_MAX // len(partitions.partitions))
        starts = []
        for number in partitions.partitions:
            where = TopicPartition(topic, number)
            low, high = consumer.get_watermark_offsets(where, timeout=REQUEST_TIMEOUT_S)
            if high > low:
                starts.append(TopicPartition(topic, number, max(low, high - each)))
        consumer.assign(starts)
        open_ = len(starts)
        deadline = time.monotonic() + REQUEST_TIMEOUT_S
        while open_ > 0 and time.monotonic() < deadline:
            for message in consumer.consume(_SAMPLES_AT_ONCE, timeout=_POLL_S):
                if message.error() is None:
                    values.append(message.value())
                else:  # The end of a partition.
                    open_ -= 1
    except KafkaException as error:
        raise failure(session, f"Reading {topic!r}", error) from error
    finally:
        consumer.close()
    return schema_of(values)
