"""Record values as columns: which formats there are, and what each must be able to do.

A format adds two columns to the records of a topic: `parsed`, a struct of the declared fields, and
`is_good`. For records that are not good it can say why. Where the fields come from: declared by
the caller, or read off examples.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from dmq.spark.pipelines.failures import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FORMATS = ("json", "avro", "protobuf")


class ValueFormat(Protocol):
    """How values become columns."""

    fields: tuple[str, ...]
    """Names of the columns, in order."""

    def parse(self, records: "DataFrame") -> "DataFrame":
        """The records with `parsed` and `is_good`."""
        ...

    def reasons(self, bad: "DataFrame") -> "DataFrame":
        """Records that are not good, with a column `reason`."""
        ...


@dataclass(frozen=True, slots=True)
class Declared:
    """What the caller says of the values; kept beside the table, so that it is said once."""

    format: str
    schema: str
    """JSON: fields with Spark's types. Avro: the schema. Protobuf: a descriptor set, in base64."""
    message: str | None = None
    """Protobuf: the full name of the message."""
    skip_bytes: int = 0
    """Avro and Protobuf: bytes before the value, as schema registries put there."""


def format_of(declared: Declared) -> ValueFormat:
    """The format that was declared. Raises PipelineError if its schema does not hold."""
    if declared.format == "json":
        from dmq.spark.pipelines.json_values import JsonValues

        return JsonValues(declared.schema)
    if declared.format == "avro":
        from dmq.spark.pipelines.avro_values import avro_values

        return avro_values(declared.schema, declared.skip_bytes)
    if declared.format == "protobuf":
        from dmq.spark.pipelines.protobuf_values import protobuf_values

        return protobuf_values(declared.schema, declared.message, declared.skip_bytes)
    raise PipelineError(
        f"There is no format {declared.format!r}", f"Choose of {', '.join(FORMATS)}."
    )


def check_names(fields: Iterable[str], taken: Iterable[str]) -> None:
    """Raise PipelineError if a field is called like a column that landing adds."""
    both = sorted({name.lower() for name in fields} & {name.lower() for name in taken})
    if both:
        raise PipelineError(
            f"The values have fields called {', '.join(both)}, as columns of the table are",
            "Choose another --partition-by, or rename the fields.",
        )
