"""A standalone Spark cluster on this machine: a master and workers, each a Java process of its own.

PySpark brings the classes; its `sbin` has no scripts for them. Executors are children of their worker,
and inherit its environment: what is not in there, no executor has.
"""

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
import pyspark
from compat.eventually import eventually

from dmq.testing.leash import Leash
from dmq.testing.networks import free_port

HOME = Path(pyspark.__file__).parent
HOSTS = ("127.0.0.1", "localhost")
"""Of the workers. Spark starts no speculative attempt on a host that has one already, and it knows
hosts by name only."""
START_S = 400.0
_MEMORY = "-Xmx256m"
QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""These processes live for a minute: they need no second compiler."""
_NO_REST = "-Dspark.master.rest.enabled=false"
"""Its port is always the same, so a second cluster on this machine would not start."""
EXECUTOR = "CoarseGrainedExecutorBackend"


def environment(**more: str) -> dict[str, str]:
    """This process's, without what would lead a Spark process to Python packages or to another Spark."""
    own = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYSPARK", "SPARK"))}
    core = next((HOME / "jars").glob("spark-core_*.jar"))
    spark = {
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        # A worker needs it to start an executor; Spark's scripts would find it out.
        "SPARK_SCALA_VERSION": core.name.removeprefix("spark-core_").partition("-")[0],
    }
    return own | spark | more


def java() -> str:
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else "java"


class Process:
    """A process that writes to a log file; it ends with this one."""

    def __init__(self, command: list[str], log: Path, leash: Leash, env: Mapping[str, str]) -> None:
        self.log = log
        self._leash = leash
        with log.open("w") as words:
            self.process = subprocess.Popen(
                command, env=dict(env), stdout=words, stderr=subprocess.STDOUT, cwd=log.parent,
                start_new_session=True,
            )  # fmt: skip
        leash.hold(self.process.pid)

    def words(self) -> str:
        return self.log.read_text(errors="replace")

    def says(self, pattern: str, within_s: float = START_S) -> re.Match[str]:
        """Wait for words in its log."""

        def look() -> re.Match[str] | None:
            found = re.search(pattern, self.words())
            if found is None:
                assert self.process.poll() is None, f"ended:\n{self.words()[-4000:]}"
            return found

        return eventually(look, f"{pattern!r} in {self.log}", within_s)

    def end(self) -> None:
        """Kill it with all that it has started."""
        children = []
        if self.process.poll() is None:
            children = psutil.Process(self.process.pid).children(recursive=True)
            self.process.kill()
        self.process.wait()
        self._leash.release(self.process.pid)
        for child in children:
            if child.is_running():
                child.kill()


class Running:
    """Processes that are waited for at the beginning of a block, and ended with it."""

    def __init__(self) -> None:
        self.leash = Leash()

    def processes(self) -> list[Process]:
        """In the order of their ends."""
        raise NotImplementedError

    def wait_for_start(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        try:
            self.wait_for_start()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def end(self) -> None:
        for each in self.processes():
            each.end()
        self.leash.close()


class Standalone(Running):
    """A master and workers with two cores each, so that two applications fit."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        port = free_port()
        self.url = f"spark://127.0.0.1:{port}"
        self._master = self._start("master", "--port", str(port))
        self._workers = [self._worker(number) for number in range(len(HOSTS))]

    def processes(self) -> list[Process]:
        return [*self._workers, self._master]

    def wait_for_start(self) -> None:
        for worker in self._workers:
            worker.says("Successfully registered with master")

    def executors(self) -> list[psutil.Process]:
        """The executors that run now, of all workers."""
        found = []
        for worker in self._workers:
            for child in psutil.Process(worker.process.pid).children():
                try:
                    if EXECUTOR in " ".join(child.cmdline()):
                        found.append(child)
                except psutil.NoSuchProcess:
                    continue
        return found

    def _worker(self, number: int) -> Process:
        scratch = self.folder / f"worker-{number}"
        room = ("--cores", "2", "--memory", "2g", "--work-dir", str(scratch))
        return self._start("worker", *room, self.url, number=number)

    def _start(self, role: str, *arguments: str, number: int = 0) -> Process:
        name = f"org.apache.spark.deploy.{role}.{role.title()}"
        command = [java(), _MEMORY, *QUICK.split(), _NO_REST, "-cp", f"{HOME}/jars/*", name]
        ports = ("--host", HOSTS[number], "--webui-port", "0")
        log = self.folder / f"{role}-{number}.log"
        return Process([*command, *ports, *arguments], log, self.leash, environment())
