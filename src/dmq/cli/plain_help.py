"""Help without Python's types: a flag is a flag, not a `<bool>`.

Owns what typer shows beside an option's name: the metavar that we gave it, or nothing; and the words
for a value that does not fit. Used as the class of every command and group.
"""

import re
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

_WORDS = (
    (r"Input should be a valid integer.*", "it should be a whole number"),
    (r"Input should be a valid number.*", "it should be a number"),
    (r"Input should be greater than or equal to (\S+)", r"it should be \1 or more"),
    (r"Input should be less than or equal to (\S+)", r"it should be \1 or less"),
)
"""What the library that checks values says, and what we say."""


def _without_type(parameter: Any) -> Any:
    """The parameter, with its metavar and nothing else in the help's column of types."""
    is_argument = parameter.param_type_name == "argument"
    word = "" if is_argument else parameter.metavar or ""
    parameter.display_type_rich = lambda ctx: word
    return parameter


class PlainCommand(TyperCommand):
    """A command with plain help."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As usual, and in plain words if a value does not fit."""
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            for said, words in _WORDS:
                error.message = re.sub(said, words, error.message)
            raise

    def get_params(self, ctx: Any) -> Any:
        """The parameters, `--help` among them."""
        return [_without_type(each) for each in super().get_params(ctx)]


class PlainGroup(TyperGroup):
    """A group with plain help."""

    def get_params(self, ctx: Any) -> Any:
        """The parameters, `--help` among them."""
        return [_without_type(each) for each in super().get_params(ctx)]
