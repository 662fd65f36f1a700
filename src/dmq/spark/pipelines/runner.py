"""One run of a pipeline project: Spark does the work, this tells how far it is.

Owns the order of things: session, definitions, update, and with `every_s` the next update. An
*update* brings every table, view and sink up to the topics' ends as they are then, and ends. Told of
each change is `Watcher`. Never decides what anything looks like.
"""

import contextlib
import io
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dmq.spark.pipelines import runs
from dmq.spark.pipelines.failures import PipelineError, first_line, is_gone
from dmq.spark.pipelines.progress import Flow, Progress
from dmq.spark.pipelines.projects import Project
from dmq.spark.pipelines.sessions import Where, connect, hurry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Watcher = Callable[[Progress, Flow | None], None]
"""Called after each change, with the flow that changed; from several threads, one at a time."""

_WRITE_EACH_S = 0.5


@dataclass(frozen=True, slots=True)
class Order:
    """What to run."""

    is_dry: bool = False
    every_s: float | None = None
    full_refresh: Sequence[str] = ()
    full_refresh_all: bool = False
    refresh: Sequence[str] = ()


def run(project: Project, where: Where, order: Order, watch: Watcher) -> Progress:
    """Run a project to its end. Raises PipelineError if it fails, KeyboardInterrupt if told to."""
    desk = _Desk(project, where, order, watch)
    if not order.is_dry:
        runs.claim(project.record)
    desk.note(None, now=True)
    try:
        with connect(
            where, f"dmq pipeline {project.name}", project.log, project.spark_conf()
        ) as spark:
            _updates(spark, project, order, desk)
    except KeyboardInterrupt:
        desk.end("stopped")
        raise
    except PipelineError as error:
        desk.end("failed", error.message)
        raise
    desk.end("completed")
    return desk.progress


def _updates(spark: "SparkSession", project: Project, order: Order, desk: "_Desk") -> None:
    from pyspark.errors import PySparkException

    listener = _listener(desk)
    spark.streams.addListener(listener)
    try:
        while True:
            desk.begin_update()
            try:
                _update(spark, project, order, desk)
            except PySparkException as error:
                if is_gone(error):
                    raise PipelineError(
                        f"Spark's driver ({desk.where}) has gone away in the middle of the run",
                        f"{desk.log_at}. The next run goes on after the last finished batch.",
                    ) from error
                raise PipelineError(desk.why(error), f"{desk.log_at}.") from error
            if order.every_s is None or order.is_dry:
                return
            desk.wait(order.every_s)
            # What was to be made anew has been; from here on it is brought up to date.
            order = Order(every_s=order.every_s, refresh=order.refresh)
    finally:
        hurry(spark)
        with contextlib.suppress(PySparkException):
            spark.streams.removeListener(listener)


def _update(spark: "SparkSession", project: Project, order: Order, desk: "_Desk") -> None:
    from pyspark.pipelines.cli import load_pipeline_spec, register_definitions
    from pyspark.pipelines.spark_connect_graph_element_registry import (
        SparkConnectGraphElementRegistry,
    )
    from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph, start_run

    spec = load_pipeline_spec(project.spec)
    _configure(spark, spec.configuration)
    graph = create_dataflow_graph(
        spark,
        default_catalog=spec.catalog,
        default_database=spec.database,
        sql_conf=spec.configuration,
    )
    registry = SparkConnectGraphElementRegistry(spark, graph)
    with _printing_to_stderr():
        try:
            register_definitions(project.spec, registry, spec, spark, graph)
        except (SyntaxError, NameError, TypeError, ImportError, AttributeError) as error:
            raise PipelineError(f"A definition can't be loaded: {_where(error)}{error}") from error
    events = start_run(
        spark,
        graph,
        full_refresh=list(order.full_refresh),
        full_refresh_all=order.full_refresh_all,
        refresh=list(order.refresh),
        dry=order.is_dry,
        storage=spec.storage,
    )
    for result in events:
        if "pipeline_event_result" in result:
            desk.on_message(result["pipeline_event_result"].event.message)
    if desk.progress.state == "failed":
        raise PipelineError(desk.why(None), f"{desk.log_at}.")


