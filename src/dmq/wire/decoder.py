"""Compiles a message class and a version into a function that reads it from bytes.

Neighbouring fields of fixed width, and the length byte or count that follows them, are read by one
`struct` call; objects are filled without calling their constructor; records stay a view of the
input. What is generated looks like what one would write by hand:

    o10 = new(FetchPartition)
    o10.partition, o10.fetch_offset, o10.partition_max_bytes, t = unpack13(buf, p)
    p += 17
    if t: p = skip_tags(buf, p, end, t)

Bounds: a string or a byte field may run past the end (a slice can't), but then the position is past
the end too, and the next read or the last line of the function finds out. Counts are checked
against what is left, and all elements of a message against `ELEMENTS_MAX`, before a list is made.
"""

from collections.abc import Callable
from struct import Struct
from struct import error as StructError  # noqa: N812 (it is a class)
from typing import Any

from dmq.wire import primitives
from dmq.wire.primitives import FIXED, Buffer, VectorReaders
from dmq.wire.schema import (
    Field,
    Kind,
    SourceWriter,
    compile_function,
    has_records,
    layout,
    size_min,
)

Decode = Callable[[Buffer, int], tuple[Any, int]]

ELEMENTS_MAX = 500_000
"""Array elements in one message, all arrays together; past it the message is refused.

A struct of three bytes takes a hundred in memory, and each takes a microsecond of the loop. Kafka
clusters end at some 200,000 partitions, so no honest message names more."""

_NAMES: dict[str, Any] = {
    "new": object.__new__,
    "uuid_of": primitives.uuid_of,
    "uvarint": primitives.read_uvarint,
    "read_tags": primitives.read_tags,
    "skip_tags": primitives.skip_tags,
    "bad_count": primitives.bad_count,
    "null_found": primitives.null_found,
    "malformed": primitives.malformed,
    "StructError": StructError,
}
_VECTORS = {code: VectorReaders(code) for code, _ in FIXED.values()}
_LENGTH_CODES = {"string": "h", "bytes": "i", "records": "i"}
_SLICES = {
    "string": "str(buf[p:q], 'utf-8')",
    "bytes": "bytes(buf[p:q])",
    "records": "view[p:q]",
}


def compile_decoder(message: type, version: int, *, flexible: bool) -> Decode:
    """A function of (buffer, position) -> (message, end).

    The function raises ProtocolError, and nothing else, if the bytes are no such message.
    """
    writer = _DecodeWriter(version, flexible)
    writer.indent("try:")
    writer.line("end = len(buf)")
    writer.line(f"room = {ELEMENTS_MAX}")
    # Bytes are quicker to index than a view, but a copy of records would cost more than it gains.
    if has_records(message):
        writer.line("view = buf if type(buf) is memoryview else memoryview(buf)")
    else:
        writer.line("buf = bytes(buf)")
    result = writer.struct(message)
    writer.flush()
    writer.dedent()
    writer.line("except (IndexError, StructError, UnicodeDecodeError) as cause:")
    writer.line(f"    raise malformed({message.__name__!r}, cause) from None")
    writer.line("if p > end:")
    writer.line(f"    raise malformed({message.__name__!r})")
    writer.line(f"return {result}, p")
    source = writer.function("def decode(buf, p):")
    decode: Decode = compile_function("decode", source, writer.names)
    return decode


