"""Spark sessions for the commands: quiet, on this machine or on a cluster.

Owns how a session is made and ended. Two kinds: a *classic* one, with the driver in this process
(landing, audits), and a *Connect* one, which declarative pipelines ask for; without --remote its
server is a driver in this process too. What Java prints goes to a log file, not between our lines.
"""

import os
import socket
import subprocess
import sys
import uuid
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dmq.spark.pipelines.failures import PipelineError, first_line
from dmq.spark.pipelines.java import ensure_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*]"
_TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105 (the name of a variable)
_CONNECT = {
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
    "spark.sql.artifact.isolation.enabled": "true",
    "spark.sql.artifact.isolation.alwaysApplyClassloader": "true",
}
_STOP_PATIENCE_S = 30.0
_SERVER_PATIENCE_S = 10.0
"""How long a Connect server or a master may take to answer at all."""
_RETRIES = 6
_RETRIES_HERE = 4
"""How often a Connect server that is gone is called again: for about a minute, or four seconds if it is
the driver in this process. PySpark does so for more than ten minutes."""
_MASTER = "spark://"
_ALONE = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""A driver without a cluster talks to nobody else; the machine's name may resolve to anything."""
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.connect.serverStacktrace.enabled": "false",
    # Small machines are the rule where a pipeline begins; adaptive plans merge what is left over.
    "spark.sql.shuffle.partitions": "8",
}


@dataclass(frozen=True, slots=True)
class Where:
    """Which Spark: a master for a driver in this process, or a Connect server that runs already."""

    master: str = LOCAL
    remote: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    """Settings of Spark, as `--conf` gives them; they win over all others."""

    def __str__(self) -> str:
        return self.remote or self.master

    def log_at(self, log: Path) -> str:
        """Where to look for what Spark's Java says."""
        return "Spark's log is the Connect server's" if self.remote else f"Spark's log is {log}"


@contextmanager
def classic(
    where: Where, name: str, log: Path, conf: Mapping[str, str] | None = None
) -> Iterator["SparkSession"]:
    """A session whose driver is in this process."""
    if where.remote is not None:
        raise PipelineError(
            "This command needs its Spark driver in this process", "Use --master, not --remote."
        )
    if (present := _present(conf or {})) is not None:
        yield present
        return
    context = _context(where, name, log, dict(conf or {}))
    from pyspark.sql.session import SparkSession

    try:
        yield SparkSession(context)
    finally:
        _stop(context)


def _present(conf: Mapping[str, str]) -> "SparkSession | None":
    """A session of the driver that this process has already, as in a notebook; it is left running."""
    import importlib.util

    if importlib.util.find_spec("pyspark") is None:
        return None
    from pyspark import SparkContext
    from pyspark.sql.session import SparkSession

    context = SparkContext._active_spark_context
    if context is None:
        return None
    session = SparkSession(context).newSession()
    for key, value in conf.items():
        session.conf.set(key, value)
    return session


