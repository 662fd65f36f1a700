"""Avro values of a declared schema, decoded by fastavro."""

import io
import json
from typing import TYPE_CHECKING, Any

from dmq.spark.pipelines.decoded_values import DecodedValues, Decoder
from dmq.spark.pipelines.failures import PipelineError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_SHOWN_MAX = 100
_DIGITS_MAX = 38
"""Of Spark's decimals."""


def avro_values(schema: str, skip_bytes: int) -> DecodedValues:
    """The format of a schema in Avro's JSON. Raises PipelineError."""
    from fastavro.schema import SchemaParseException, parse_schema

    try:
        document = json.loads(schema)
        parse_schema(document)
    except (ValueError, SchemaParseException, KeyError, TypeError) as error:
        raise PipelineError(f"The Avro schema does not hold: {error}") from error
    return DecodedValues(type_of(document), lambda: decoder_of(schema), skip_bytes)


def decoder_of(schema: str) -> Decoder:
    """Bytes → fields."""
    from fastavro import schemaless_reader
    from fastavro.schema import parse_schema

    parsed = parse_schema(_plain(json.loads(schema)))

    def decode(value: bytes) -> dict[str, Any]:
        source = io.BytesIO(value)
        try:
            fields = schemaless_reader(source, parsed, None)
        # What fastavro raises on bytes that are not of the schema depends on where it stands then.
        except (EOFError, ValueError, IndexError, KeyError, TypeError, OverflowError) as error:
            raise ValueError(
                f"not Avro of the schema: {str(error) or type(error).__name__}"
            ) from error
        left = len(value) - source.tell()
        if left:
            raise ValueError(f"not Avro of the schema: {left} bytes are left over")
        assert isinstance(fields, dict)
        return fields

    return decode


def _plain(schema: Any) -> Any:
    """The schema without logical types that have no column of their own (`uuid`, `time-millis`):
    fastavro would make objects of them, and the column takes what they are written as."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    is_known = "logicalType" in schema and _logical(schema) is not None
    return {
        name: _plain(each) for name, each in schema.items() if is_known or name != "logicalType"
    }


def type_of(document: Any) -> "StructType":
    """Spark's type of a record's schema. Raises PipelineError for what has none."""
    from pyspark.sql.types import StructType

    found = _Types({}).of(document)
    if not isinstance(found, StructType):
        raise PipelineError("The Avro schema is not a record's", "A table needs fields.")
    return found


class _Types:
    """Translates schemas; knows the names that were declared on the way."""

    def __init__(self, named: dict[str, Any]) -> None:
        self._named = named
        self._open: set[str] = set()

    def of(self, schema: Any) -> "DataType":
        if isinstance(schema, list):
            return self._union(schema)
        if isinstance(schema, str):
            return self._of_name(schema)
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self.of(kind)
        if "logicalType" in schema and (logical := _logical(schema)) is not None:
            return logical
        if kind in ("record", "enum", "fixed"):
            self._named[schema["name"]] = schema
        return self._complex(kind, schema) if kind in _COMPLEX else self._of_name(kind)

    def _of_name(self, name: str) -> "DataType":
        from pyspark.sql import types as t

        plain: dict[str, DataType] = {
            "string": t.StringType(),
            "bytes": t.BinaryType(),
            "int": t.IntegerType(),
            "long": t.LongType(),
            "float": t.FloatType(),
            "double": t.DoubleType(),
            "boolean": t.BooleanType(),
            "null": t.NullType(),
        }
        if name in plain:
            return plain[name]
        if name not in self._named or name in self._open:
            raise PipelineError(f"The Avro type {name!r} has no column: is it part of itself?")
        return self.of(self._named[name])

    def _complex(self, kind: str, schema: Any) -> "DataType":
        from pyspark.sql import types as t

        if kind == "enum":
            return t.StringType()
        if kind == "fixed":
            return t.BinaryType()
        if kind == "array":
            return t.ArrayType(self.of(schema["items"]))
        if kind == "map":
            return t.MapType(t.StringType(), self.of(schema["values"]))
        self._open.add(schema["name"])
        fields = [t.StructField(each["name"], self.of(each["type"])) for each in schema["fields"]]
        self._open.discard(schema["name"])
        return t.StructType(fields)

    def _union(self, schemas: list[Any]) -> "DataType":
        real = [each for each in schemas if each != "null"]
        if len(real) != 1:
            shown = json.dumps(schemas)[:_SHOWN_MAX]
            raise PipelineError(f"A union of several types has no column: {shown}")
        return self.of(real[0])


_COMPLEX = ("record", "enum", "fixed", "array", "map")


def _logical(schema: Any) -> "DataType | None":
    from pyspark.sql import types as t

    name = schema["logicalType"]
    if name == "decimal":
        if schema["precision"] > _DIGITS_MAX:
            raise PipelineError(f"A decimal of more than {_DIGITS_MAX} digits has no column")
        return t.DecimalType(schema["precision"], schema.get("scale", 0))
    plain: dict[str, DataType] = {
        "date": t.DateType(),
        "timestamp-millis": t.TimestampType(),
        "timestamp-micros": t.TimestampType(),
        "local-timestamp-millis": t.TimestampNTZType(),
        "local-timestamp-micros": t.TimestampNTZType(),
    }
    return plain.get(name)
