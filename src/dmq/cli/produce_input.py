"""Records to produce, from arguments, lines and files.

Owns how a line becomes a record: separators, nulls, base64, JSON. A line that is none is yielded as
an error in its place, so that the others go their way. Reads lazily; never holds more than a line.
"""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from dmq.cli.exits import CommandError, not_found
from dmq.cli.record_json import Headers, Outgoing, RecordError, decode_base64, parse

_ESCAPES = {"\\t": "\t", "\\n": "\n", "\\0": "\0", "\\\\": "\\"}


@dataclass(frozen=True, slots=True)
class Shape:
    """How lines are to be read, and what every record gets."""

    is_json: bool = False
    is_base64: bool = False
    separator: bytes | None = None
    null: bytes | None = None
    key: bytes | None = None
    headers: Headers = field(default_factory=list)
    partition: int | None = None
    is_repartitioned: bool = False
    timestamp_ms: int | None = None

    def record(self, line: bytes) -> Outgoing:
        """The record of one line. Raises RecordError."""
        record = parse(line) if self.is_json else self._plain(line)
        if record.key is None:
            record.key = self.key
        if record.partition is None or self.is_repartitioned:
            record.partition = self.partition
        if record.timestamp_ms is None:
            record.timestamp_ms = self.timestamp_ms
        record.headers = [*self.headers, *record.headers]
        return record

    def _plain(self, line: bytes) -> Outgoing:
        if self.separator is None:
            return Outgoing(self._field(line, "value"))
        key, found, value = line.partition(self.separator)
        if not found:
            shown = self.separator.decode("utf-8", "backslashreplace")
            raise RecordError(f"no key separator {shown!r}")
        return Outgoing(self._field(value, "value"), self._field(key, "key"))

    def _field(self, data: bytes, what: str) -> bytes | None:
        if self.null is not None and data == self.null:
            return None
        return decode_base64(data, f"the {what}") if self.is_base64 else data


def records(lines: Iterable[bytes], shape: Shape) -> Iterator[Outgoing | RecordError]:
    """A record per line, or why there is none."""
    for line in lines:
        try:
            yield shape.record(line)
        except RecordError as error:
            yield error


def unescape(text: str) -> str:
    r"""`\t` as a shell user writes it is a tab."""
    for escape, character in _ESCAPES.items():
        text = text.replace(escape, character)
    return text


def lines_of(stream: IO[bytes]) -> Iterator[bytes]:
    """Lines without their ends, of `\\n` and `\\r\\n` kind."""
    for line in stream:
        if line.endswith(b"\n"):
            line = line[:-2] if line.endswith(b"\r\n") else line[:-1]
        yield line


def file_lines(path: str, *, whole: bool) -> Iterator[bytes]:
    """The lines of a file (`-` is stdin), or all of it as one."""
    if path == "-":
        yield from _of_stream(sys.stdin.buffer, whole=whole)
        return
    try:
        with Path(path).open("rb") as stream:
            yield from _of_stream(stream, whole=whole)
    except FileNotFoundError as error:
        raise not_found(f"There is no file {path!r}", "Give --file a file that exists.") from error
    except OSError as error:
        raise CommandError(f"The file {path!r} can't be read: {error.strerror}") from error


def _of_stream(stream: IO[bytes], *, whole: bool) -> Iterator[bytes]:
    if whole:
        yield stream.read()
    else:
        yield from lines_of(stream)
