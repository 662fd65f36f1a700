"""JSON values: Spark's own parser reads them, Python says what is wrong with those it refuses.

The parser is strict about types: a text where a number is declared is a broken record, not a null.
Fields that are declared NOT NULL must be there. Fields that are not declared are left out. What is not
UTF-8 is broken; the parser would put other characters in its place.
"""

import json
import math
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from dmq.spark.pipelines.failures import PipelineError, first_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

_BROKEN = "__broken"
_SHOWN_MAX = 40
_WHOLE = {"byte": 2**7, "short": 2**15, "integer": 2**31, "long": 2**63}


class JsonValues:
    """Values of one schema, given as `id STRING NOT NULL, amount DOUBLE`."""

    def __init__(self, schema: str) -> None:
        self._schema = schema_of_ddl(schema)
        self.fields = tuple(self._schema.fieldNames())
        self._required = [field.name for field in self._schema.fields if not field.nullable]

    def parse(self, records: "DataFrame") -> "DataFrame":
        """The records with `parsed` and `is_good`."""
        from pyspark.sql import functions as f
        from pyspark.sql.types import StringType, StructType

        with_broken = StructType([*self._schema.fields]).add(_BROKEN, StringType())
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _BROKEN}
        text = f.col("value").cast("string")
        parsed = f.from_json(text, with_broken, options)
        good = f.col("parsed").isNotNull() & f.col(f"parsed.{_BROKEN}").isNull()
        good = good & f.is_valid_utf8(text)
        for name in self._required:
            good = good & f.col(f"parsed.`{name}`").isNotNull()
        told = records.withColumn("parsed", parsed).withColumn(
            "is_good", f.coalesce(good, f.lit(False))
        )
        return told.withColumn("parsed", f.col("parsed").dropFields(_BROKEN))

    def reasons(self, bad: "DataFrame") -> "DataFrame":
        """Records that are not good, with a column `reason`."""
        from pyspark.sql import functions as f
        from pyspark.sql.types import StringType

        schema = self._schema
        # A function without type hints: Spark would take them for those of a pandas function.
        reason = f.udf(lambda value: why_not(value and bytes(value), schema), StringType())
        return bad.withColumn("reason", reason(f.col("value")))


def schema_of_ddl(schema: str) -> "StructType":
    """Spark's type of `id STRING, amount DOUBLE`. Raises PipelineError."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        found = StructType.fromDDL(schema)
    except PySparkException as error:
        raise PipelineError(
            f"The schema does not hold: {first_line(error)}",
            "Write fields with Spark's types, as in 'id STRING, amount DOUBLE'.",
        ) from error
    assert isinstance(found, StructType)
    return found


def why_not(value: bytes | None, schema: "StructType") -> str:
    """What is wrong with a value that Spark's parser refused."""
    if value is None:
        return "no value"
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        return f"not UTF-8: byte {error.start} is 0x{value[error.start]:02x}"
    try:
        document = json.loads(text)
    except ValueError as error:
        return f"not JSON: {error}"
    if not isinstance(document, dict):
        return f"a JSON {_kind(document)}, not an object"
    for field in schema.fields:
        if not field.nullable and document.get(field.name) is None:
            return f"field {field.name} is missing"
    wrong = _mismatch("", document, schema)
    return wrong or "not JSON of the declared schema"


def _mismatch(path: str, value: Any, kind: "DataType") -> str | None:
    """The first place where a value is not of its type, in words."""
    from pyspark.sql.types import ArrayType, StructType

    if value is None:
        return None
    if isinstance(kind, StructType):
        if not isinstance(value, dict):
            return _wrong(path, value, "object")
        found = (
            _mismatch(f"{path}.{field.name}".lstrip("."), value.get(field.name), field.dataType)
            for field in kind.fields
        )
        return next((each for each in found if each), None)
    if isinstance(kind, ArrayType):
        if not isinstance(value, list):
            return _wrong(path, value, "array")
        items = (_mismatch(f"{path}[{i}]", each, kind.elementType) for i, each in enumerate(value))
        return next((each for each in items if each), None)
    return None if _fits(value, kind.typeName()) else _wrong(path, value, kind.typeName())


def _fits(value: Any, kind: str) -> bool:
    if kind in _WHOLE:
        limit = _WHOLE[kind]
        return isinstance(value, int) and not isinstance(value, bool) and -limit <= value < limit
    if kind in ("double", "float", "decimal"):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and (kind != "decimal" or math.isfinite(value))
    if kind == "boolean":
        return isinstance(value, bool)
    if kind in ("timestamp", "timestamp_ntz", "date"):
        return isinstance(value, str) and _is_moment(value, kind)
    return True


def _is_moment(text: str, kind: str) -> bool:
    try:
        (date if kind == "date" else datetime).fromisoformat(text)
    except ValueError:
        return False
    return True


def _wrong(path: str, value: Any, kind: str) -> str:
    shown = json.dumps(value, ensure_ascii=False)
    if len(shown) > _SHOWN_MAX:
        shown = shown[:_SHOWN_MAX] + "…"
    return f"field {path}: {shown} is no {kind}"


def _kind(value: Any) -> str:
    if isinstance(value, str):
        return "string"
    if isinstance(value, list):
        return "array"
    return "number" if isinstance(value, int | float) else "null"
