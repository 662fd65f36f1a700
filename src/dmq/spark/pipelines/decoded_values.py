"""Values that Python decodes, record by record: what Avro and Protobuf have in common.

Spark reads these formats only with a jar. Here a function in the executors turns bytes into Python
values and Arrow makes columns of them; a value that can't be decoded has its reason instead.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

Decoder = Callable[[bytes], dict[str, Any]]
"""The fields of a value. Raises ValueError with the reason."""


class DecodedValues:
    """A format whose values a decoder reads; `make` builds one in each executor."""

    def __init__(self, type_: "StructType", make: Callable[[], Decoder], skip_bytes: int) -> None:
        self.fields = tuple(type_.fieldNames())
        self._type = type_
        self._make = make
        self._skip_bytes = skip_bytes

    def parse(self, records: "DataFrame") -> "DataFrame":
        """The records with `parsed`, `reason` and `is_good`."""
        from pyspark.sql import functions as f
        from pyspark.sql.types import StringType, StructType

        schema = StructType([*records.schema.fields])
        schema = schema.add("parsed", self._type).add("reason", StringType())
        told = records.mapInArrow(_mapper(self._type, self._make, self._skip_bytes), schema)
        return told.withColumn("is_good", f.col("reason").isNull())

    def reasons(self, bad: "DataFrame") -> "DataFrame":
        """Records that are not good: they have their `reason` already."""
        return bad


def _mapper(type_: "StructType", make: Callable[[], Decoder], skip_bytes: int) -> Any:
    """What an executor does with its share of the records."""

    def decode_all(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_type

        arrow_type = to_arrow_type(type_, timezone="UTC")
        decoder = make()
        for batch in batches:
            values = batch.column("value").to_pylist()
            results = [decoded(decoder, value, skip_bytes) for value in values]
            parsed = pa.array([fields for fields, _ in results], type=arrow_type)
            reasons = pa.array([reason for _, reason in results], type=pa.string())
            names = [*batch.schema.names, "parsed", "reason"]
            yield pa.RecordBatch.from_arrays([*batch.columns, parsed, reasons], names=names)

    return decode_all


def decoded(
    decoder: Decoder, value: bytes | None, skip_bytes: int
) -> tuple[dict[str, Any] | None, str | None]:
    """(fields, None) or (None, the reason)."""
    if value is None:
        return None, "no value"
    if len(value) < skip_bytes:
        return None, f"only {len(value)} bytes: {skip_bytes} are to be skipped"
    try:
        return decoder(value[skip_bytes:]), None
    except ValueError as error:
        return None, str(error)
