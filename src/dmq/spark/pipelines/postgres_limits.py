"""What PostgreSQL does not take though it parsed: told of a row before it is sent.

A row that PostgreSQL refuses would end its batch, and the batch would come again, and end again: one
record would stop a landing for good. So it is asked here what PostgreSQL will say, in Spark's own
expressions, and such a record is a dead letter.
"""

from collections.abc import Collection
from functools import reduce
from operator import add
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructField, StructType

NESTED = ("struct", "array", "map")
"""Types that become JSON."""
KEY_BYTES_MAX = 2_500
"""An entry of an index is at most 2,704 bytes, with its own overhead and that of each column."""
_JSON_GROWS = 8
"""So many times larger than its text a `jsonb` may be: `[1,1,1]`."""
_MOMENTS = ("timestamp", "timestamp_ntz", "date")
_NUL = "\x00"
_NUL_IN_JSON = r"(?<!\\)(\\\\)*\\u0000"
"""A NUL as JSON has it, and not the text `\\u0000` behind a backslash of its own."""


def refusal(row: "StructType", keys: Collection[str]) -> "Column":
    """Why PostgreSQL would not take the struct in the column `row`; null if it would."""
    from pyspark.sql import functions as f

    found = [_null_key(name) for name in keys]
    found += [each for field in row.fields for each in _of_field(field, field.name in keys)]
    found += _long_key([field for field in row.fields if field.name in keys])
    return f.coalesce(*found)


def text_of_key(key: "Column") -> "Column":
    """A record's key if it is text that PostgreSQL takes, else null: many keys are numbers in bytes."""
    from pyspark.sql import functions as f

    return f.when(f.is_valid_utf8(key) & ~key.contains(_NUL), key)


def _column(name: str) -> "Column":
    from pyspark.sql import functions as f

    return f.col(f"row.`{name.replace('`', '``')}`")


def _null_key(name: str) -> "Column":
    from pyspark.sql import functions as f

    return f.when(_column(name).isNull(), f.lit(f"the key {name} is null"))


def _of_field(field: "StructField", is_key: bool) -> "list[Column]":
    from pyspark.sql import functions as f

    name, kind = field.name, field.dataType.typeName()
    column = _column(name)
    if name == "_key":
        words = "the key _key is not text that PostgreSQL can store: not UTF-8, or with NUL"
        return [f.when(text_of_key(column).isNull(), f.lit(words))] if is_key else []
    if kind in _MOMENTS:
        words = f"field {name} is outside of the years 1 to 9999"
        return [f.when(~f.year(column).between(1, 9999), f.lit(words))]
    words = f"field {name} contains NUL, which PostgreSQL cannot store"
    if kind in NESTED:
        return [f.when(f.to_json(column).rlike(_NUL_IN_JSON), f.lit(words))]
    if kind in _FIXED or kind.startswith("decimal"):
        return []
    return [f.when(column.cast("string").contains(_NUL), f.lit(words))]


_FIXED = ("byte", "short", "integer", "long", "float", "double", "boolean", "binary")


def _long_key(keys: "list[StructField]") -> "list[Column]":
    from pyspark.sql import functions as f

    sizes = [_size(field.name, field.dataType) for field in keys]
    if not sizes:
        return []
    words = f"the key is longer than {KEY_BYTES_MAX:,} bytes, which PostgreSQL cannot index"
    return [f.when(reduce(add, sizes) > KEY_BYTES_MAX, f.lit(words))]


def _size(name: str, kind: "DataType") -> "Column":
    from pyspark.sql import functions as f

    column = _column(name)
    if kind.typeName() in NESTED:
        return f.octet_length(f.to_json(column)) * _JSON_GROWS
    return f.octet_length(column if kind.typeName() == "binary" else column.cast("string"))
