"""`docs/CLI.md` knows every command, option and exit code."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from dmq.cli.app import app
from dmq.cli.exits import Exit
from dmq.cli.record_text import FIELDS

PAGE = (Path(__file__).parents[3] / "docs" / "CLI.md").read_text()


def commands(command: Any) -> Iterator[Any]:
    names = command.list_commands(None) if hasattr(command, "list_commands") else []
    if not names:
        yield command
    for name in names:
        yield from commands(command.get_command(None, name))


def test_every_option_is_on_the_page() -> None:
    missing = {
        f"{command.name} {option}"
        for command in commands(typer.main.get_command(app))
        for param in command.params
        if param.param_type_name == "option"
        for option in param.opts
        if f"`{option}" not in PAGE
    }
    assert missing == set()


def test_every_exit_code_and_template_field_is_on_the_page() -> None:
    for code in Exit:
        assert f"\n| {code.value} | " in PAGE
    for field in FIELDS:
        assert f"{{{field}}}" in PAGE
