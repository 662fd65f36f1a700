"""Plain tables, sizes, counts."""

import json

import pytest

from dmq.cli.output import Column, Output, count_of, human_size, plain_table


def test_a_plain_table_lines_up() -> None:
    text = plain_table([Column("name"), Column("size", True)], [["a", "1"], ["bcdef", "100"]])
    assert text == "NAME   SIZE\na         1\nbcdef   100\n"


def test_a_plain_table_keeps_rows_on_one_line() -> None:
    assert plain_table([Column("x")], [["a\nb"]]) == "X\na b\n"


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (5 << 30, "5.0 GiB"),
        (1 << 62, "4096.0 PiB"),
    ],
)
def test_human_size(size: int, text: str) -> None:
    assert human_size(size) == text


def test_count_of() -> None:
    assert [count_of(n, "record") for n in (0, 1, 1000)] == [
        "0 records",
        "1 record",
        "1,000 records",
    ]


def test_results_go_to_stdout_and_all_else_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output()
    output.say("result")
    output.note("note")
    output.error("went wrong", "Do this.")
    out, err = capsys.readouterr()
    assert out == "result\n"
    assert err == "note\nerror: went wrong. Do this.\n"


def test_quiet_silences_notes_and_json_silences_words(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output(json=True, quiet=True)
    output.say("result")
    output.note("note")
    output.emit({"a": "ü"})
    out, err = capsys.readouterr()
    assert json.loads(out) == {"a": "ü"}
    assert out.count("\n") == 1
    assert err == ""
