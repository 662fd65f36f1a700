"""How lines, arguments and files become records."""

import io
from pathlib import Path

import pytest

from dmq.cli.exits import CommandError, Exit
from dmq.cli.produce_input import Shape, file_lines, lines_of, records, unescape
from dmq.cli.record_json import Outgoing, RecordError


def test_a_line_is_a_value() -> None:
    assert Shape().record(b"a:b") == Outgoing(b"a:b")


def test_the_first_separator_parts_key_and_value() -> None:
    shape = Shape(separator=b":")
    assert shape.record(b"k:v:w") == Outgoing(b"v:w", b"k")
    assert shape.record(b":") == Outgoing(b"", b"")


def test_a_bad_line_does_not_stop_the_others() -> None:
    found = list(records([b"a:1", b"bad", b"b:2"], Shape(separator=b":")))
    assert found[0] == Outgoing(b"1", b"a")
    assert isinstance(found[1], RecordError)
    assert found[2] == Outgoing(b"2", b"b")


def test_null_applies_to_keys_and_values() -> None:
    shape = Shape(separator=b":", null=b"-")
    assert shape.record(b"-:-") == Outgoing(None, None)
    assert Shape(null=b"").record(b"") == Outgoing(None)


def test_base64() -> None:
    assert Shape(is_base64=True, separator=b":").record(b"/w==:AA==") == Outgoing(b"\0", b"\xff")
    with pytest.raises(RecordError, match="value is no base64"):
        Shape(is_base64=True).record(b"*")


def test_every_record_gets_the_shared_parts_that_it_does_not_bring_itself() -> None:
    shape = Shape(is_json=True, key=b"k", headers=[("a", b"1")], partition=3, timestamp_ms=9)
    assert shape.record(b'{"value": "v"}') == Outgoing(b"v", b"k", [("a", b"1")], 3, 9)
    own = b'{"value": "v", "key": "o", "partition": 0, "timestamp": 1, "headers": {"b": "2"}}'
    assert shape.record(own) == Outgoing(b"v", b"o", [("a", b"1"), ("b", b"2")], 0, 1)


def test_repartition_forgets_the_partition_of_the_input() -> None:
    line = b'{"value": "v", "partition": 7}'
    assert Shape(is_json=True, is_repartitioned=True).record(line).partition is None


def test_line_ends() -> None:
    assert list(lines_of(io.BytesIO(b"a\nb\r\n\nc\rd"))) == [b"a", b"b", b"", b"c\rd"]


def test_a_file_as_lines_and_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "records"
    path.write_bytes(b"a\nb\n")
    assert list(file_lines(str(path), whole=False)) == [b"a", b"b"]
    assert list(file_lines(str(path), whole=True)) == [b"a\nb\n"]


def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="no file") as error:
        list(file_lines(str(tmp_path / "none"), whole=False))
    assert error.value.code is Exit.NOT_FOUND


def test_escapes() -> None:
    assert unescape(r"\t|\n|\0") == "\t|\n|\0"
