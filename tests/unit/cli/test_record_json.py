"""The JSON of a record: what consume writes, produce reads."""

import base64
import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmq.cli.consume import json_line
from dmq.cli.record_json import Outgoing, RecordError, parse
from dmq.cli.record_text import Incoming

some_bytes = st.none() | st.binary(max_size=40) | st.text(max_size=20).map(str.encode)
headers = st.lists(st.tuples(st.text(max_size=8), some_bytes), max_size=4)


@given(
    key=some_bytes,
    value=some_bytes,
    headers=headers,
    timestamp=st.none() | st.integers(0, 2**53),
    partition=st.integers(0, 2**31 - 1),
    base64_only=st.booleans(),
)
def test_a_consumed_line_produces_the_same_record(
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
    timestamp: int | None,
    partition: int,
    base64_only: bool,
) -> None:
    kind = None if timestamp is None else "create"
    record = Incoming("t", partition, 7, timestamp, kind, key, value, headers)
    line = json_line(record, base64_only=base64_only)
    assert line.count(b"\n") == 1
    assert parse(line) == Outgoing(value, key, headers, partition, timestamp)


def test_the_schema_is_stable() -> None:
    record = Incoming("t", 1, 7, 1_700_000_000_000, "create", b"k", b"\xff", [("h", b"x")])
    assert json.loads(json_line(record)) == {
        "topic": "t",
        "partition": 1,
        "offset": 7,
        "timestamp": 1_700_000_000_000,
        "timestamp_type": "create",
        "key": "k",
        "value_base64": base64.b64encode(b"\xff").decode(),
        "headers": [{"key": "h", "value": "x"}],
    }


def test_values_that_are_json_go_as_json() -> None:
    assert parse('{"value": {"a": [1, "ü"]}}').value == '{"a":[1,"ü"]}'.encode()
    assert parse('{"value": 7, "key": true}') == Outgoing(b"7", b"true")


def test_headers_may_be_an_object() -> None:
    assert parse('{"value": "v", "headers": {"a": "1", "b": null}}').headers == [
        ("a", b"1"),
        ("b", None),
    ]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("", "no JSON"),
        ("[1]", "no JSON object"),
        ("{}", 'no "value"'),
        ('{"key": "k"}', "tombstone"),
        ('{"value": "v", "ke": "k"}', "unknown field 'ke'"),
        ('{"value": "v", "value_base64": "dg=="}', "both"),
        ('{"value_base64": "*"}', "no base64"),
        ('{"value_base64": 7}', "no base64"),
        ('{"value": "v", "partition": -1}', "partition"),
        ('{"value": "v", "partition": true}', "partition"),
        ('{"value": "v", "timestamp": "now"}', "timestamp"),
        ('{"value": "v", "headers": "h"}', "headers"),
        ('{"value": "v", "headers": [["h", "x"]]}', "header"),
        ('{"value": "v", "headers": [{"value": "x"}]}', "header"),
    ],
)
def test_a_line_that_is_no_record_says_why(line: str, why: str) -> None:
    with pytest.raises(RecordError, match=why):
        parse(line)


@given(st.binary(max_size=60) | st.text(max_size=60))
def test_any_line_is_a_record_or_a_record_error(line: bytes | str) -> None:
    with suppress(RecordError):
        assert isinstance(parse(line), Outgoing)
