"""Apache Kafka as the peer: jars by Maven into a cache folder, one KRaft node on loopback.

Its defaults and the JVM options of its own start script; synced topics have `flush.messages=1`.
Two settings differ, and neither touches the data path: replication factors of the internal topics
(one node) and how soon the files of deleted topics go (so that a long bench does not fill the
disk). Needs `java` and `mvn`.
"""

import base64
import os
import shutil
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path

from bench.targets import REPOSITORY, Node, Target, TargetError, free_port

VERSION = "4.3.0"
CACHE = Path(os.environ.get("DMQ_BENCH_CACHE", REPOSITORY / ".cache" / "bench"))

JVM_OPTIONS = [
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
]

_DEPENDENCY = (
    "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
)


def available() -> str:
    """Why Kafka can't be run here, or an empty string."""
    missing = [tool for tool in ("java", "mvn") if shutil.which(tool) is None]
    return f"{' and '.join(missing)} not found" if missing else ""


def jars(version: str = VERSION) -> Path:
    """The folder with Kafka's jars, filled by Maven when first needed."""
    folder = CACHE / f"kafka-{version}"
    if (folder / "complete").exists():
        return folder / "libs"
    folder.mkdir(parents=True, exist_ok=True)
    dependencies = "".join(
        _DEPENDENCY.format(*item)
        for item in (
            ("org.apache.kafka", "kafka_2.13", version),
            ("org.slf4j", "slf4j-simple", "1.7.36"),
        )
    )
    (folder / "pom.xml").write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>dmq.bench</groupId>"
        "<artifactId>peer</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )
    command = ["mvn", "-q", "-B", "-f", str(folder / "pom.xml"), "dependency:copy-dependencies"]
    done = subprocess.run(
        [*command, f"-DoutputDirectory={folder / 'libs'}"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise TargetError(f"Maven could not get Kafka {version}: {done.stdout[-600:]}")
    (folder / "complete").touch()
    return folder / "libs"


class Kafka(Target):
    """One KRaft node for both durabilities; the topic decides."""

    name = "kafka"
    sync_topic_config: Mapping[str, str] = {"flush.messages": "1"}

    def node_key(self, _durability: str) -> str:
        return "kafka"

    def start_node(self, _durability: str, data: Path) -> Node:
        port, controller = free_port(), free_port()
        config = data / "server.properties"
        config.write_text(_properties(port, controller, data / "logs"))
        java = ["java", *JVM_OPTIONS, "-cp", f"{jars()}/*"]
        if not (data / "logs" / "meta.properties").exists():
            _format(config)
        command = [*java, "kafka.Kafka", str(config)]
        return Node(command, f"127.0.0.1:{port}", self.work / "log", {})


def _format(config: Path) -> None:
    cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    java = ["java", "-cp", f"{jars()}/*", "kafka.tools.StorageTool", "format"]
    done = subprocess.run(
        [*java, "-t", cluster_id, "-c", str(config)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise TargetError(f"Kafka's storage tool failed: {done.stderr[-600:]}")


def _properties(port: int, controller: int, logs: Path) -> str:
    return f"""process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={logs}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
log.segment.delete.delay.ms=1000
"""
