"""Help without Python's types: a flag is a flag, not a `<bool>`.

Owns what typer shows beside an option's name: the metavar that we gave it, or nothing. Used as the
class of every command and group.
"""

from typing import Any

from typer.core import TyperCommand, TyperGroup


def _without_type(parameter: Any) -> Any:
    """The parameter, with its metavar and nothing else in the help's column of types."""
    is_argument = parameter.param_type_name == "argument"
    word = "" if is_argument else parameter.metavar or ""
    parameter.display_type_rich = lambda ctx: word
    return parameter


class PlainCommand(TyperCommand):
    """A command with plain help."""

    def get_params(self, ctx: Any) -> Any:
        """The parameters, `--help` among them."""
        return [_without_type(each) for each in super().get_params(ctx)]


class PlainGroup(TyperGroup):
    """A group with plain help."""

    def get_params(self, ctx: Any) -> Any:
        """The parameters, `--help` among them."""
        return [_without_type(each) for each in super().get_params(ctx)]