def _configure(spark: "SparkSession", configuration: Mapping[str, str]) -> None:
    """A project's settings are the session's too: definitions are read with them, not only run."""
    from pyspark.errors import PySparkException

    for key, value in configuration.items():
        try:
            spark.conf.set(key, value)
        except PySparkException as error:
            if is_gone(error):
                raise
            raise PipelineError(
                f"{key} in spark-pipeline.yml can't be set: {first_line(error)}",
                "Settings of Spark's start are given with --conf, or to the Connect server.",
            ) from error


@contextlib.contextmanager
def _printing_to_stderr() -> Iterator[None]:
    """Spark says on stdout which files it loads; stdout is for results."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        yield
    own = [line for line in said.getvalue().splitlines() if not _is_sparks(line)]
    for line in own:
        print(line, file=sys.stderr)  # noqa: T201 (printed by a definition of the user's)


def _is_sparks(line: str) -> bool:
    starts = ("Loading definitions", "Found ", "Importing ", "Registering SQL file")
    return line[21:].startswith(starts)


def _where(error: BaseException) -> str:
    """`orders.py, line 12: `, the last place of the traceback that is not Python's or Spark's."""
    trace, place = error.__traceback__, ""
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if "transformations" in name:
            place = f"{name.rpartition('/')[2]}, line {trace.tb_lineno}: "
        trace = trace.tb_next
    return place


class _Desk:
    """Where events of several threads become one progress, told to the watcher and to the record."""

    def __init__(self, project: Project, where: Where, order: Order, watch: Watcher) -> None:
        self.progress = Progress()
        self.log_at = where.log_at(project.log)
        self._project = project
        self.where = where
        self._order = order
        self._watch = watch
        self._lock = threading.Lock()
        self._began_at = time.time()
        self._written = 0.0
        self._update = 0
        self._rows_before = 0

    def begin_update(self) -> None:
        """Definitions are loaded next."""
        with self._lock:
            self._rows_before += self.progress.rows
            self._update += 1
            self.progress.begin_update()
        self.note(None, now=True)

    def on_message(self, message: str) -> None:
        """An event of the pipeline."""
        with self._lock:
            flow = self.progress.on_message(message)
        self.note(flow)

    def on_query(self, report: dict[str, Any]) -> None:
        """A report of a streaming query."""
        with self._lock:
            flow = self.progress.on_query(report)
        self.note(flow)

    def wait(self, seconds: float) -> None:
        """Until the next update is due; Ctrl-C ends it."""
        self.progress.state = "waiting"
        self.note(None, now=True)
        time.sleep(seconds)

    def end(self, state: str, error: str | None = None) -> None:
        """The run is over."""
        with self._lock:
            self.progress.state = state
            self.progress.error = error
            for flow in self.progress.flows.values():
                if state == "stopped" and flow.state not in ("completed", "failed"):
                    flow.state = "stopped"
        self.note(None, now=True)

    def why(self, error: BaseException | None) -> str:
        """The reason of a failure: the first flow's that failed, if one did."""
        for flow in self.progress.flows.values():
            if flow.state == "failed" and flow.error:
                return f"Flow {flow.name} failed: {flow.error}"
        if error is not None:
            return first_line(error)
        return self.progress.error or "The run failed"

    def note(self, flow: Flow | None, *, now: bool = False) -> None:
        """Tell the watcher; write the record, but not more often than somebody could look."""
        with self._lock:
            self._watch(self.progress, flow)
            due = now or time.monotonic() - self._written > _WRITE_EACH_S
            if due and not self._order.is_dry:
                self._written = time.monotonic()
                runs.write(self._project.record, self._facts())

    def _facts(self) -> dict[str, Any]:
        return {
            "name": self._project.name,
            "spark": str(self.where),
            "began_at": self._began_at,
            "update": self._update,
            "every_s": self._order.every_s,
            "rows": self._rows_before + self.progress.rows,
            **self.progress.as_json(),
        }


def _listener(desk: _Desk) -> Any:
    """Spark's way to tell the progress of streaming queries; made here because its base is Spark's."""
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryListener,
    )

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
            pass

        def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
            desk.on_query(json.loads(event.progress.json))

        def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
            pass

        def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
            pass

    return Listener()
