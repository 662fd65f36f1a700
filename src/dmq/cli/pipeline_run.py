"""`dmq pipeline run|dry-run|status|stop`: a project's runs.

Owns the options and the words at the end; what is seen in between is drawn by `pipeline_view`, and
the work is done by `dmq.spark.pipelines.runner`.
"""

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dmq.cli.command import command
from dmq.cli.exits import CommandError, Exit, not_found, usage
from dmq.cli.output import count_of
from dmq.cli.pipeline_common import Conf, Master, Remote, mended, where_of
from dmq.cli.pipeline_view import flow_table, flows_of, view_of
from dmq.cli.session import Session

if TYPE_CHECKING:
    from dmq.spark.pipelines.projects import Project
    from dmq.spark.pipelines.runner import Order
    from dmq.spark.pipelines.runs import Record

app = typer.Typer()

Folder = Annotated[
    Path,
    typer.Argument(
        metavar="[PROJECT]", show_default=False, help="Its folder or spec. Default: this folder."
    ),
]
WATCH_S = 2.0


@command(
    app,
    "run",
    """
    dmq pipeline run
    dmq pipeline run sales --every 10
    dmq pipeline run sales --full-refresh orders
    dmq pipeline run sales --master spark://spark-1:7077
    dmq pipeline run sales --remote sc://spark-1:15002
    """,
)
def run(
    session: Session,
    project: Folder = Path(),
    every: Annotated[
        float | None,
        typer.Option("--every", metavar="SECONDS", min=0, help="Again and again, so long apart."),
    ] = None,
    refresh: Annotated[
        list[str] | None,
        typer.Option("--refresh", metavar="TABLE", help="Only these; repeatable."),
    ] = None,
    full_refresh: Annotated[
        list[str] | None,
        typer.Option(
            "--full-refresh", metavar="TABLE", help="Empty these and read anew; repeatable."
        ),
    ] = None,
    full_refresh_all: Annotated[
        bool, typer.Option("--full-refresh-all", help="Empty everything and read anew.")
    ] = False,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
) -> None:
    """Run a project: bring its tables, views and sinks up to the topics' ends as they are now.

    With --every it goes on until Ctrl-C or `dmq pipeline stop`. The next run goes on where this one
    ends. With --bootstrap-server the projects of `dmq pipeline init` read from there.
    """
    if full_refresh_all and (refresh or full_refresh):
        raise usage("--full-refresh-all is everything already", "Leave the other refreshes out.")
    from dmq.spark.pipelines.runner import Order

    order = Order(
        every_s=every,
        full_refresh=full_refresh or (),
        full_refresh_all=full_refresh_all,
        refresh=refresh or (),
    )
    _run(session, project, order, where_of(master, conf, remote))


@command(
    app,
    "dry-run",
    """
    dmq pipeline dry-run
    dmq pipeline dry-run sales --json
    """,
)
def dry_run(
    session: Session,
    project: Folder = Path(),
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
) -> None:
    """Check a project: load its definitions and resolve every flow, read and write nothing."""
    from dmq.spark.pipelines.runner import Order

    _run(session, project, Order(is_dry=True), where_of(master, conf, remote))


def _run(session: Session, folder: Path, order: "Order", where: Any) -> None:
    from dmq.cli.session import BOOTSTRAP_DEFAULT
    from dmq.spark.pipelines import projects, runner

    if session.bootstrap != BOOTSTRAP_DEFAULT:
        os.environ["DMQ_BOOTSTRAP_SERVERS"] = session.bootstrap
    with mended():
        project = projects.find(folder)
        what = "Checking" if order.is_dry else "Running"
        session.output.note(f"{what} {project.name} on {where}. {where.log_at(project.log)}")
        began = time.monotonic()
        with view_of(session.output, project.name) as view:
            progress = runner.run(project, where, order, view.show)
    seconds = time.monotonic() - began
    if session.output.json:
        facts = {"event": "ended", "name": project.name, "seconds": round(seconds, 1)}
        session.output.emit(facts | progress.as_json())
    elif order.is_dry:
        session.output.say(f"{project.name}: the definitions hold")
    else:
        flow_table(session.output, list(progress.flows.values()))
        rows = count_of(progress.rows, "row")
        session.output.say(f"{project.name}: completed, {rows} read in {seconds:.0f} s")


@command(
    app,
    "status",
    """
    dmq pipeline status
    dmq pipeline status sales --watch
    dmq pipeline status sales --json
    """,
    cluster=False,
)
def status(
    session: Session,
    project: Folder = Path(),
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Again and again, until Ctrl-C.")
    ] = False,
) -> Exit:
    """Show the run of a project, the one that runs now or the last: flows, rows, rows/s, lag, batch.

    Works too for a landing: name its DIR. Exit code 1 if the run failed or died.
    """
    with mended():
        name, record = _record(project)
        while True:
            _show(session, name, record)
            if not watch:
                break
            time.sleep(WATCH_S)
            name, record = _record(project)
    return Exit.FAILURE if record.state in ("failed", "died") else Exit.OK


def _record(folder: Path) -> tuple[str, "Record"]:
    """The record of a project's last run, or of a landing into this folder."""
    from dmq.spark.pipelines import projects, runs

    landing = folder / "_dmq" / "run.json"
    if landing.exists():
        path, name = landing, str(folder)
    else:
        found: Project = projects.find(folder)
        path, name = found.record, found.name
    record = runs.read(path)
    if record is None:
        raise not_found(f"{name} has not been run yet", "Run it with `dmq pipeline run`.")
    return name, record


def _show(session: Session, name: str, record: "Record") -> None:
    facts = record.facts
    if session.output.json:
        session.output.emit(facts | {"state": record.state})
        return
    if session.output.is_terminal:
        session.output.heading(name)
    about = [record.state, f"on {facts.get('spark')}", f"process {facts.get('pid')}"]
    if facts.get("update"):
        about.append(f"update {facts['update']}")
    about.append(f"{count_of(int(facts.get('rows', 0)), 'row')} read")
    about.append(f"{time.time() - float(facts['written_at']):.0f} s ago")
    session.output.say(f"{name}: " + ", ".join(about))
    flow_table(session.output, flows_of(facts))
    if facts.get("error"):
        session.output.say(f"why: {facts['error']}")


@command(
    app,
    "stop",
    """
    dmq pipeline stop
    dmq pipeline stop sales
    """,
    cluster=False,
)
def stop(session: Session, project: Folder = Path()) -> None:
    """Stop the run of a project, or the landing into a DIR, on this machine, and wait until it ended.

    Nothing is lost: the next run goes on after the last batch that was finished.
    """
    from dmq.spark.pipelines import runs

    with mended():
        name, record = _record(project)
        stopped = runs.stop(record)
    if session.output.json:
        session.output.emit({"name": name, "stopped": stopped, "was": record.state})
    elif stopped:
        session.output.say(f"{name}: stopped (process {record.pid})")
    else:
        raise CommandError(f"{name} does not run: {record.state}")
