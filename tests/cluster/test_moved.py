"""All brokers get other addresses while they are down: none is left where the others look for it."""

from dataclasses import replace

import pytest
from compat.eventually import eventually
from confluent_kafka import Consumer, Producer

from dmq.testing import Cluster
from dmq.testing.networks import free_port

pytestmark = [pytest.mark.compat, pytest.mark.timeout(300)]
RECORDS = [b"%d" % number for number in range(20)]


def write(cluster: Cluster) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for record in RECORDS:
        producer.produce("kept", record, partition=0)
    assert producer.flush(60.0) == 0


def read(cluster: Cluster) -> list[bytes]:
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["kept"])
    found: list[bytes] = []

    def has_all() -> bool:
        messages = consumer.consume(100, 0.2)
        found.extend(m.value() or b"" for m in messages if not m.error())
        return len(found) >= len(RECORDS)

    eventually(has_all, "all records are read")
    consumer.close()
    return found


def move(cluster: Cluster, broker: int) -> None:
    """To other ports; the lists that the brokers are started with name them."""
    member = cluster.member(broker)
    peer_port, host = free_port(), member.place.host
    member.place = replace(
        member.place,
        kafka_port=free_port(),
        peer_port=peer_port,
        peer_advertised=(host, peer_port),
    )


def joining(cluster: Cluster, broker: int) -> list[str]:
    """Words for a start that names the others as those that joined one after another do."""
    others = (cluster.member(node).place for node in cluster.brokers if node != broker)
    named = ",".join(f"{place.host}:{place.peer_port}" for place in others)
    return ["--set=cluster.peers=", f"--set=cluster.join={named}"]


@pytest.mark.parametrize("is_joining", [False, True], ids=["--peers", "--join"])
def test_brokers_that_all_moved_find_each_other_by_a_new_list(is_joining: bool) -> None:
    with Cluster(3, network="direct") as cluster:
        write(cluster)
        cluster.wait_ready(in_sync=True)
        for broker in cluster.brokers:
            cluster.kill(broker)
            move(cluster, broker)
        for broker in cluster.brokers:
            words = joining(cluster, broker) if is_joining else []
            cluster.restart(broker, wait=False, options=words)
        cluster.wait_ready(in_sync=True)
        assert read(cluster) == RECORDS
