"""What projects build on: values that parse, and why others don't."""

from datetime import datetime

from pyspark.sql import SparkSession

from dmq.spark.pipelines.definitions import Values

SCHEMA = """
    id STRING NOT NULL, n BIGINT, price STRUCT<amount: DOUBLE>, tags ARRAY<STRING>, at TIMESTAMP,
    `odd ``name'"` INT, key STRING, value STRING, reason STRING
"""
GOOD = (b'{"id": "a"}', b'{"id": "a", "n": 1, "key": "k", "value": "v", "reason": "r", "more": 1}')
REASONS = {
    None: "no value",
    b'{"id": "a", \xff}': "not UTF-8",
    b'{"id": "a"': "not JSON",
    b" ": "not JSON",
    b"[1]": "a JSON ARRAY<BIGINT>, not an object",
    b"null": "a JSON VOID, not an object",
    b'{"n": 3}': "field id is missing",
    b'{"id": null}': "field id is missing",
    b'{"id": "a", "n": "3"}': 'field n: "3" is no long',
    b'{"id": "a", "n": 9223372036854775808}': "field n: 9223372036854775808 is no long",
    b'{"id": "a", "price": {"amount": "x"}}': 'field price: {"amount":"x"} is no struct',
    b'{"id": "a", "tags": "x"}': 'field tags: "x" is no array',
    b'{"id": "a", "n": 1, "at": "soon", "key": "k"}': 'field at: "soon" is no timestamp',
    b'{"id": "a", "at": "' + b"x" * 90 + b'"}': f'field at: "{"x" * 39}… is no timestamp',
    b'{"id": "a", "odd `name\'\\"": "x"}': 'field odd `name\'": "x" is no integer',
}


RECORD = """
    key BINARY, value BINARY, topic STRING, partition INT, offset LONG, timestamp TIMESTAMP,
    headers ARRAY<STRUCT<key: STRING, value: BINARY>>
"""


def test_values_parse_or_there_is_a_reason(spark: SparkSession) -> None:
    pairs = [(b"k", value) for value in (*GOOD, *REASONS)] + [(None, None), (None, GOOD[0])]
    at = datetime(2026, 1, 31)
    rows = [(*pair, "t", 0, offset, at, None) for offset, pair in enumerate(pairs)]
    values = Values(SCHEMA)
    records = values.parse(spark.createDataFrame(rows, RECORD))
    good = records.where("is_good").sort("offset").collect()
    assert [row.value for row in good] == [*GOOD, GOOD[0]]
    assert good[1].parsed.key == "k"
    bad = values.dead_letters(records.where("NOT is_good OR key IS NULL")).collect()
    reasons = {(row.key, row.value): row.headers[0]["value"].decode() for row in bad}
    assert reasons == {(b"k", value): reason for value, reason in REASONS.items()} | {
        (None, None): "neither key nor value",
        (None, GOOD[0]): "no key",
    }
