"""Projects to begin with: the five templates and how one is written out.

A template is a folder of text files beside this module; `{{word}}` stands for what the caller gives.
Owns the words that each template needs. Imports no Spark.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dmq.spark.pipelines.failures import PipelineError

_HERE = Path(__file__).parent
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_NUMERIC = ("BIGINT", "INT", "DOUBLE", "FLOAT", "DECIMAL")
SCHEMA_EXAMPLE = "id STRING, at TIMESTAMP, amount DOUBLE"


@dataclass(frozen=True, slots=True)
class Template:
    """What a template makes, and what it needs to be told."""

    name: str
    title: str
    needs: tuple[str, ...] = ()
    configuration: Mapping[str, str] = field(default_factory=dict)


TEMPLATES = {
    each.name: each
    for each in (
        Template("table", "a topic as a table of Parquet files, dead letters to a topic"),
        Template("aggregate", "a topic, summed up per key and minute, into a topic"),
        Template("cdc", "a topic of changes as a table of the current state"),
        Template(
            "backfill",
            "a table's rows as records of a topic",
            ("table",),
            {"spark.sql.streaming.schemaInference": "true"},
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
    columns = _columns(schema)
    on = words.on or next(iter(columns))
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
        "schema": schema.replace('"', '\\"'),
        "schema_note": _schema_note(words),
        "amount": _amount(columns),
        "with": words.with_ or "",
        "with_schema": (words.with_schema or SCHEMA_EXAMPLE).replace('"', '\\"'),
        "on": on,
        "table": str(Path(words.table).expanduser().resolve()) if words.table else "",
        "key": f'F.col("{words.key}")' if words.key else "F.lit(None)",
        "gone": _gone(columns),
    }


def _attribute(word: str) -> str:
    return "with_" if word == "with" else word


def _schema_note(words: Words) -> str:
    if words.schema:
        return "The fields of a value, with Spark's types."
    return "The fields of a value, with Spark's types: an example, put yours here."


def _columns(schema: str) -> dict[str, str]:
    """Top-level columns and the first word of their types, in order."""
    columns, depth, start = {}, 0, 0
    for i, sign in enumerate(schema + ","):
        depth += (sign in "<(") - (sign in ">)")
        if sign == "," and depth == 0:
            name, _, kind = schema[start:i].strip().partition(" ")
            columns[name.strip("`")] = kind.strip().upper()
            start = i + 1
    return columns


def _gone(columns: Mapping[str, str]) -> str:
    """When a change says that its row is gone."""
    if "op" not in columns:
        return '"no_value"'
    return "\"no_value OR coalesce(lower(row.op) IN ('d', 'delete'), false)\""


def _amount(columns: Mapping[str, str]) -> str:
    """The column that looks most like something to sum up."""
    for name, kind in columns.items():
        if kind.startswith(_NUMERIC) and not name.lower().endswith("id"):
            return f'F.col("{name}")'
    return "F.lit(1)"


def _fill(text: str, given: Mapping[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda match: given[match[1]], text)
