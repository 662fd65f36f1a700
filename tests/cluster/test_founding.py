"""Topics that are made while a broker is down: they work at once, and it has its part of them when it
is back, with its disk or without."""

from collections.abc import Iterator
from typing import Any

import pytest
from compat.eventually import eventually
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from dmq.testing import Cluster

QUIET: dict[str, Any] = {"log_level": 0, "error_cb": lambda error: None}
PATIENCE_S = 60.0
DOWN = 3


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(3) as made:
        yield made


def up(cluster: Cluster) -> dict[str, Any]:
    """Settings of a client that knows the brokers that run."""
    addresses = ",".join(cluster.member(node).bootstrap for node in cluster.running)
    return {"bootstrap.servers": addresses, **QUIET}


def create(cluster: Cluster, name: str, partitions: int) -> None:
    admin = AdminClient(up(cluster))
    topic = NewTopic(name, partitions, config={"min.insync.replicas": "2"})
    admin.create_topics([topic])[name].result(PATIENCE_S)


def grow(cluster: Cluster, name: str, partitions: int) -> None:
    admin = AdminClient(up(cluster))
    admin.create_partitions([NewPartitions(name, partitions)])[name].result(PATIENCE_S)


def write(cluster: Cluster, topic: str, count: int = 30, **settings: Any) -> None:
    """Returns when all are acknowledged."""
    producer = Producer({**up(cluster), "acks": "all", **settings})
    failed: list[Any] = []
    if "transactional.id" in settings:
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
    for number in range(count):
        producer.produce(
            topic, str(number), on_delivery=lambda error, _: failed.append(error) if error else None
        )
    if "transactional.id" in settings:
        producer.commit_transaction(PATIENCE_S)
    assert producer.flush(PATIENCE_S) == 0, "records wait for an acknowledgement"
    assert failed == []


def read(cluster: Cluster, topic: str, count: int) -> None:
    """As a group, which commits what it read."""
    consumer = Consumer({**up(cluster), "group.id": f"of-{topic}", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[str] = []

    def has_all() -> bool:
        found.extend(
            str(message.value()) for message in consumer.consume(1000, 0.2) if not message.error()
        )
        return len(found) >= count

    eventually(has_all, f"{count} records of {topic} are read", PATIENCE_S)
    consumer.commit(asynchronous=False)
    consumer.close()
    assert len(found) == count


def replicas(cluster: Cluster, topic: str) -> list[list[int]]:
    admin = AdminClient(up(cluster))
    found = admin.list_topics(topic, PATIENCE_S).topics[topic]
    return [list(part.replicas) for _, part in sorted(found.partitions.items())]


def kill(cluster: Cluster) -> None:
    """Returns when whoever places new partitions has seen it: until then they may begin with the dead,
    and wait for an election."""
    cluster.kill(DOWN)
    made: list[str] = []

    def is_seen() -> bool:
        made.append(f"try-{len(made)}")
        create(cluster, made[-1], 3)
        return all(nodes[0] != DOWN for nodes in replicas(cluster, made[-1]))

    eventually(is_seen, "it is seen that a broker is down", PATIENCE_S)


@pytest.mark.timeout(300)
def test_topics_groups_and_transactions_begin_while_a_broker_is_down(cluster: Cluster) -> None:
    kill(cluster)
    create(cluster, "made", 3)
    write(cluster, "made")
    grow(cluster, "made", 6)
    write(cluster, "found", **{"transactional.id": "x", "allow.auto.create.topics": True})
    read(cluster, "found", 30)
    for topic in ("made", "found", "__consumer_offsets", "__transaction_state"):
        for nodes in replicas(cluster, topic):
            assert sorted(nodes) == [1, 2, 3], (topic, nodes)
            assert nodes[0] != DOWN, (topic, nodes, "who is down leads nothing")

    cluster.restart(DOWN)
    cluster.wait_ready(PATIENCE_S, in_sync=True)
    cluster.kill(1)  # Now all that is new rests on the one that was down.
    write(cluster, "made")
    read(cluster, "made", 60)
    create(cluster, "later", 3)
    write(cluster, "later")

    cluster.restart(1, wiped=True)  # One that was to be among the founders is gone for ever.
    cluster.wait_ready(PATIENCE_S, in_sync=True)
    cluster.kill(2)
    write(cluster, "later")
    read(cluster, "later", 60)
