"""A schema as text, `id STRING, amount DOUBLE`: its fields, and those that a table can't have.

For `dmq pipeline init`, which starts no Spark. Whether the types hold is Spark's to say.
"""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from dmq.spark.pipelines.failures import PipelineError

_FIELD = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^\s:`]+))\s*:?\s*(.*)", re.DOTALL)
_STRUCT = re.compile(r"STRUCT\s*<", re.IGNORECASE)
_QUOTES = "`'\""


class Field(NamedTuple):
    """One field: its name as the values have it, and its type with what follows it."""

    name: str
    type: str


def fields_of(schema: str) -> list[Field]:
    """The fields of the top level, in order."""
    found = [_FIELD.fullmatch(part) for part in _parts(schema)]
    return [
        Field((each[1] or "").replace("``", "`") or each[2], each[3].strip())
        for each in found
        if each is not None
    ]


def check(schema: str, taken: Iterable[str]) -> None:
    """Raise PipelineError if a table can't have these fields beside the columns that are taken."""
    fields = fields_of(schema)
    if not fields:
        raise PipelineError(
            f"There are no fields in the schema {schema!r}",
            "Write them with Spark's types, as in 'id STRING, amount DOUBLE'.",
        )
    columns = {each.lower() for each in taken}
    clash = [each.name for each in fields if each.name.lower() in columns]
    if clash:
        raise PipelineError(
            f"The values have fields called {', '.join(clash)}, as columns of the template are",
            "Leave them out: say with --schema which fields are wanted.",
        )
    for names in _levels(fields):
        _check_twins(names)


def _check_twins(names: list[str]) -> None:
    seen: dict[str, str] = {}
    for name in names:
        if name.lower() in seen:
            raise PipelineError(
                f"The values have fields called {seen[name.lower()]} and {name}, one to Spark",
                "Say with --schema which of them is wanted.",
            )
        seen[name.lower()] = name


def _levels(fields: list[Field]) -> Iterator[list[str]]:
    """The names that stand side by side: of the top level, then of each struct."""
    yield [each.name for each in fields]
    for each in fields:
        opening = _STRUCT.search(each.type)
        if opening is not None:
            yield from _levels(fields_of(_inside(each.type[opening.end() :])))


def _inside(text: str) -> str:
    """What comes before the `>` that closes a `<` to the left of the text."""
    depth = 1
    for at, sign in _bare(text):
        depth += (sign == "<") - (sign == ">")
        if depth == 0:
            return text[:at]
    return text


def _parts(text: str) -> Iterator[str]:
    """What stands between the commas of the top level."""
    depth, start = 0, 0
    for at, sign in _bare(text):
        depth += (sign in "<(") - (sign in ">)")
        if sign == "," and depth == 0:
            yield text[start:at]
            start = at + 1
    yield text[start:]


def _bare(text: str) -> Iterator[tuple[int, str]]:
    """Places and signs that no quotes are around: names and comments may have any sign."""
    quote = ""
    for at, sign in enumerate(text):
        if quote:
            quote = "" if sign == quote else quote
        elif sign in _QUOTES:
            quote = sign
        else:
            yield at, sign
