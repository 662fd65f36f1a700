"""Compiles a message class and a version into a function that writes it as bytes.

The result is a list of parts for one vectored write. Everything but record batches is joined into
bytes; a `records` value is only measured with `len` and handed on as its own part, so it may be a
view, or a slice of a file that is sent without being read.

A value that does not fit its field is our own bug and raises what Python raises for it.
"""

from collections.abc import Callable, Sized
from struct import Struct
from typing import Any

from dmq.wire import primitives
from dmq.wire.primitives import FIXED, UVARINTS, VectorWriters
from dmq.wire.schema import (
    Field,
    Kind,
    SourceWriter,
    compile_function,
    has_records,
    layout,
)

Parts = list[Sized]
"""Pieces of a message in order: bytes, and record values as they were given."""

Encode = Callable[[Any], Parts]

_NAMES: dict[str, Any] = {
    "U": UVARINTS,
    "join": b"".join,
    "join_tags": primitives.join_tags,
    "NO_TAGS": b"\0",
}
_VECTORS = {
    (code, compact): VectorWriters(code, compact=compact)
    for code, _ in FIXED.values()
    for compact in (False, True)
}
NULL_STRUCT, NULL_TAGGED_STRUCT, SOME_STRUCT = b"\xff", b"\0", b"\1"
_LENGTH_CODES = {"string": "h", "bytes": "i", "records": "i"}


def compile_encoder(message: type, version: int, *, flexible: bool) -> Encode:
    """A function of a message -> its parts."""
    writer = _EncodeWriter(version, flexible)
    writer.line("w = []")
    writer.line("a = w.append")
    writer.line("parts = []")
    writer.struct(message, "o")
    writer.flush()
    if has_records(message):
        writer.line("if w: parts.append(join(w))")
        writer.line("return parts")
    else:
        writer.line("return [join(w)]")
    source = writer.function("def encode(o):")
    encode: Encode = compile_function("encode", source, writer.names)
    return encode


