"""How a run looks while it runs: a live table on a terminal, plain lines elsewhere, JSON for programs.

Owns the drawing and nothing else. All of it goes to stderr, but for JSON lines: they are results.
"""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from dmq.cli.output import Column, Output, count_of

if TYPE_CHECKING:
    from dmq.spark.pipelines.progress import Flow, Progress

_COLUMNS = (
    Column("flow"),
    Column("state"),
    Column("batch", True),
    Column("rows", True),
    Column("rows/s", True),
    Column("lag", True),
)


class View(Protocol):
    """Shown each change of a run."""

    def show(self, progress: "Progress", flow: "Flow | None") -> None: ...


@contextmanager
def view_of(output: Output, name: str) -> Iterator[View]:
    """The view that this output wants."""
    if output.json:
        yield _JsonLines(output)
    elif output.quiet:
        yield _Nothing()
    elif sys.stderr.isatty():
        with _Live(output, name) as live:
            yield live
    else:
        yield _Lines(output)


def cells(flow: "Flow") -> list[str]:
    """A flow as a row of the table."""
    return [
        flow.name,
        flow.state,
        "" if flow.batch is None else str(flow.batch),
        f"{flow.rows:,}",
        "" if flow.rows_per_s is None else f"{flow.rows_per_s:,.0f}",
        "" if flow.lag is None else f"{flow.lag:,}",
    ]


def flow_table(output: Output, flows: Sequence["Flow"]) -> None:
    """The flows as a table, with the reasons of those that failed below it."""
    if flows:
        output.table(_COLUMNS, [cells(flow) for flow in flows])
    for flow in flows:
        if flow.error:
            output.say(f"{flow.name}: {flow.error}")


def flows_of(facts: dict[str, Any]) -> list["Flow"]:
    """The flows of a run's record."""
    from dmq.spark.pipelines.progress import Flow

    known = Flow.__slots__
    return [
        Flow(**{name: value for name, value in each.items() if name in known})
        for each in facts.get("flows", ())
    ]


class _Nothing:
    def show(self, progress: "Progress", flow: "Flow | None") -> None:
        pass


class _JsonLines:
    """One object per change."""

    def __init__(self, output: Output) -> None:
        self._output = output

    def show(self, progress: "Progress", flow: "Flow | None") -> None:
        about: dict[str, Any] = {"event": "progress", "at": time.time(), "state": progress.state}
        if flow is not None:
            about["flow"] = {name: getattr(flow, name) for name in flow.__slots__}
        self._output.emit(about)


class _Lines:
    """One line per change that a person would want in a log."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._state = ""

    def show(self, progress: "Progress", flow: "Flow | None") -> None:
        if flow is not None:
            self._output.note(f"{time.strftime('%H:%M:%S')} {line_of(flow)}")
        elif progress.state != self._state:
            self._state = progress.state
            self._output.note(f"{time.strftime('%H:%M:%S')} {progress.state}")


def line_of(flow: "Flow") -> str:
    """`orders: running, batch 3, 12,000 rows, 4,500 rows/s, lag 0`."""
    parts = [flow.state]
    if flow.batch is not None:
        parts += [f"batch {flow.batch}", count_of(flow.rows, "row")]
    if flow.rows_per_s is not None:
        parts.append(f"{flow.rows_per_s:,.0f} rows/s")
    if flow.lag is not None:
        parts.append(f"lag {flow.lag:,}")
    if flow.error:
        parts.append(flow.error)
    return f"{flow.name}: " + ", ".join(parts)


class _Live:
    """A table that is drawn again after each change, with rich."""

    def __init__(self, output: Output, name: str) -> None:
        from rich.console import Console
        from rich.live import Live

        self._name = name
        self._began = time.monotonic()
        self._progress: Progress | None = None
        console = Console(stderr=True, no_color=not output.color, highlight=False)
        self._live = Live(
            console=console, get_renderable=self._picture, refresh_per_second=4, transient=True
        )

    def show(self, progress: "Progress", flow: "Flow | None") -> None:
        self._progress = progress

    def _picture(self) -> Any:
        from rich import box
        from rich.console import Group
        from rich.spinner import Spinner
        from rich.table import Table
        from rich.text import Text

        seconds = time.monotonic() - self._began
        progress = self._progress
        state = "starting" if progress is None else progress.state
        title = Text(f"{self._name}: {state}, {seconds:.0f} s")
        spinner = Spinner("dots", title)
        if progress is None or not progress.flows:
            return spinner
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
        for column in _COLUMNS:
            table.add_column(column.title, justify="right" if column.is_number else "left")
        for flow in list(progress.flows.values()):
            table.add_row(*(Text(cell) for cell in cells(flow)))
        return Group(spinner, table)

    def __enter__(self) -> "_Live":
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()
