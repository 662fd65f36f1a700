"""Apache Kafka in place of our brokers, to judge the judge: `--kafka` of the runs here.

Three or five KRaft nodes, each broker and controller, started by the same machinery and put to the same
faults as far as they apply: its nodes are a fixed set, so none is added, removed or wiped. Its settings
are its defaults, but for racks and replication factors of internal topics. Needs `java` and `mvn`.
"""

import base64
import subprocess
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.kafka import JVM_OPTIONS, jars
from dmq.errors import ProtocolError
from dmq.testing.member import Member
from dmq.testing.probe import view
from tests.jepsen.changes import ChangingCluster

NO_FAULTS = ("add", "remove", "wipe-disk")
"""What can't be done to it here."""

_READY_S = 120.0


class KafkaMember(Member):
    """One node."""

    cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")

    def _command(self, way_in: Mapping[str, Any]) -> list[str]:
        config = self.data_dir.with_suffix(".properties")
        config.write_text(self._properties(way_in))
        java = ["java", "-cp", f"{jars()}/*"]
        logs = self.data_dir / "logs"
        if not (logs / "meta.properties").exists():
            tool = [*java, "kafka.tools.StorageTool", "format", "-t", self.cluster_id]
            subprocess.run([*tool, "-c", str(config)], check=True, capture_output=True)
        heap = ["-Xmx512M" if option == "-Xmx1G" else option for option in JVM_OPTIONS]
        heap = ["-Xms512M" if option == "-Xms1G" else option for option in heap]
        return ["java", *heap, "-cp", f"{jars()}/*", "kafka.Kafka", str(config)]

    def _properties(self, way_in: Mapping[str, Any]) -> str:
        place = self.place
        peers = str(way_in["cluster.peers"])
        count = min(3, peers.count("@"))
        settings = {
            "process.roles": "broker,controller",
            "node.id": way_in["node.id"],
            "controller.quorum.voters": peers,
            "listeners": f"PLAINTEXT://{place.host}:{place.kafka_port},"
            f"CONTROLLER://{place.host}:{place.peer_port}",
            "advertised.listeners": f"PLAINTEXT://{place.host}:{place.kafka_port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": self.data_dir / "logs",
            "broker.rack": self._settings["broker.rack"],
            "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
            "offsets.topic.replication.factor": count,
            "transaction.state.log.replication.factor": count,
            "default.replication.factor": count,
        }
        return "".join(f"{name}={value}\n" for name, value in settings.items())

    def wait_for_ready_line(self, patience_s: float = _READY_S) -> None:
        deadline = time.monotonic() + patience_s
        while not self._answers():
            if not self.is_running:
                raise self.failure(f"ended with {self.exit_code} before it was ready")
            if time.monotonic() > deadline:
                raise self.failure(f"was not ready within {patience_s:.0f} s")

    def _answers(self) -> bool:
        try:
            return self.node in view(self.address, []).brokers
        except (OSError, ProtocolError):
            return False

    def wait_for_end(self, patience_s: float) -> None:
        """A JVM that is told to stop ends with 143, which is no failure."""
        assert self._process is not None
        self._process.wait(patience_s * 4)

    def log(self) -> str:
        """Kafka logs to its standard output, which is where our brokers say that they are ready."""
        path = Path(str(self.data_dir) + ".ready")
        return super().log() + (path.read_text(errors="replace") if path.exists() else "")


class KafkaCluster(ChangingCluster):
    """A cluster of Apache Kafka with the methods of ours."""

    _member_type = KafkaMember

    def wait_ready(self, within_s: float = _READY_S, *, in_sync: bool = False) -> None:
        super().wait_ready(max(within_s, _READY_S), in_sync=in_sync)