@contextmanager
def connect(
    where: Where, name: str, log: Path, conf: Mapping[str, str] | None = None
) -> Iterator["SparkSession"]:
    """A Connect session: of a server in this process, or of the one that `where` names."""
    if where.remote is not None:
        yield from _connected(where.remote, where.conf, _RETRIES)
        return
    os.environ.setdefault(_TOKEN, str(uuid.uuid4()))
    context = _context(where, name, log, _CONNECT | dict(conf or {}))
    try:
        service = getattr(context._jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
        port = getattr(service, "MODULE$").localPort()
        url = f"sc://localhost:{port}/;token={os.environ[_TOKEN]}"
        yield from _connected(url, {}, _RETRIES_HERE)
    finally:
        _stop(context)


def _connected(url: str, conf: Mapping[str, str], retries: int) -> Iterator["SparkSession"]:
    # What `pyspark.sql.functions` makes columns for is decided by this variable, nothing else.
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
    with warnings.catch_warnings():
        # PySpark warns of versions of pandas that it has not been tried with; we use none of it.
        warnings.filterwarnings("ignore", ".*pandas", FutureWarning)
        # What it warns of when a server goes away is told as an error.
        warnings.filterwarnings("ignore", ".*(RETRIES_EXCEEDED|[Ll]istener)")
        try:
            yield from _in_connect_mode(url, conf, retries)
        finally:
            os.environ.pop("SPARK_CONNECT_MODE_ENABLED", None)


def _in_connect_mode(url: str, conf: Mapping[str, str], retries: int) -> Iterator["SparkSession"]:
    from pyspark.errors import PySparkException
    from pyspark.sql.connect.client.retries import DefaultPolicy
    from pyspark.sql.connect.session import SparkSession

    _wait_for_server(url)
    try:
        session: Any = SparkSession.builder.remote(url).create()
        session.client.set_retry_policies([DefaultPolicy(max_retries=retries)])
        for key, value in conf.items():
            session.conf.set(key, value)
        session.range(1).count()
    except PySparkException as error:
        raise PipelineError(
            f"Spark Connect at {url.partition('/;')[0]} does not take us: {first_line(error)}",
            "Is the server there, and of the same Spark version?",
        ) from error
    try:
        yield session
    finally:
        hurry(session)
        session.stop()


def hurry(session: Any) -> None:
    """From here on, a Connect server that does not answer is not called again: the end is near."""
    session.client.set_retry_policies([])


def _wait_for_server(url: str) -> None:
    """A first contact: PySpark itself would try for more than ten minutes, without a word."""
    import grpc
    from pyspark.errors import PySparkException
    from pyspark.sql.connect.client import DefaultChannelBuilder

    address = url.partition("/;")[0]
    try:
        channel = DefaultChannelBuilder(url).toChannel()
    except (PySparkException, ValueError) as error:
        raise PipelineError(
            f"{address} is no Connect address: {first_line(error)}", "Write sc://host:15002."
        ) from error
    try:
        grpc.channel_ready_future(channel).result(timeout=_SERVER_PATIENCE_S)
    except grpc.FutureTimeoutError as error:
        raise PipelineError(
            f"No Spark Connect server answers at {address} within {_SERVER_PATIENCE_S:.0f} s",
            "Is it running, is the port right (15002 unless changed), and can it be reached from here?",
        ) from error
    finally:
        channel.close()


def _wait_for_master(master: str) -> None:
    """A first contact: a driver without a master would wait for ever, or die without a word."""
    failures = []
    for address in master.removeprefix(_MASTER).split(","):
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise PipelineError(
                f"{address!r} in --master is no host:port", "Write spark://host:7077."
            )
        try:
            socket.create_connection((host.strip("[]"), int(port)), _SERVER_PATIENCE_S).close()
        except OSError as error:
            failures.append(f"{address}: {error}")
        else:
            return
    raise PipelineError(
        f"No Spark master answers ({'; '.join(failures)})",
        "Is it running, is the port right (7077 unless changed), and can it be reached from here?",
    )


def _context(where: Where, name: str, log: Path, conf: dict[str, str]) -> Any:
    """A Spark context; the Java process writes its log to a file."""
    ensure_java()
    if where.master.startswith(_MASTER):
        _wait_for_master(where.master)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.pop("SPARK_REMOTE", None)
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException

    alone = _ALONE if where.master.startswith("local") else {}
    settings = SparkConf().setAll(list(_joined(alone | conf, where.conf).items()))
    settings.setMaster(where.master).setAppName(name)
    log.parent.mkdir(parents=True, exist_ok=True)
    try:
        with _java_speaks_to(log):
            return SparkContext(conf=settings)
    except (PySparkException, OSError, RuntimeError) as error:
        raise PipelineError(
            f"Spark does not start on {where}: {first_line(error)}", f"See {log}."
        ) from error
    except Exception as error:
        if type(error).__name__ != "Py4JJavaError":
            raise
        cause = str(getattr(error, "java_exception", error)).splitlines()[0]
        raise PipelineError(f"Spark does not start on {where}: {cause}", f"See {log}.") from error


def _joined(ours: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """All settings: those that are given win, but Java's options are added to ours."""
    settings = _QUIET | dict(ours) | dict(given)
    both = [each[_JAVA_OPTIONS] for each in (ours, given) if _JAVA_OPTIONS in each]
    return settings | ({_JAVA_OPTIONS: " ".join(both)} if both else {})


@contextmanager
def _java_speaks_to(log: Path) -> Iterator[None]:
    """Let a process that is started inside write to a file what it would write to our stderr."""
    sys.stderr.flush()
    ours = os.dup(2)
    theirs = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(theirs, 2)
    try:
        yield
    finally:
        os.dup2(ours, 2)
        os.close(theirs)
        os.close(ours)


def _stop(context: Any) -> None:
    """End the driver and its Java process, so that the next session is a new one."""
    from py4j.protocol import Py4JError
    from pyspark import SparkContext

    with suppress(Py4JError, OSError):  # The Java process may be gone already.
        context.stop()
    gateway = SparkContext._gateway
    if gateway is not None:
        with suppress(Py4JError, OSError):
            gateway.shutdown()
        gateway.proc.stdin.close()
        try:
            gateway.proc.wait(timeout=_STOP_PATIENCE_S)
        except subprocess.TimeoutExpired:  # All that counts is on disk.
            gateway.proc.kill()
            gateway.proc.wait()
        SparkContext._gateway = None
        SparkContext._jvm = None
        SparkContext._active_spark_context = None
