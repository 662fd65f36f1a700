"""One Spark session for all tests of a run, on two cores, and the connector of Kafka as its judge."""

import os
import shutil
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed: make setup-dev")

from pyspark.sql import SparkSession

from bench.connector import Connector, ConnectorAbsentError, connector
from dmq.testing import Broker

PATIENCE_S = 600
"""A Spark job on a busy machine takes its time, and a test cut off in the middle of a call to the JVM
leaves the session useless for all that follow."""
JAVA_MISSING = "no Java: install a headless Java 17 (apt-get install openjdk-17-jre-headless)"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of this folder have more time than others."""
    for item in items:
        if Path(__file__).parent in item.path.parents and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(PATIENCE_S))


@pytest.fixture(scope="session")
def kafka_connector() -> Connector | None:
    """Spark's own Kafka connector, or None where Maven Central is out of reach."""
    try:
        return connector()
    except ConnectorAbsentError as error:
        print(f"no judge: {error}")
        return None


@pytest.fixture(scope="session")
def spark(
    kafka_connector: Connector | None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    """The session: `local[2]`, no UI, few shuffle partitions."""
    if shutil.which("java") is None:
        pytest.skip(JAVA_MISSING)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    folder = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.sql.streaming.stopTimeout": "30s",
        "spark.python.authenticate.socketTimeout": "120s",
        "spark.sql.streaming.noDataProgressEventInterval": "200ms",
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder}",
    }
    if kafka_connector is not None:
        settings["spark.jars"] = kafka_connector.spark_jars
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        builder = SparkSession.builder.master("local[2]").appName("dmq-tests")
        for name, value in settings.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A broker for the tests of a module, as a process of its own."""
    with Broker(in_process=False) as running:
        yield running


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """A folder for a query's checkpoint."""
    return str(tmp_path / "checkpoint")
