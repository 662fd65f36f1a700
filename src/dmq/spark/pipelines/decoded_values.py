"""Values that Python decodes, record by record: what Avro and Protobuf have in common.

Spark reads these formats only with a jar. Here a function in the executors turns bytes into Python
values and Arrow makes columns of them; a value that can't be decoded, or that decodes to more than its
column takes (an `int` of 40 bits, a decimal with too many digits), has its reason instead.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructField, StructType

Decoder = Callable[[bytes], dict[str, Any]]
"""The fields of a value. Raises ValueError with the reason."""
Decoded = tuple[dict[str, Any] | None, str | None]
"""(fields, None) or (None, the reason)."""
_SHOWN_MAX = 40


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

        decoder = make()
        for batch in batches:
            values = batch.column("value").to_pylist()
            results = [decoded(decoder, value, skip_bytes) for value in values]
            names = [*batch.schema.names, "parsed", "reason"]
            columns = [*batch.columns, *in_columns(results, type_)]
            yield pa.RecordBatch.from_arrays(columns, names=names)

    return decode_all


def in_columns(results: list[Decoded], type_: "StructType") -> "tuple[pa.Array, pa.Array]":
    """`parsed` and `reason`; what the columns don't take is refused value by value."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_type

    arrow_type = to_arrow_type(type_, timezone="UTC")
    parsed = _array([fields for fields, _ in results], arrow_type)
    if parsed is None:
        results = [_fitting(each, type_) for each in results]
        parsed = _array([fields for fields, _ in results], arrow_type)
        assert parsed is not None, "each value fits"
    return parsed, pa.array([reason for _, reason in results], type=pa.string())


def _array(values: list[Any], type_: "pa.DataType") -> "pa.Array | None":
    """None if one of the values is not of the type."""
    import pyarrow as pa

    try:
        return pa.array(values, type=type_)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return None


def _fitting(result: Decoded, type_: "StructType") -> Decoded:
    fields, _ = result
    if fields is None:
        return result
    wrong = next((each for each in type_.fields if not _fits(fields.get(each.name), each)), None)
    if wrong is None:
        return result
    shown = str(fields[wrong.name])
    if len(shown) > _SHOWN_MAX:
        shown = shown[:_SHOWN_MAX] + "…"
    return None, f"field {wrong.name}: {shown} is no {wrong.dataType.simpleString()}"


def _fits(value: Any, field: "StructField") -> bool:
    from pyspark.sql.pandas.types import to_arrow_type

    return _array([value], to_arrow_type(field.dataType, timezone="UTC")) is not None


def decoded(decoder: Decoder, value: bytes | None, skip_bytes: int) -> Decoded:
    """What a decoder makes of a value."""
    if value is None:
        return None, "no value"
    if len(value) < skip_bytes:
        return None, f"only {len(value)} bytes: {skip_bytes} are to be skipped"
    try:
        return decoder(value[skip_bytes:]), None
    except ValueError as error:
        return None, str(error)
