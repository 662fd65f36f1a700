"""Projects to begin with: the five templates and how one is written out.

A template is a folder of text files beside this module; `{{word}}` stands for what the caller gives.
Owns the words that each template needs. Imports no Spark.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dmq.spark.pipelines.failures import PipelineError
from dmq.spark.pipelines.schema_text import Field, check, fields_of

_HERE = Path(__file__).parent
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_NUMBER = re.compile(
    r"(BIG|SMALL|TINY)?INT|INTEGER|LONG|SHORT|BYTE|DOUBLE|FLOAT|REAL|DEC|DECIMAL|NUMERIC"
)
_WHERE = ("_key", "_partition", "_offset", "_timestamp")
"""Columns that say where in the topic a row was."""
_PARSERS = "__broken"
"""A field that the parser adds for itself while it works."""
SCHEMA_EXAMPLE = "id STRING, at TIMESTAMP, amount DOUBLE"


@dataclass(frozen=True, slots=True)
class Template:
    """What a template makes, and what it needs to be told."""

    name: str
    title: str
    needs: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    """What its tables have beside the fields of the values."""
    configuration: Mapping[str, str] = field(default_factory=dict)


TEMPLATES = {
    each.name: each
    for each in (
        Template(
            "table",
            "a topic as a table of Parquet files",
            columns=(*_WHERE, "_day"),
        ),
        Template("aggregate", "a topic, summed up per key and minute, into a topic"),
        Template(
            "cdc",
            "a topic of changes as a table of the current state",
            columns=(*_WHERE, "_is_gone"),
        ),
        Template(
            "backfill",
            "a table's rows as records of a topic",
            ("table",),
            configuration={"spark.sql.streaming.schemaInference": "true"},
        ),
        Template("join", "two topics, joined, as a table", ("with",)),
    )
}


@dataclass(frozen=True, slots=True)
class Words:
    """What the caller gives; see `dmq pipeline init --help`."""

    topic: str
    bootstrap: str
    schema: str | None = None
    to: str | None = None
    with_: str | None = None
    with_schema: str | None = None
    on: str | None = None
    table: str | None = None
    key: str | None = None


def write(folder: Path, template: Template, words: Words) -> list[Path]:
    """Write a project into a folder that is not there yet; the files that it has."""
    name = folder.name
    if not _NAME.fullmatch(name):
        raise PipelineError(
            f"{name!r} is no name for a project", "Use letters, digits, - and _, a letter first."
        )
    if folder.exists():
        raise PipelineError(f"{folder} is there already", "Choose another name, or remove it.")
    given = _filled(folder, template, words)
    made = []
    for source, target in _files(template):
        path = folder / _fill(target, given)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_fill(source.read_text(), given))
        made.append(path)
    return made


def _files(template: Template) -> list[tuple[Path, str]]:
    """(file of the template, its place in the project)."""
    common = [
        (_HERE / "common" / "spark-pipeline.yml.txt", "spark-pipeline.yml"),
        (_HERE / "common" / "README.md.txt", "README.md"),
        (_HERE / "common" / "gitignore.txt", ".gitignore"),
    ]
    own = _HERE / template.name
    return common + [
        (path, path.relative_to(own).as_posix().removesuffix(".txt"))
        for path in sorted(own.rglob("*.txt"))
    ]


def _filled(folder: Path, template: Template, words: Words) -> dict[str, str]:
    missing = [each for each in template.needs if not getattr(words, _attribute(each))]
    if missing:
        options = ", ".join(f"--{each}" for each in missing)
        raise PipelineError(f"Template {template.name} needs {options}")
    schema = words.schema or SCHEMA_EXAMPLE
    other = words.with_schema or SCHEMA_EXAMPLE
    for each in (schema, other):
        check(each, (*template.columns, _PARSERS))
    fields = fields_of(schema)
    on = words.on or fields[0].name
    _check_join(words, on)
    conf = [f"  {key}: {value!r}" for key, value in template.configuration.items()]
    return {
        "name": folder.name,
        "module": re.sub(r"\W", "_", folder.name),
        "about": f"Made by `dmq pipeline init --template {template.name}`: {template.title}.",
        "storage": (folder.resolve() / "storage").as_uri(),
        "configuration": "\n".join(conf),
        "bootstrap": words.bootstrap,
        "topic": words.topic,
        "dead": f"{words.topic}-dead",
        "to": words.to or f"{words.topic}-per-minute",
        "schema": _text(schema),
        "schema_note": _schema_note(words),
        "amount": _amount(fields),
        "with": words.with_ or "",
        "with_schema": _text(other),
        "on": _text(on),
        "table": _text(str(Path(words.table or "").expanduser().resolve())),
        "key": f"F.col({_text(_quoted(words.key))})" if words.key else "F.lit(None)",
        "gone": _gone(fields),
    }


def _attribute(word: str) -> str:
    return "with_" if word == "with" else word


def _schema_note(words: Words) -> str:
    if words.schema:
        return "The fields of a value, with Spark's types."
    return "The fields of a value, with Spark's types: an example, put yours here."


def _check_join(words: Words, on: str) -> None:
    """Raise PipelineError if the two topics of a join can't be joined."""
    if words.with_ is None:
        return
    if words.with_ == words.topic:
        raise PipelineError(
            f"{words.topic} would be joined with itself", "Name another topic after --with."
        )
    for topic, schema in ((words.topic, words.schema), (words.with_, words.with_schema)):
        if schema is not None and on not in [each.name for each in fields_of(schema)]:
            raise PipelineError(
                f"The values of {topic} have no field {on}",
                "Name a field that both topics have: --on FIELD.",
            )


def _gone(fields: Sequence[Field]) -> str:
    """When a change says that its row is gone."""
    no_value = 'F.col("value").isNull()'
    for name, kind in fields:
        if name.lower() == "op" and kind.upper().startswith("STRING"):
            deleted = f'F.lower(F.col("parsed")[{_text(name)}]).isin("d", "delete")'
            return f"{no_value} | F.coalesce({deleted}, F.lit(False))"
    return no_value


def _amount(fields: Sequence[Field]) -> str:
    """The field that looks most like something to sum up."""
    for name, kind in fields:
        first = re.match(r"\w*", kind.upper())
        if first and _NUMBER.fullmatch(first[0]) and not name.lower().endswith("id"):
            return f'F.col("parsed")[{_text(name)}]'
    return "F.lit(1)"


def _text(text: str) -> str:
    """Python's text for a text, whatever is in it."""
    return json.dumps(text, ensure_ascii=False)


def _quoted(column: str) -> str:
    """A column's name as Spark reads it: a dot would lead into it."""
    return "`" + column.replace("`", "``") + "`"


def _fill(text: str, given: Mapping[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda match: given[match[1]], text)
