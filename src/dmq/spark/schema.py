"""The columns of the source: those of Spark's own Kafka source, in its order."""

from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from dmq.spark.failures import SparkSourceError

CREATE_TIME = 0
LOG_APPEND_TIME = 1
"""Values of the column `timestampType`."""


def source_schema(includes_headers: bool) -> StructType:
    """The schema; `headers` is there when it is asked for, since it costs time."""
    fields = [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
    if includes_headers:
        header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
        fields.append(StructField("headers", ArrayType(header)))
    return StructType(fields)


def check_schema(given: StructType, includes_headers: bool) -> None:
    """The schema can't be chosen. Raises SparkSourceError."""
    if given.simpleString() != source_schema(includes_headers).simpleString():
        raise SparkSourceError(
            f"the source has a schema of its own ({source_schema(includes_headers).simpleString()}),"
            f" but .schema({given.simpleString()}) was asked for; leave .schema(…) out and parse"
            " the value column, for example with from_json or from_avro"
        )


def arrow_schema(schema: StructType) -> Any:
    """The same in Arrow, exactly as Spark checks it."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")
