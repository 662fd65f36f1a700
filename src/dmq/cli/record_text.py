r"""A record as text for people: the plain columns and the --format template of `dmq consume`.

Owns templates (`{key}: {value}\n`) and what a terminal may see of bytes. Values go to pipes
unchanged; on a terminal, bytes that are not printable text are escaped, because a record must not
move the cursor. No input or output.
"""

import base64
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dmq.cli.exits import usage
from dmq.cli.moments import iso
from dmq.cli.produce_input import unescape

_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True)
class Incoming:
    """A consumed record, free of librdkafka."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    timestamp_type: str | None
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Style:
    """How bytes are shown."""

    null: bytes = b"NULL"
    is_base64: bool = False
    is_terminal: bool = False

    def show(self, data: bytes | None) -> bytes:
        """Bytes as this output shows them."""
        if data is None:
            return self.null
        if self.is_base64:
            return base64.b64encode(data)
        return printable(data) if self.is_terminal else data


Render = Callable[[Incoming, Style], bytes]


def printable(data: bytes) -> bytes:
    r"""Text for a terminal: what is not UTF-8 or is a control character becomes \x1b."""
    text = data.decode("utf-8", "backslashreplace")
    return _CONTROL.sub(lambda m: f"\\x{ord(m[0]):02x}", text).encode()


def _headers(record: Incoming, style: Style) -> bytes:
    return b",".join(key.encode() + b"=" + style.show(value) for key, value in record.headers)


def _time(record: Incoming, style: Style) -> bytes:
    return style.null if record.timestamp_ms is None else iso(record.timestamp_ms).encode()


def _milliseconds(record: Incoming, style: Style) -> bytes:
    return style.null if record.timestamp_ms is None else str(record.timestamp_ms).encode()


def _size(data: bytes | None) -> bytes:
    return str(-1 if data is None else len(data)).encode()


FIELDS: dict[str, Render] = {
    "topic": lambda r, s: r.topic.encode(),
    "partition": lambda r, s: str(r.partition).encode(),
    "offset": lambda r, s: str(r.offset).encode(),
    "timestamp": _milliseconds,
    "time": _time,
    "key": lambda r, s: s.show(r.key),
    "value": lambda r, s: s.show(r.value),
    "headers": _headers,
    "key_size": lambda r, s: _size(r.key),
    "value_size": lambda r, s: _size(r.value),
}


def template(text: str) -> Render:
    r"""Compile `{field}` templates; `{header.NAME}` is one header's last value, `{{` a brace."""
    parts: list[Render] = []
    end = 0
    for token in _TOKEN.finditer(text):
        parts.append(_literal(unescape(text[end : token.start()])))
        parts.append(_token(token[0], token[1]))
        end = token.end()
    parts.append(_literal(unescape(text[end:])))
    return lambda record, style: b"".join(part(record, style) for part in parts)


def _token(token: str, name: str | None) -> Render:
    if token in ("{{", "}}"):
        return _literal(token[0])
    if name in FIELDS:
        return FIELDS[name]
    if name is not None and name.startswith("header."):
        return _header(name.removeprefix("header."))
    known = ", ".join(FIELDS)
    raise usage(
        f"--format has no field {token!r}", f"Fields are {known} and header.NAME; {{{{ is a brace."
    )


def _literal(text: str) -> Render:
    data = text.encode()
    return lambda record, style: data


def _header(name: str) -> Render:
    def render(record: Incoming, style: Style) -> bytes:
        values = [value for key, value in record.headers if key == name]
        return style.show(values[-1] if values else None)

    return render


def columns(*, offsets: bool, times: bool, headers: bool, keys: bool) -> Render:
    """The default line: the value, after the fields asked for, with tabs between."""
    names = ["partition", "offset"] if offsets else []
    names += ["time"] if times else []
    names += ["headers"] if headers else []
    names += ["key"] if keys else []
    return template("".join(f"{{{name}}}\t" for name in names) + "{value}\n")
