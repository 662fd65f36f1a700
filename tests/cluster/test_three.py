"""Three brokers as processes: what clients may count on when one of them goes, and what tests can do."""

from collections.abc import Iterator
from typing import Any

import pytest
from compat.eventually import eventually
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from dmq.testing import Cluster

QUIET: dict[str, Any] = {"log_level": 0, "error_cb": lambda error: None}
TOPIC = "t"
PATIENCE_S = 60.0


@pytest.fixture(params=["proxy"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(3, network=request.param) as made:
        admin = AdminClient({"bootstrap.servers": made.bootstrap, **QUIET})
        topic = NewTopic(TOPIC, 3, 3, config={"min.insync.replicas": "2"})
        admin.create_topics([topic])[TOPIC].result(PATIENCE_S)
        made.wait_ready(PATIENCE_S, in_sync=True)
        yield made


class Writer:
    """Writes numbers to all partitions and knows which were acknowledged."""

    def __init__(self, cluster: Cluster) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "enable.idempotence": True,
                "request.timeout.ms": 5000,
                "topic.metadata.refresh.interval.ms": 500,
                **QUIET,
            }
        )
        self._cluster = cluster
        self._next = 0

    def write(self, count: int = 30) -> None:
        """Returns when all are acknowledged."""
        failed: list[Any] = []
        for _ in range(count):
            self._producer.produce(
                TOPIC,
                str(self._next),
                partition=self._next % 3,
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
            self._next += 1
        assert self._producer.flush(PATIENCE_S) == 0, "records wait for an acknowledgement"
        assert failed == []

    def read(self) -> None:
        """All that was written is there, once and in order."""
        consumer = Consumer(
            {"bootstrap.servers": self._cluster.bootstrap, "group.id": "g", **QUIET}
        )
        consumer.assign([TopicPartition(TOPIC, p, 0) for p in range(3)])
        found: dict[int, list[int]] = {p: [] for p in range(3)}

        def has_all() -> bool:
            for message in consumer.consume(1000, 0.2):
                if message.error() is None:
                    found[message.partition()].append(int(message.value()))
            return sum(map(len, found.values())) >= self._next

        eventually(has_all, "all records are read", PATIENCE_S)
        consumer.close()
        assert found == {p: list(range(p, self._next, 3)) for p in range(3)}


@pytest.mark.timeout(300)
def test_a_leader_killed_paused_cut_off_and_stopped(cluster: Cluster) -> None:
    writer = Writer(cluster)
    writer.write()
    victim = cluster.leader(TOPIC, 0)

    others = [node for node in cluster.brokers if node != victim]
    cluster.kill(victim)
    writer.write()
    eventually(lambda: leader_for(cluster, others) in others, "another one leads", PATIENCE_S)
    cluster.restart(victim)
    cluster.wait_ready(PATIENCE_S, in_sync=True)

    victim = cluster.leader(TOPIC, 0)
    others = [node for node in cluster.brokers if node != victim]
    cluster.pause(victim)
    eventually(lambda: leader_for(cluster, others) in others, "another one leads", PATIENCE_S)
    cluster.resume(victim)
    cluster.wait_ready(PATIENCE_S, in_sync=True)
    writer.write()

    victim = cluster.leader(TOPIC, 0)
    cluster.isolate(victim)
    others = [node for node in cluster.brokers if node != victim]
    eventually(lambda: leader_for(cluster, others) in others, "another one leads", PATIENCE_S)
    eventually(lambda: leader_for(cluster, [victim]) == -1, "it knows no leader", PATIENCE_S)
    # Clients drop a broker that they are not told of, with the requests that are under way to it.
    assert {seen.brokers for seen in cluster.views().values()} == {frozenset(cluster.brokers)}
    cluster.heal(victim)
    cluster.wait_ready(PATIENCE_S, in_sync=True)
    writer.write()

    victim = cluster.leader(TOPIC, 0)
    cluster.stop(victim)
    writer.write()
    cluster.restart(victim)
    cluster.wait_ready(PATIENCE_S, in_sync=True)
    writer.read()


def leader_for(cluster: Cluster, brokers: list[int]) -> int:
    """Who leads partition 0 in the eyes of these brokers; -1 if they do not agree."""
    views = cluster.views([TOPIC])
    seen = {
        each.leader
        for node in brokers
        if node in views
        for each in views[node].partitions
        if each.partition == 0
    }
    return seen.pop() if len(seen) == 1 else -1


@pytest.mark.timeout(300)
def test_all_killed_at_once(cluster: Cluster) -> None:
    writer = Writer(cluster)
    writer.write()
    for node in cluster.brokers:
        cluster.kill(node)
    for node in cluster.brokers:
        cluster.restart(node, wait=False)
    cluster.wait_ready(PATIENCE_S, in_sync=True)
    writer.write()
    writer.read()


@pytest.mark.timeout(300)
def test_a_wiped_broker_comes_back_and_a_new_one_takes_over(cluster: Cluster) -> None:
    writer = Writer(cluster)
    writer.write()
    victim = cluster.leader(TOPIC, 0)
    cluster.kill(victim)
    cluster.restart(victim, wiped=True)
    cluster.wait_ready(PATIENCE_S, in_sync=True)
    writer.write()

    added = cluster.add()
    assert added not in (1, 2, 3)
    cluster.wait_ready(PATIENCE_S, in_sync=True)
    cluster.remove(victim)
    assert victim not in cluster.brokers
    cluster.wait_ready(PATIENCE_S, in_sync=True)
    views = cluster.views([TOPIC])
    for seen in views.values():
        assert all(victim not in each.replicas for each in seen.partitions)
    writer.write()

    founder = next(node for node in (1, 2, 3) if node != victim)
    cluster.kill(founder)
    cluster.restart(founder, wiped=True)  # One that it was founded with is gone.
    cluster.wait_ready(PATIENCE_S, in_sync=True)
    writer.write()
    writer.read()
