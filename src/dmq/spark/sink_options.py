"""What a user may say to the sink: options and columns, checked on the driver before any task runs.

Owns the names, the defaults and the sentences for wrong ones. Does no input or output.
"""

import difflib
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql.types import ArrayType, BinaryType, DataType, StringType, StructType

from dmq.codecs import Codec
from dmq.spark.cluster import Settings
from dmq.spark.encode import BATCH_BYTES_MAX
from dmq.spark.failures import SparkSourceError
from dmq.spark.partitioner import PARTITIONERS
from dmq.spark.security import SECURITY_OPTIONS

EXACTLY_ONCE = "exactly-once"
AT_LEAST_ONCE = "at-least-once"

TRANSACTION_TIMEOUT_MS = 600_000
"""Longer than most batches and a driver's restart, and below the 15 minutes that brokers allow."""
DELIVERY_TIMEOUT_MS = 120_000
"""How long a batch of records is offered to a cluster that does not take it; Java's default."""

_CLIENT = frozenset({
    "bootstrap.servers", "client.id", "request.timeout.ms", "default.api.timeout.ms",
    "socket.connection.setup.timeout.ms", "socket.connection.setup.timeout.max.ms",
    "transaction.timeout.ms", "delivery.timeout.ms",
    "max.request.size", "compression.type", "acks",
}) | SECURITY_OPTIONS  # fmt: skip
"""Client options that have a meaning here, and one that is spelt like one of them."""
_OPTIONS = ("topic", "delivery", "partitioner", "compression", "transactionalIdPrefix")
_CODECS = {codec.name.lower(): int(codec) for codec in Codec} | {"uncompressed": int(Codec.NONE)}
_NOT_YOURS = {
    "kafka.transactional.id": "the sink names its transactions itself; choose the beginning of the"
    " names with transactionalIdPrefix",
    "kafka.key.serializer": "keys are bytes or strings already: cast the column instead",
    "kafka.value.serializer": "values are bytes or strings already: cast the column instead",
    "kafka.partitioner.class": "Java classes can't run here; see the option partitioner",
}
_CASTS = {
    "value": "cast it, for example CAST(value AS STRING), or make JSON of it with to_json(struct(*))",
    "key": "cast it, for example CAST(key AS STRING)",
    "topic": "cast it, for example CAST(topic AS STRING)",
    "partition": "cast it, for example CAST(partition AS INT)",
    "headers": "it must be ARRAY<STRUCT<key: STRING, value: BINARY>>",
}


@dataclass(frozen=True)
class SinkOptions:
    """The options of one write. Goes to the executors with every task."""

    settings: Settings
    topic: str | None
    is_exactly_once: bool
    partitioner: str
    codec: int
    transaction_timeout_ms: int
    delivery_timeout_s: float
    batch_bytes_max: int
    prefix: str
    place: str
    """The checkpoint's location in short, in the names of a stream's transactions; "" if not told."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "SinkOptions":
        """From Spark's options, names in any case. Raises SparkSourceError."""
        given = {name.lower(): str(value) for name, value in options.items()}
        _refuse_unknown(given)
        client = {n.removeprefix("kafka."): v for n, v in given.items() if n.startswith("kafka.")}
        if client.get("acks", "all") not in ("all", "-1"):
            raise SparkSourceError(
                f"kafka.acks={client['acks']!r}: the sink waits for all replicas in sync; leave it out"
            )
        compression = given.get("compression", client.get("compression.type", "none"))
        delivery = given.get("delivery", EXACTLY_ONCE)
        return cls(
            settings=Settings.of(options),
            topic=given.get("topic") or None,
            is_exactly_once=_one_of("delivery", delivery, (EXACTLY_ONCE, AT_LEAST_ONCE))
            == EXACTLY_ONCE,
            partitioner=_one_of("partitioner", given.get("partitioner", "java"), PARTITIONERS),
            codec=_CODECS[_one_of("compression", compression, _CODECS)],
            transaction_timeout_ms=_number(
                client, "transaction.timeout.ms", TRANSACTION_TIMEOUT_MS, least=1000
            ),
            delivery_timeout_s=_number(client, "delivery.timeout.ms", DELIVERY_TIMEOUT_MS) / 1000,
            batch_bytes_max=_number(client, "max.request.size", BATCH_BYTES_MAX, least=1000),
            prefix=given.get("transactionalidprefix", "dmq-spark"),
            place=_in_short(given.get("checkpointlocation", "")),
        )


