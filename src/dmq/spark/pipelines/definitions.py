"""What the files of a project build on: a topic's records, parsed, and letters for those that don't.

Imported by what `dmq pipeline init` writes, so these names and columns stay as they are. All of it is
expressions of Spark's: a Connect server may have another Python than the project, and would refuse
functions of ours. So the reasons are a little shorter than those of `dmq pipeline land`.
"""

from typing import TYPE_CHECKING

from dmq.spark.pipelines.dead_letters import letters
from dmq.spark.pipelines.json_values import JsonValues, schema_of_ddl

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructField, StructType

_BROKEN = "__broken"
_SHOWN_MAX = 40


class Values:
    """JSON values of one schema, given as `id STRING NOT NULL, amount DOUBLE`.

    To be made at the top of a file: Spark refuses to look at a schema inside of a definition.
    """

    def __init__(self, schema: str) -> None:
        self._json = JsonValues(schema)
        self._schema = schema_of_ddl(schema)

    def parse(self, records: "DataFrame") -> "DataFrame":
        """The records with `parsed`, a struct of the fields, and `is_good`: it is as the schema says."""
        return self._json.parse(records)

    def dead_letters(self, bad: "DataFrame") -> "DataFrame":
        """Records that are not good, as they came, with the reason and the place in headers.

        They must have been read with `includeHeaders`, since a letter has the record's own headers, too.
        """
        return letters(bad.withColumn("reason", reason_of(self._schema)))


def reason_of(schema: "StructType") -> "Column":
    """Why a value is not JSON of the schema; that there is no key, if nothing else is wrong."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructType, VariantType

    key, value = f.col("key"), f.col("value")
    text = value.cast("string")
    document = f.try_parse_json(text)
    kind = f.schema_of_variant(document)
    no_object = f.concat(f.lit("a JSON "), kind, f.lit(", not an object"))
    raw = f.from_json(text, StructType([_as(each, VariantType()) for each in schema.fields]))
    wrong = [_wrong(text, each, f.to_json(raw[each.name])) for each in schema.fields]
    wrong += [f.when(key.isNull(), "no key"), f.lit("not JSON of the declared schema")]
    return (
        f.when(value.isNull() & key.isNull(), "neither key nor value")
        .when(value.isNull(), "no value")
        .when(~f.is_valid_utf8(text), "not UTF-8")
        .when(document.isNull(), "not JSON")
        .when(~kind.startswith("OBJECT"), no_object)
        .otherwise(f.coalesce(*wrong))
    )


def _wrong(text: "Column", field: "StructField", found: "Column") -> "Column":
    """What is wrong with one field, whose JSON was found, or null."""
    from pyspark.sql import functions as f

    is_missing = found.isNull() | (found == "null")
    dots = f.when(f.length(found) > _SHOWN_MAX, "…").otherwise("")
    shown = f.concat(f.left(found, f.lit(_SHOWN_MAX)), dots)
    kind = field.dataType.typeName()
    told = f.concat(f.lit(f"field {field.name}: "), shown, f.lit(f" is no {kind}"))
    wrong = f.when(~is_missing & _is_broken(text, field), told)
    if field.nullable:
        return wrong
    return f.when(is_missing, f"field {field.name} is missing").otherwise(wrong)


def _is_broken(text: "Column", field: "StructField") -> "Column":
    """Whether the parser refuses a field that is there."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import ArrayType, MapType, StringType, StructType

    if not isinstance(field.dataType, ArrayType | MapType | StructType):
        return f.col("parsed")[field.name].isNull()
    # What has parts is not null for one of them, so the parser is asked about this field alone.
    alone = StructType([_as(field, field.dataType)]).add(_BROKEN, StringType())
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _BROKEN}
    return f.from_json(text, alone, options)[_BROKEN].isNotNull()


def _as(field: "StructField", kind: "DataType") -> "StructField":
    from pyspark.sql.types import StructField

    return StructField(field.name, kind)
