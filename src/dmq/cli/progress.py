"""A live progress line on stderr, with rich. Imported only when a person watches."""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from dmq.cli.output import human_size


class _RateColumn(ProgressColumn):
    """Records and bytes per second, from the task's own clock."""

    def render(self, task: Task) -> Text:
        seconds = task.elapsed or 0.0
        if seconds <= 0:
            return Text("")
        size_bytes = task.fields["size_bytes"]
        rate = f"{task.completed / seconds:,.0f}/s"
        if size_bytes:
            rate += f"  {human_size(size_bytes / seconds)}/s"
        return Text(rate)


class _Live:
    """Stands while its block runs, then leaves nothing behind."""

    def __init__(self, columns: list[ProgressColumn], *, color: bool) -> None:
        self._progress = Progress(
            *columns, console=Console(stderr=True, no_color=not color), transient=True
        )

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()


class GaugeBar(_Live):
    """A bar with a share and words."""

    def __init__(self, what: str, *, color: bool) -> None:
        columns = [SpinnerColumn(), TextColumn("{task.description}"), BarColumn()]
        columns += [TaskProgressColumn(), TextColumn("{task.fields[text]}"), TimeElapsedColumn()]
        super().__init__(columns, color=color)
        self._task = self._progress.add_task(what, total=None, text="")

    def show(self, done: int, total: int, text: str) -> None:
        """Say how far it is."""
        self._progress.update(self._task, completed=done, total=total, text=text)


class Bar(_Live):
    """Counts records (and bytes) up to a total, or without one."""

    def __init__(self, what: str, total: int | None, *, color: bool) -> None:
        columns: list[ProgressColumn] = [SpinnerColumn(), TextColumn("{task.description}")]
        columns += (
            [BarColumn(), MofNCompleteColumn()] if total else [TextColumn("{task.completed:,}")]
        )
        columns += [_RateColumn(), TimeElapsedColumn()]
        super().__init__(columns, color=color)
        self._task = self._progress.add_task(what, total=total, size_bytes=0)
        self._size_bytes = 0

    def advance(self, count: int, size_bytes: int = 0) -> None:
        """Say that so much more is done."""
        self._size_bytes += size_bytes
        self._progress.update(self._task, advance=count, size_bytes=self._size_bytes)