class _DecodeWriter(SourceWriter):
    """Writes the reading of one message; `p` is the position, `n` a length, `t` a tag count."""

    def __init__(self, version: int, flexible: bool) -> None:
        super().__init__(version, flexible)
        self.names.update(_NAMES)
        self._codes = ""
        self._targets: list[str] = []
        self._after: list[str] = []

    def fixed(self, code: str, target: str) -> None:
        """Put a value of fixed width into the run that is being collected."""
        self._codes += code
        self._targets.append(target)

    def flush(self) -> None:
        """Write the collected run as one read."""
        if not self._codes:
            return
        run = Struct(">" + self._codes)
        if self._codes == "B":
            self.line(f"{self._targets[0]} = buf[p]")
        else:
            unpack = self.bind("unpack", run.unpack_from)
            self.line(f"{', '.join(self._targets)}, = {unpack}(buf, p)")
        self.line(f"p += {run.size}")
        for line in self._after:
            self.line(line)
        self._codes, self._targets, self._after = "", [], []

    def struct(self, message: type) -> str:
        """Read a struct; returns the name of its variable."""
        name = self.fresh("o")
        self.line(f"{name} = new({self.bind('C', message)})")
        tagged = []
        for field in layout(message, self.version):
            target = f"{name}.{field.name}"
            if not field.is_present or field.tag is not None:
                self.line(f"{target} = {self.literal(field)}")
            if field.is_present and field.tag is not None:
                tagged.append(field)
            elif field.is_present:
                self.value(field.kind, target, nullable=field.is_nullable)
        if self.flexible:
            self._tags(name, tagged)
        return name

    def value(self, kind: Kind, target: str, *, nullable: bool, tagged: bool = False) -> None:
        """Read one value into a target expression."""
        if isinstance(kind, list):
            self._array(kind[0], target, nullable)
        elif isinstance(kind, type):
            self._nested(kind, target, nullable, tagged)
        elif kind in FIXED:
            self.fixed(FIXED[kind][0], target)
        elif kind == "uuid":
            raw = self.fresh("u")
            self.fixed("16s", raw)
            self._after.append(f"{target} = uuid_of({raw})")
        else:
            self._blob(kind, target, nullable)

    def _length(self, code: str) -> str:
        """Read a length or count into `n`; returns the condition of it not being null."""
        self.fixed("B" if self.flexible else code, "n")
        self.flush()
        if self.flexible:
            self.line("if n > 127: n, p = uvarint(buf, p, n)")
            return "if n:"
        return "if n >= 0:"

    def _blob(self, kind: str, target: str, nullable: bool) -> None:
        self.indent(self._length(_LENGTH_CODES[kind]))
        self.line("q = p + n - 1" if self.flexible else "q = p + n")
        self.line(f"{target} = {_SLICES[kind]}")
        self.line("p = q")
        self.dedent()
        self._null(target, nullable)

    def _null(self, target: str, nullable: bool) -> None:
        """The branch of a negative length: null where it may be, else an error."""
        if nullable:
            self.line(f"{'else' if self.flexible else 'elif n == -1'}: {target} = None")
        if not (nullable and self.flexible):
            self.line(f"else: raise null_found({target.rpartition('.')[2]!r})")

    def _nested(self, message: type, target: str, nullable: bool, tagged: bool) -> None:
        if not nullable:
            self.line(f"{target} = {self.struct(message)}")
            return
        # Null is -1, but 0 where the struct is a tagged field; else it is 1.
        self.fixed("B" if tagged else "b", "n")
        self.flush()
        self.indent("if n:" if tagged else "if n >= 0:")
        name = self.struct(message)
        self.flush()
        self.line(f"{target} = {name}")
        self.dedent()
        self.line(f"else: {target} = None")

    def _array(self, kind: Kind, target: str, nullable: bool) -> None:
        self.indent(self._length("i"))
        if self.flexible:
            self.line("n -= 1")
        field = target.rpartition(".")[2]
        least = max(1, size_min(kind, self.version, self.flexible))
        self.line("room -= n")
        self.line(f"if room < 0 or n * {least} > end - p: raise bad_count({field!r}, n, end - p)")
        if isinstance(kind, str) and kind in FIXED:
            code, size = FIXED[kind]
            self.line(f"{target} = [*{self.bind('vector', _VECTORS[code])}[n](buf, p)]")
            self.line(f"p += {size} * n")
        else:
            self._elements(kind, target)
        self.dedent()
        self._null(target, nullable)

    def _elements(self, kind: Kind, target: str) -> None:
        items = self.fresh("items")
        self.line(f"{target} = {items} = []")
        self.indent("for _ in range(n):")
        if isinstance(kind, type):
            item = self.struct(kind)
        else:
            item = self.fresh("x")
            self.value(kind, item, nullable=False)
        self.flush()
        self.line(f"{items}.append({item})")
        self.dedent()

    def _tags(self, name: str, tagged: list[Field]) -> None:
        self.fixed("B", "t")
        self.flush()
        if not tagged:
            self.line("if t: p = skip_tags(buf, p, end, t)")
            return
        readers = {field.tag: self._tag_reader(field) for field in tagged}
        bound = self.bind("readers", readers)
        self.line(f"if t: p, room = read_tags(buf, p, end, t, room, {name}, {bound})")

    def _tag_reader(self, field: Field) -> Any:
        writer = _DecodeWriter(self.version, self.flexible)
        writer.value(field.kind, f"o.{field.name}", nullable=field.is_nullable, tagged=True)
        writer.flush()
        writer.line("return p, room")
        source = writer.function("def read_tag(buf, p, end, room, o):")
        return compile_function("read_tag", source, writer.names)