def _in_short(location: str) -> str:
    return hashlib.sha256(location.encode()).hexdigest()[:12] if location else ""


def _refuse_unknown(given: Mapping[str, str]) -> None:
    for name, why in _NOT_YOURS.items():
        if name in given:
            raise SparkSourceError(f"option {name} can't be set: {why}")
    known = {name.lower(): name for name in _OPTIONS}
    for name in given:
        # Spark adds options of its own (checkpointLocation, path), so only near misses are refused.
        if name not in known and not name.startswith("kafka."):
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
            if near:
                raise SparkSourceError(
                    f"there is no option {name!r}; did you mean {known[near[0]]!r}?"
                )
        elif name.startswith("kafka."):
            _refuse_misspelt(name)


def _refuse_misspelt(name: str) -> None:
    """Java's producer has many options which change nothing here; ours with a slip are no such."""
    short = name.removeprefix("kafka.")
    near = difflib.get_close_matches(short, _CLIENT, n=1, cutoff=0.9)
    if near and short not in _CLIENT:
        raise SparkSourceError(f"there is no option {name!r}; did you mean 'kafka.{near[0]}'?")


def _one_of(name: str, value: str, allowed: Mapping[str, object] | tuple[str, ...]) -> str:
    if value.lower() not in allowed:
        raise SparkSourceError(f"{name}={value!r}: choose one of {', '.join(allowed)}")
    return value.lower()


def _number(client: Mapping[str, str], name: str, default: int, least: int = 1) -> int:
    value = client.get(name, str(default))
    if not value.isdigit() or int(value) < least:
        raise SparkSourceError(f"kafka.{name}={value!r}: give a whole number of at least {least}")
    return int(value)


@dataclass(frozen=True)
class Columns:
    """Where the columns of the sink are among those of the data; None where one is missing."""

    value: int
    key: int | None = None
    headers: int | None = None
    topic: int | None = None
    partition: int | None = None

    @classmethod
    def of(cls, schema: StructType, options: SinkOptions) -> "Columns":
        """By their names in any case; other columns are left alone. Raises SparkSourceError."""
        found: dict[str, int] = {}
        for index, field in enumerate(schema.fields):
            name = field.name.lower()
            if name not in _CASTS:
                continue
            if name in found:
                raise SparkSourceError(f"there are two columns {name!r}: rename or drop one")
            _check_type(name, field.dataType)
            found[name] = index
        if "value" not in found:
            names = ", ".join(schema.fieldNames()) or "none"
            raise SparkSourceError(
                f"there is no column 'value' (columns: {names}); make one, for example with"
                " selectExpr('CAST(id AS STRING) AS key', 'to_json(struct(*)) AS value')"
            )
        if options.topic is None and "topic" not in found:
            raise SparkSourceError(
                "where to write? Set option(\"topic\", …), or give the data a column 'topic'"
            )
        return cls(**found)


def _check_type(name: str, kind: DataType) -> None:
    simple = kind.simpleString()
    if name == "headers":
        fits = isinstance(kind, ArrayType) and _is_header(kind.elementType)
    elif name == "partition":
        fits = simple == "int"
    elif name == "topic":
        fits = isinstance(kind, StringType)
    else:
        fits = isinstance(kind, StringType | BinaryType)
    if not fits:
        wanted = {"headers": "headers", "partition": "an int", "topic": "a string"}
        raise SparkSourceError(
            f"column {name!r} is of type {simple}, not {wanted.get(name, 'a string or binary')}:"
            f" {_CASTS[name]}"
        )


def _is_header(kind: DataType) -> bool:
    if not isinstance(kind, StructType) or len(kind.fields) != 2:
        return False
    name, value = kind.fields
    return (
        (name.name.lower(), value.name.lower()) == ("key", "value")
        and isinstance(name.dataType, StringType)
        and isinstance(value.dataType, BinaryType)
    )
