"""Schemas learnt from examples."""

import json
from typing import Any

import pytest

from dmq.spark.pipelines.inferring import schema_of


def learnt(*documents: Any) -> str | None:
    return schema_of(json.dumps(each).encode() for each in documents)


@pytest.mark.parametrize(
    ("documents", "schema"),
    [
        ([{"a": "x", "b": 1, "c": 1.5, "d": True}], "a STRING, b BIGINT, c DOUBLE, d BOOLEAN"),
        ([{"a": 1}, {"a": 2.5}], "a DOUBLE"),
        ([{"a": 1}, {"a": "x"}], "a STRING"),
        ([{"a": None}, {"a": 3}], "a BIGINT"),
        ([{"a": None}], "a STRING"),
        ([{"a": 2**70}], "a DOUBLE"),
        ([{"at": "2026-01-31T12:00:00Z"}], "at TIMESTAMP"),
        ([{"at": "2026-01-31T12:00:00Z"}, {"at": "soon"}], "at STRING"),
        ([{"at": "2026-13-31T12:00:00Z"}], "at STRING"),
        ([{"a": {"b": 1}}, {"a": {"c": "x"}}], "a STRUCT<b: BIGINT, c: STRING>"),
        ([{"a": [1, 2.5]}, {"a": []}], "a ARRAY<DOUBLE>"),
        ([{"odd name": 1, "tick`": 2}], "`odd name` BIGINT, `tick``` BIGINT"),
    ],
)
def test_types_are_the_narrowest_that_take_all_examples(documents: list[Any], schema: str) -> None:
    assert learnt(*documents) == schema


def test_a_rare_slip_widens_nothing() -> None:
    good = [{"n": i} for i in range(99)]
    assert learnt({"n": "oops"}, *good) == "n BIGINT"


def test_what_is_no_object_teaches_nothing() -> None:
    assert schema_of([None, b"", b"\xff", b"[1]", b"{"]) is None
    assert schema_of([b"{", b'{"a": 1}']) == "a BIGINT"
