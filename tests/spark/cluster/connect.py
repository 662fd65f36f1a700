"""A Spark Connect server as a process of its own, and clients of it as processes of theirs."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from dmq.testing.networks import free_port
from tests.spark.cluster.standalone import HOME, QUICK, Process, Running, environment

ROOT = Path(__file__).parents[3]
CLIENT_S = 300.0


def application(folder: Path) -> dict[str, str]:
    """Settings of an application that has one core of each worker, and little of everything."""
    return {
        "spark.ui.enabled": "false",
        "spark.cores.max": "2",
        "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": QUICK,
        "spark.driver.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"{QUICK} -Dderby.system.home={folder}",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.python.authenticate.socketTimeout": "120s",
    }


def submit(settings: dict[str, str], *arguments: str) -> list[str]:
    """The command of a driver."""
    named = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    return [str(HOME / "bin" / "spark-submit"), *named, *arguments]


class ConnectServer(Running):
    """A driver on the cluster `master`, for clients at `url`."""

    def __init__(self, folder: Path, master: str, settings: Mapping[str, str]) -> None:
        super().__init__()
        port = free_port()
        self.url = f"sc://127.0.0.1:{port}"
        own = {
            "spark.master": master,
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(port),
        }
        command = submit(
            application(folder) | own | dict(settings),
            *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
            "spark-internal",
        )
        # Spark looks for data sources with this Python; the setting spark.pyspark.python is not asked.
        env = environment(PYSPARK_PYTHON=sys.executable)
        self.process = Process(command, folder / "connect.log", self.leash, env)

    def processes(self) -> list[Process]:
        return [self.process]

    def wait_for_start(self) -> None:
        self.process.says("Spark Connect server started")

    def run(self, job: str, **options: object) -> str:
        """What the client prints that does this job."""
        words = [f"--{name}={value}" for name, value in options.items()]
        command = [sys.executable, "-m", "tests.spark.cluster.client", job, self.url, *words]
        ended = subprocess.run(
            command, cwd=ROOT, env=environment(), timeout=CLIENT_S, text=True, capture_output=True,
            start_new_session=True,
        )  # fmt: skip
        assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr[-8000:]}"
        return ended.stdout