class _EncodeWriter(SourceWriter):
    """Writes the writing of one message; `w` has the pieces, `a` appends to it."""

    def __init__(self, version: int, flexible: bool) -> None:
        super().__init__(version, flexible)
        self.names.update(_NAMES)
        self._codes = ""
        self._values: list[str] = []

    def fixed(self, code: str, value: str) -> None:
        """Put a value of fixed width into the run that is being collected."""
        self._codes += code
        if value:
            self._values.append(value)

    def flush(self) -> None:
        """Write the collected run as one piece."""
        if not self._codes:
            return
        run = Struct(">" + self._codes)
        if self._values:
            self.line(f"a({self.bind('pack', run.pack)}({', '.join(self._values)}))")
        else:
            self.line(f"a({bytes(run.size)!r})")
        self._codes, self._values = "", []

    def struct(self, message: type, name: str) -> None:
        """Write the struct in the variable."""
        tagged = []
        for field in layout(message, self.version):
            if field.is_present and field.tag is not None:
                tagged.append(field)
            elif field.is_present:
                self.value(field.kind, f"{name}.{field.name}", nullable=field.is_nullable)
        if self.flexible and tagged:
            self._tags(name, sorted(tagged, key=lambda field: field.tag or 0))
        elif self.flexible:
            self.fixed("x", "")

    def value(self, kind: Kind, source: str, *, nullable: bool, tagged: bool = False) -> None:
        """Write the value of an expression."""
        if isinstance(kind, list):
            self._array(kind[0], source, nullable)
        elif isinstance(kind, type):
            self._nested(kind, source, nullable, tagged)
        elif kind in FIXED:
            self.fixed(FIXED[kind][0], source)
        elif kind == "uuid":
            self.fixed("16s", f"{source}.bytes")
        else:
            self._blob(kind, source, nullable)

    def _length(self, code: str, length: str) -> None:
        if self.flexible:
            self.flush()
            self.line(f"a(U[{length} + 1])")
        else:
            self.fixed(code, length)
            self.flush()

    def _blob(self, kind: str, source: str, nullable: bool) -> None:
        code = _LENGTH_CODES[kind]
        value = self.fresh("v")
        if nullable:
            self._open_nullable(value, source, code)
            source = value
        if kind == "string":
            self.line(f"{value} = {source}.encode()")
        elif source != value:
            self.line(f"{value} = {source}")
        self._length(code, f"len({value})")
        if kind == "records":
            self.line(f"if len({value}): parts.append(join(w)); w.clear(); parts.append({value})")
        else:
            self.line(f"a({value})")
        if nullable:
            self.dedent()

    def _open_nullable(self, value: str, source: str, code: str) -> None:
        """Write null if the value is None, else what follows until `dedent`."""
        null = b"\0" if self.flexible else Struct(">" + code).pack(-1)
        self.flush()
        self.line(f"{value} = {source}")
        self.line(f"if {value} is None: a({null!r})")
        self.indent("else:")

    def _nested(self, message: type, source: str, nullable: bool, tagged: bool) -> None:
        name = self.fresh("o")
        if not nullable:
            self.line(f"{name} = {source}")
            self.struct(message, name)
            return
        self.flush()
        self.line(f"{name} = {source}")
        self.line(f"if {name} is None: a({NULL_TAGGED_STRUCT if tagged else NULL_STRUCT!r})")
        self.indent("else:")
        self.line(f"a({SOME_STRUCT!r})")
        self.struct(message, name)
        self.flush()
        self.dedent()

    def _array(self, kind: Kind, source: str, nullable: bool) -> None:
        value = self.fresh("v")
        if nullable:
            self._open_nullable(value, source, "i")
        else:
            self.line(f"{value} = {source}")
        if isinstance(kind, str) and kind in FIXED:
            self.flush()
            vectors = self.bind("vectors", _VECTORS[FIXED[kind][0], self.flexible])
            prefix = f"len({value}) + 1" if self.flexible else f"len({value})"
            self.line(f"a({vectors}[len({value})]({prefix}, *{value}))")
        else:
            self._length("i", f"len({value})")
            item = self.fresh("o")
            self.indent(f"for {item} in {value}:")
            if isinstance(kind, type):
                self.struct(kind, item)
            else:
                self.value(kind, item, nullable=False)
            self.flush()
            self.dedent()
        if nullable:
            self.dedent()

    def _tags(self, name: str, tagged: list[Field]) -> None:
        """Write the tagged fields that differ from their defaults."""
        self.flush()
        tests = [self._differs(name, field) for field in tagged]
        self.indent(f"if {' or '.join(tests)}:")
        self.line("tags = []")
        for test, field in zip(tests, tagged, strict=True):
            tag_writer = self.bind("write_tag", self._tag_writer(field))
            self.line(f"if {test}: tags.append(({field.tag}, {tag_writer}({name}.{field.name})))")
        self.line("a(join_tags(tags))")
        self.dedent()
        self.line("else: a(NO_TAGS)")

    def _differs(self, name: str, field: Field) -> str:
        """The condition of a tagged field being sent."""
        value = f"{name}.{field.name}"
        if isinstance(field.kind, type):
            differs = f"{value} != {self.bind('K', field.kind())}"
            return differs if field.is_nullable else f"({value} is not None and {differs})"
        if field.factory is list and not field.is_nullable:
            return value
        if field.default is None:
            return f"{value} is not None"
        return f"{value} != {self.literal(field)}"

    def _tag_writer(self, field: Field) -> Any:
        writer = _EncodeWriter(self.version, self.flexible)
        writer.line("w = []")
        writer.line("a = w.append")
        writer.value(field.kind, "v", nullable=field.is_nullable, tagged=True)
        writer.flush()
        writer.line("return join(w)")
        return compile_function("write_tag", writer.function("def write_tag(v):"), writer.names)
