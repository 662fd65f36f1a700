"""How a command speaks: tables for people, JSON for programs, notes and errors on stderr.

Owns the choice between rich (a terminal) and plain text (a pipe), so that a piped command does not
even import rich. Never decides what to say. Every command gets one `Output` in its session.
"""

import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO, Any, Protocol

PLAIN_EACH_S = 5.0
"""Without a terminal a line of progress is written each time so much has passed."""
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


class Progress(Protocol):
    """What long work reports to."""

    def advance(self, count: int, size_bytes: int = 0) -> None: ...


class Gauge(Protocol):
    """What long work reports to that knows how far it is."""

    def show(self, done: int, total: int, text: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: its title, and whether it holds numbers."""

    title: str
    is_number: bool = False


class Output:
    """Where and how this run of a command writes."""

    __slots__ = ("color", "is_terminal", "json", "quiet")

    def __init__(self, *, json: bool = False, quiet: bool = False, color: bool = True) -> None:
        self.json = json
        self.quiet = quiet
        self.color = color and "NO_COLOR" not in os.environ
        self.is_terminal = _is_terminal(sys.stdout)

    def emit(self, value: Any) -> None:
        """Print one JSON document: indented for eyes, one line for pipes."""
        indent = 2 if self.is_terminal else None
        sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=indent) + "\n")
        sys.stdout.flush()

    def say(self, text: str) -> None:
        """A result for people: stdout."""
        if not self.json:
            print(text)

    def note(self, text: str) -> None:
        """Something beside the result: stderr, and not when quiet."""
        if not self.quiet:
            _flush_result()
            print(text, file=sys.stderr)

    def warn(self, text: str) -> None:
        """Something that went wrong but does not end the command."""
        print(self._paint("warning:", "33") + f" {text}", file=sys.stderr)

    def error(self, message: str, hint: str = "") -> None:
        """Why the command ends, and what to do."""
        text = message if message.endswith((".", "!", "?")) else message + "."
        _flush_result()
        print(
            self._paint("error:", "1;31") + f" {text}" + (f" {hint}" if hint else ""),
            file=sys.stderr,
        )

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[object]]) -> None:
        """A table: rich on a terminal, aligned plain columns otherwise."""
        cells = [["" if cell is None else str(cell) for cell in row] for row in rows]
        if self.is_terminal:
            self._rich_table(columns, cells)
        else:
            sys.stdout.write(plain_table(columns, cells))

    def _rich_table(self, columns: Sequence[Column], rows: list[list[str]]) -> None:
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
        for column in columns:
            table.add_column(
                column.title, justify="right" if column.is_number else "left", overflow="fold"
            )
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
        Console(no_color=not self.color, highlight=False).print(table)

    def heading(self, text: str) -> None:
        """A title over what follows."""
        self.say(self._paint(text, "1", sys.stdout))

    def verdict(self, word: str) -> str:
        """`ok`, `warn`, `fail` in its colour."""
        return self._paint(word, {"ok": "32", "warn": "33", "fail": "1;31"}[word], sys.stdout)

    def _paint(self, text: str, style: str, stream: IO[str] | None = None) -> str:
        if not self.color or not _is_terminal(stream or sys.stderr):
            return text
        return f"\x1b[{style}m{text}\x1b[0m"

    @contextmanager
    def progress(
        self, what: str, total: int | None = None, *, hidden: bool = False
    ) -> Iterator[Progress]:
        """A progress line on stderr while the block runs; nothing when nobody watches."""
        if hidden or self.quiet or not _is_terminal(sys.stderr):
            yield _Silent()
            return
        from dmq.cli.progress import Bar

        with Bar(what, total, color=self.color) as bar:
            yield bar

    @contextmanager
    def gauge(self, what: str) -> Iterator[Gauge]:
        """How far the block is, on stderr: a bar on a terminal, a line now and then elsewhere, for
        the log of whoever runs it."""
        if self.quiet:
            yield _Silent()
        elif not _is_terminal(sys.stderr):
            yield _Lines(self, what)
        else:
            from dmq.cli.progress import GaugeBar

            with GaugeBar(what, color=self.color) as bar:
                yield bar


class _Silent:
    """Progress that nobody watches."""

    def advance(self, count: int, size_bytes: int = 0) -> None:
        pass

    def show(self, done: int, total: int, text: str) -> None:
        pass


class _Lines:
    """A gauge for a log: what is over soon writes nothing."""

    def __init__(self, output: Output, what: str) -> None:
        self._output = output
        self._what = what
        self._next = time.monotonic() + PLAIN_EACH_S

    def show(self, done: int, total: int, text: str) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + PLAIN_EACH_S
            self._output.note(f"{self._what}: {text} ({percent(done, total)})")


def plain_table(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> str:
    """Columns two spaces apart, a title line, no rules: for pipes, `grep` and `awk`."""
    lines = [
        [column.title.upper() for column in columns],
        *([_one_line(c) for c in r] for r in rows),
    ]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    text: list[str] = []
    for line in lines:
        cells = [
            cell.rjust(width) if column.is_number else cell.ljust(width)
            for cell, width, column in zip(line, widths, columns, strict=True)
        ]
        text.append("  ".join(cells).rstrip() + "\n")
    return "".join(text)


def _one_line(cell: str) -> str:
    return cell.replace("\n", " ")


def human_size(size_bytes: int | float) -> str:
    """1536 → `1.5 KiB`."""
    value = float(size_bytes)
    for unit in _UNITS:
        if value < 1024 or unit == _UNITS[-1]:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError("the last unit takes everything")


def percent(done: int, total: int) -> str:
    """Rounded down: 100% is all of it."""
    return f"{100 * done // total if total else 100}%"


def count_of(count: int, noun: str) -> str:
    """1 record, 2 records, 1,000 records."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _flush_result() -> None:
    """Where both streams go to one place, what was said first stands first."""
    with suppress(BrokenPipeError, ValueError):  # The reader has left: the end will notice.
        sys.stdout.flush()


def _is_terminal(stream: IO[str]) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # Closed: somebody took our stdout away.
        return False
