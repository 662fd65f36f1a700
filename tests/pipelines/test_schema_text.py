"""Schemas as text, read without a Spark."""

import pytest

from dmq.spark.pipelines.failures import PipelineError
from dmq.spark.pipelines.schema_text import check, fields_of


@pytest.mark.parametrize(
    ("schema", "fields"),
    [
        ("id STRING, amount DOUBLE", [("id", "STRING"), ("amount", "DOUBLE")]),
        ("n: INT NOT NULL", [("n", "INT NOT NULL")]),
        ("n DECIMAL(10, 2), m MAP<STRING, INT>", [("n", "DECIMAL(10, 2)"), ("m", "MAP<STRING, INT>")]),
        ("s STRUCT<a: INT, b: INT>\n, t INT", [("s", "STRUCT<a: INT, b: INT>"), ("t", "INT")]),
        ("`odd, name` INT, `tick``<` INT", [("odd, name", "INT"), ("tick`<", "INT")]),
        ("id STRING COMMENT 'one, (two', n INT", [("id", "STRING COMMENT 'one, (two'"), ("n", "INT")]),
        (" ", []),
    ],
)  # fmt: skip
def test_fields_have_names_and_types(schema: str, fields: list[tuple[str, str]]) -> None:
    assert fields_of(schema) == fields


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("id STRING, _Offset INT", "fields called _Offset, as columns"),
        ("id STRING, ID STRING", "id and ID, one to Spark"),
        ("a ARRAY<STRUCT<b: INT, `B`: INT>>", "b and B, one to Spark"),
        ("a STRUCT<x: STRUCT<b: INT>, y: STRUCT<c: INT, C: INT>>", "c and C, one to Spark"),
        (" ", "no fields in the schema"),
    ],
)
def test_what_a_table_cant_have_is_refused(schema: str, why: str) -> None:
    with pytest.raises(PipelineError, match=why):
        check(schema, ("_offset",))


def test_the_same_name_in_two_structs_is_fine() -> None:
    check("a STRUCT<b: INT>, B STRUCT<b: INT, a: INT>, offset INT", ("_offset",))
