"""`dmq config`: every setting is listed and explained."""

import json

import pytest

from dmq.cli.app import run
from dmq.cli.config import TABLES, environment_name, first_sentence
from dmq.cli.exits import Exit
from dmq.config.load import read_environment


def listed(capsys: pytest.CaptureFixture[str], *args: str) -> list[dict[str, object]]:
    assert run(["config", "list", "--json", *args]) == 0
    settings: list[dict[str, object]] = json.loads(capsys.readouterr().out)["settings"]
    return settings


def test_every_setting_is_listed_with_type_default_and_documentation(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = listed(capsys)
    assert {(s["for"], s["name"]) for s in found} == {
        (kind, name) for kind, table in TABLES.items() for name in table
    }
    for setting in found:
        assert setting["documentation"]
        assert setting["type"]


def test_filters(capsys: pytest.CaptureFixture[str]) -> None:
    assert {s["for"] for s in listed(capsys, "--for", "topic")} == {"topic"}
    assert all(s["importance"] == "high" for s in listed(capsys, "--importance", "high"))
    assert not any(s["inert"] for s in listed(capsys, "--active"))
    names = [s["name"] for s in listed(capsys, "retention.ms", "--for", "topic")]
    assert "retention.ms" in names
    assert "compression.type" not in names


def test_show_tells_all_of_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "show", "node.id"]) == 0
    text = capsys.readouterr().out
    assert "DMQ_NODE_ID" in text
    assert "default: 1" in text


def test_show_suggests_what_was_meant(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "show", "retention.m"]) == Exit.NOT_FOUND
    assert "retention.ms" in capsys.readouterr().err


def test_the_environment_names_are_those_that_are_read() -> None:
    names = list(TABLES["broker"])
    environ = {environment_name(name): "x" for name in names}
    assert {given.name for given in read_environment(environ)} == set(names)


def test_first_sentence() -> None:
    assert first_sentence("One. Two.") == "One."
    assert first_sentence("Only e.g this") == "Only e.g this"
