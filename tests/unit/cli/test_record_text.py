"""Records as text: columns, templates, and what a terminal is spared."""

import pytest

from dmq.cli.exits import CommandError, Exit
from dmq.cli.record_text import Incoming, Style, columns, printable, template

RECORD = Incoming(
    "t", 2, 5, 1_700_000_000_000, "create", b"k", b"v\xff", [("h", b"1"), ("h", b"2"), ("n", None)]
)
PLAIN = Style()


def test_the_default_line_is_the_value_unchanged() -> None:
    render = columns(offsets=False, times=False, headers=False, keys=False)
    assert render(RECORD, PLAIN) == b"v\xff\n"


def test_columns_stand_before_the_value_with_tabs() -> None:
    render = columns(offsets=True, times=True, headers=True, keys=True)
    expected = b"2\t5\t2023-11-14T22:13:20.000Z\th=1,h=2,n=NULL\tk\tv\xff\n"
    assert render(RECORD, PLAIN) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"{topic}-{partition}@{offset}\n", b"t-2@5\n"),
        (r"{key}\t{value_size}", b"k\t2"),
        ("{timestamp} {key_size}", b"1700000000000 1"),
        ("{header.h}{header.n}{header.none}", b"2NULLNULL"),
        ("{{{key}}}", b"{k}"),
        ("", b""),
    ],
)
def test_templates(text: str, expected: bytes) -> None:
    assert template(text)(RECORD, PLAIN) == expected


@pytest.mark.parametrize("text", ["{}", "{foo}", "{key", "}", "{Key}", "{key!r}"])
def test_a_template_with_an_unknown_field_is_a_usage_error(text: str) -> None:
    with pytest.raises(CommandError) as error:
        template(text)
    assert error.value.code is Exit.USAGE
    assert "value_size" in error.value.hint


def test_null_base64_and_missing_values() -> None:
    style = Style(null=b"-", is_base64=True)
    record = Incoming("t", 0, 0, None, None, None, b"\xff", [])
    assert template("{key} {value} {time} {key_size}")(record, style) == b"- /w== - -1"


def test_a_terminal_sees_no_control_characters() -> None:
    assert printable(b"a\x1b[2Jb\tc\nd\x9b\x7f") == rb"a\x1b[2Jb" + b"\tc\nd" + rb"\x9b\x7f"
    assert printable("ü\u0085".encode()) == "ü".encode() + rb"\x85"
    assert Style(is_terminal=True).show(b"\r") == rb"\x0d"
