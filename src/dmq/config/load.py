"""Settings from flags, environment and file, in that order of strength, into one BrokerConfig.

    flag          --set num.partitions=3, or an option that the command maps to a name
    environment   DMQ_NUM_PARTITIONS=3
    file          YAML, names flat (`num.partitions: 3`) or nested (`num: {partitions: 3}`), or Java
                  properties (`num.partitions=3`) if the file is called *.properties

Every problem is reported at once, each with its place. An unknown name is a problem and gets the
nearest known one as a hint; a name that Kafka has and dmq does not need is a warning. Reads one
file and nothing else: the environment is handed in. Called by the CLI and by `dmq.testing`.
"""

import dataclasses
import difflib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from dmq.config.broker import ALIASES, BROKER, BrokerConfig, as_text
from dmq.config.kafka_names import IGNORED, REFUSED_PREFIXES
from dmq.errors import ConfigError

ENVIRONMENT_PREFIX = "DMQ_"
NESTING_MAX = 16

_SERVICE_LINK = re.compile(
    r"DMQ_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP)\w*)?)"
)
"""Variables that Kubernetes makes for a service called dmq or dmq-something."""


@dataclasses.dataclass(frozen=True, slots=True)
class Given:
    """A value as somebody gave it: the name as written, the text, the place for messages."""

    name: str
    text: str
    place: str


def load_broker_config(
    *,
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    environ_ignored: tuple[str, ...] = (),
    path: Path | None = None,
) -> BrokerConfig:
    """The broker's settings. Raises ConfigError with every problem found.

    `flags` maps names to values (None: not given). `environ_ignored` are DMQ_ variables that mean
    something to somebody else.
    """
    problems: list[str] = []
    levels = [
        list(read_flags(flags or {})),
        list(read_environment(environ or {}, environ_ignored)),
        list(read_file(path, problems)) if path is not None else [],
    ]
    texts: dict[str, str] = {}
    sources: dict[str, str] = {}
    warnings: list[str] = []
    for level in levels:
        _merge(_known(level, problems, warnings), texts, sources, problems)
    try:
        config = BrokerConfig.from_texts(texts, sources, tuple(warnings))
    except ConfigError as error:
        raise ConfigError(problems + error.problems) from None
    if problems:
        raise ConfigError(problems)
    return config


def read_flags(flags: Mapping[str, Any]) -> Iterator[Given]:
    """What the command line says."""
    for name, value in flags.items():
        if (text := as_text(value)) is not None:
            yield Given(name, text, f"flag {name}")


def read_environment(environ: Mapping[str, str], ignored: tuple[str, ...] = ()) -> Iterator[Given]:
    """What the DMQ_ variables say."""
    for variable, text in sorted(environ.items()):
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in ignored:
            continue
        name = variable.removeprefix(ENVIRONMENT_PREFIX).lower().replace("_", ".")
        linked = _SERVICE_LINK.fullmatch(variable) is not None
        if linked and (name not in BROKER or "://" in text):
            continue
        yield Given(name, text, f"environment {variable}")


def read_file(path: Path, problems: list[str]) -> Iterator[Given]:
    """What a file says."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        problems.append(f"{path}: can't be read: {error}")
        return
    if path.suffix == ".properties":
        yield from read_properties(text, path.name, problems)
    else:
        yield from read_yaml(text, path.name, problems)


def read_yaml(text: str, place: str, problems: list[str]) -> Iterator[Given]:
    """A mapping, nested as one likes; the path of keys, joined with dots, is the name."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark is not None else ""
        reason = getattr(error, "problem", None) or str(error)
        problems.append(f"{place}{line}: no YAML: {reason}")
        return
    if root is None:
        return
    if not isinstance(root, yaml.MappingNode):
        problems.append(f"{place}:1: must be a mapping of names to values")
        return
    yield from _flatten(root, "", place, problems, 0)


def _flatten(
    node: yaml.MappingNode, prefix: str, file: str, problems: list[str], depth: int
) -> Iterator[Given]:
    for key, value in node.value:
        place = f"{file}:{key.start_mark.line + 1}"
        if not isinstance(key, yaml.ScalarNode) or depth > NESTING_MAX:
            problems.append(
                f"{place}: a name must be a plain word, nested at most {NESTING_MAX} deep"
            )
            continue
        name = f"{prefix}{key.value}"
        if isinstance(value, yaml.MappingNode):
            yield from _flatten(value, f"{name}.", file, problems, depth + 1)
        elif isinstance(value, yaml.SequenceNode):
            if all(isinstance(item, yaml.ScalarNode) for item in value.value):
                yield Given(name, ",".join(item.value for item in value.value), place)
            else:
                problems.append(f"{place}: {name} must be a list of plain values")
        elif value.tag != "tag:yaml.org,2002:null":
            yield Given(name, value.value, place)


def read_properties(text: str, place: str, problems: list[str]) -> Iterator[Given]:
    """name=value lines, as in Kafka's server.properties."""
    for number, line in enumerate(text.splitlines(), start=1):
        line = line.strip()
        if not line or line[0] in "#!":
            continue
        name, equals, value = line.partition("=")
        if not equals:
            problems.append(f"{place}:{number}: not of the form name=value")
            continue
        yield Given(name.strip(), value.strip(), f"{place}:{number}")


def _known(level: list[Given], problems: list[str], warnings: list[str]) -> Iterator[Given]:
    """Those with a name of ours, by that name; what is to be said about the others is noted."""
    for given in level:
        name = ALIASES.get(given.name, given.name)
        if name in BROKER:
            yield dataclasses.replace(given, name=name)
        elif name in IGNORED:
            warnings.append(
                f"{given.place}: {name} is a setting of Kafka's that changes nothing here"
            )
        elif name.startswith(REFUSED_PREFIXES):
            problems.append(f"{given.place}: {name} is a setting of Kafka's that dmq does not have")
        else:
            problems.append(f"{given.place}: Unknown setting {name}{_hint(name)}")


def _hint(name: str) -> str:
    near = difflib.get_close_matches(name, [*BROKER, *ALIASES], n=1, cutoff=0.7)
    return f"; did you mean {near[0]}?" if near else ""


def _merge(
    level: Iterator[Given], texts: dict[str, str], sources: dict[str, str], problems: list[str]
) -> None:
    """Adds what a weaker level says to what stronger levels said."""
    stronger = frozenset(texts)
    here: dict[str, Given] = {}
    for given in level:
        if (other := here.get(given.name)) is not None:
            problems.append(f"{given.place}: {given.name} is set twice, also in {other.place}")
            continue
        here[given.name] = given
    if "listeners" in here and ("host" in here or "port" in here):
        simple = here.get("host") or here["port"]
        place = here["listeners"].place
        problems.append(f"{place}: with listeners, {simple.name} ({simple.place}) must not be set")
    # A host or port given more strongly takes the place of listeners below it.
    if "listeners" in here and not stronger.isdisjoint(("host", "port")):
        del here["listeners"]
    if "listeners" in stronger:
        here.pop("host", None)
        here.pop("port", None)
    for name, given in here.items():
        if name not in stronger:
            texts[name], sources[name] = given.text, given.place
