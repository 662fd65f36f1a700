"""How a message is told: dataclasses whose fields say their type on the wire and their versions.

One class serves all versions. A field is made by `f`; its attribute's default is Kafka's default,
so that a handler sets only what matters. A field that the version at hand does not have is left
out when encoding and has its default after decoding. A tagged struct that was not sent is None,
except where null is a value of its own.

Compiled by `decoder` and `encoder`; written by the tables in `messages`; read by nobody else.
"""

import dataclasses
from typing import Any, NamedTuple, TypeVar, dataclass_transform

from dmq.types import NIL_UUID
from dmq.wire.primitives import FIXED

Kind = str | type | list[Any]
"""A primitive by name, a message class, or a list with one of these for an array of it."""

_UNSET: Any = object()
_ZEROS: dict[str, Any] = {
    "bool": False,
    "float64": 0.0,
    "string": "",
    "bytes": b"",
    "records": None,
    "uuid": NIL_UUID,
    **{kind: 0 for kind in FIXED if "int" in kind},
}


T = TypeVar("T")


@dataclass_transform()
def message(declared: type[T]) -> type[T]:
    """A class whose fields are made by `f`: a dataclass with slots.

    There are five hundred, and a broker is ready in less than half a second. So they share their
    comparison and their text, and have a docstring from the start: `dataclass` would make one from
    the signature, at great length. That leaves a third of the time.
    """
    attributes = {"__eq__": _equal, "__hash__": None, "__repr__": _text}
    for name, value in attributes.items():
        setattr(declared, name, value)
    declared.__doc__ = declared.__doc__ or declared.__name__
    return dataclasses.dataclass(slots=True, eq=False, repr=False, match_args=False)(declared)


def _equal(self: Any, other: Any) -> bool:
    if type(other) is not type(self):
        return False
    return all(getattr(self, name) == getattr(other, name) for name in type(self).__slots__)


def _text(self: Any) -> str:
    fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in type(self).__slots__)
    return f"{type(self).__name__}({fields})"


class FieldSpec(NamedTuple):
    """What `f` was told; parsed only when a codec is compiled."""

    kind: Kind
    versions: str
    null: str
    tag: int | None


def f(
    kind: Kind,
    versions: str = "0+",
    *,
    null: str = "",
    tag: int | None = None,
    default: Any = _UNSET,
) -> Any:
    """A field: its kind, the versions that have it ("3+", "4-12", "7") and where it may be null.

    Without `default` it is the zero of its kind: 0, "", an empty list, a fresh struct.
    """
    metadata = {"wire": FieldSpec(kind, versions, null, tag)}
    if default is not _UNSET:
        return dataclasses.field(default=default, metadata=metadata)
    if isinstance(kind, str):
        return dataclasses.field(default=_ZEROS[kind], metadata=metadata)
    if tag is not None and isinstance(kind, type) and not null:
        return dataclasses.field(default=None, metadata=metadata)
    factory: Any = kind if isinstance(kind, type) else list
    return dataclasses.field(default_factory=factory, metadata=metadata)


class Field(NamedTuple):
    """A field as one version has it."""

    name: str
    kind: Kind
    is_present: bool
    is_nullable: bool
    tag: int | None
    default: Any
    """The attribute's default; meaningless if `factory` is set."""
    factory: Any


def covers(versions: str, version: int) -> bool:
    """Does a range like "3+", "4-12", "7" or "" contain the version?"""
    if not versions:
        return False
    low, dash, high = versions.partition("-")
    if dash:
        return int(low) <= version <= int(high)
    if low.endswith("+"):
        return version >= int(low[:-1])
    return version == int(low)


def layout(message: type, version: int) -> list[Field]:
    """The message's fields in wire order, as the version has them."""
    fields = []
    for field in dataclasses.fields(message):
        spec: FieldSpec = field.metadata["wire"]
        fields.append(
            Field(
                field.name,
                spec.kind,
                covers(spec.versions, version),
                covers(spec.null, version),
                spec.tag,
                field.default,
                None if field.default_factory is dataclasses.MISSING else field.default_factory,
            )
        )
    return fields


def size_min(kind: Kind, version: int, flexible: bool) -> int:
    """The fewest bytes that a value of the kind takes: what bounds an array's count."""
    if isinstance(kind, list):
        return 1 if flexible else 4
    if isinstance(kind, type):
        fields = layout(kind, version)
        body = sum(
            1
            if field.is_nullable and isinstance(field.kind, type)
            else size_min(field.kind, version, flexible)
            for field in fields
            if field.is_present and field.tag is None
        )
        return body + flexible
    if kind in FIXED:
        return FIXED[kind][1]
    if kind == "uuid":
        return 16
    if flexible:
        return 1
    return 2 if kind == "string" else 4


def has_records(kind: Kind) -> bool:
    """Does the message carry record batches, in any version?"""
    if isinstance(kind, list):
        return has_records(kind[0])
    if isinstance(kind, type):
        return any(has_records(field.metadata["wire"].kind) for field in dataclasses.fields(kind))
    return kind == "records"


class SourceWriter:
    """Lines of a function being generated, with the objects that it refers to by name."""

    def __init__(self, version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.names: dict[str, Any] = {}
        self._lines: list[str] = []
        self._depth = 1
        self._serial = 0

    def line(self, text: str) -> None:
        """Add a line at the current depth."""
        self._lines.append("    " * self._depth + text)

    def indent(self, head: str) -> None:
        """Open a block: its first line."""
        self.line(head)
        self._depth += 1

    def dedent(self) -> None:
        """Close a block."""
        self._depth -= 1

    def fresh(self, stem: str) -> str:
        """A name not used yet."""
        self._serial += 1
        return f"{stem}{self._serial}"

    def bind(self, stem: str, value: object) -> str:
        """A name by which the generated function finds the value."""
        for name, bound in self.names.items():
            if bound is value:
                return name
        name = self.fresh(stem)
        self.names[name] = value
        return name

    def literal(self, field: Field) -> str:
        """An expression for the field's default."""
        if field.factory is list:
            return "[]"
        if field.factory is not None:
            return f"{self.bind('C', field.factory)}()"
        if field.default is None or isinstance(field.default, int | float | str | bytes):
            return repr(field.default)
        return self.bind("K", field.default)

    def function(self, head: str) -> str:
        """The source text of the whole function."""
        return "\n".join([head, *self._lines])


def compile_function(name: str, source: str, names: dict[str, Any]) -> Any:
    """Run generated source and hand out the function that it defines.

    The source is made from our own tables only; nothing that came over a wire gets here.
    """
    scope = dict(names)
    exec(compile(source, f"<wire {name}>", "exec"), scope)  # noqa: S102
    return scope[name]
