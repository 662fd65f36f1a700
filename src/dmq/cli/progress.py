"""A live progress line on stderr, with rich. Imported only when a person watches."""

from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
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


class Bar:
    """Counts records (and bytes) up to a total, or without one."""

    def __init__(self, what: str, total: int | None, *, color: bool) -> None:
        columns: list[ProgressColumn] = [SpinnerColumn(), TextColumn("{task.description}")]
        columns += (
            [BarColumn(), MofNCompleteColumn()] if total else [TextColumn("{task.completed:,}")]
        )
        columns += [_RateColumn(), TimeElapsedColumn()]
        self._progress = Progress(
            *columns, console=Console(stderr=True, no_color=not color), transient=True
        )
        self._task = self._progress.add_task(what, total=total, size_bytes=0)
        self._size_bytes = 0

    def advance(self, count: int, size_bytes: int = 0) -> None:
        """Say that so much more is done."""
        self._size_bytes += size_bytes
        self._progress.update(self._task, advance=count, size_bytes=self._size_bytes)

    def __enter__(self) -> "Bar":
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()
