"""A byte of the metadata log rots on the disk: no broker believes it, and a cluster repairs it."""

from pathlib import Path

import pytest
from compat.eventually import eventually
from confluent_kafka.admin import AdminClient, NewTopic

from dmq.testing import Broker, BrokerFailedError, Cluster

pytestmark = [pytest.mark.compat, pytest.mark.timeout(180)]

TOPIC = "rotten"


def create(bootstrap: str, replicas: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (made,) = admin.create_topics([NewTopic(TOPIC, 1, replicas)]).values()
    made.result()


def names_of(bootstrap: str) -> set[str]:
    return set(AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=10).topics)


def place(data_dir: Path) -> tuple[Path, int]:
    """Where the topic's name stands in the metadata log."""
    for path in sorted(data_dir.glob("logs/*/*.log")):
        at = path.read_bytes().find(TOPIC.encode())
        if at >= 0:
            return path, at
    raise AssertionError(f"no log in {data_dir} names the topic")


def rot(data_dir: Path) -> tuple[Path, bytes]:
    """Flip a bit of the name, while no broker runs there; the file, and what it was."""
    path, at = place(data_dir)
    good = path.read_bytes()
    path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
    return path, good


def test_a_single_broker_says_what_is_wrong_and_does_not_start(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        create(broker.bootstrap_servers, 1)
    path, good = rot(tmp_path)
    bad = path.read_bytes()
    with pytest.raises(
        BrokerFailedError, match=r"metadata log is damaged .* the only copy"
    ) as caught:
        Broker(data_dir=tmp_path).start()
    assert "backup" in str(caught.value)
    assert path.read_bytes() == bad, "it is left as it is"
    path.write_bytes(good)  # The backup.
    with Broker(data_dir=tmp_path) as broker:
        assert TOPIC in names_of(broker.bootstrap_servers)


def test_a_broker_of_a_cluster_gets_the_good_bytes_from_the_others() -> None:
    with Cluster(3, network="direct") as cluster:
        cluster.wait_ready()
        create(cluster.bootstrap, 3)
        victim = cluster.brokers[0]
        cluster.stop(victim)
        path, good = rot(cluster.member(victim).data_dir)
        cluster.restart(victim)
        eventually(lambda: path.read_bytes()[: len(good)] == good, "the bytes are good again", 60)
        cluster.wait_ready(in_sync=True)
        seen = eventually(lambda: cluster.views([TOPIC]).get(victim), "it answers").partitions
        assert [(one.topic, one.partition) for one in seen] == [(TOPIC, 0)]
