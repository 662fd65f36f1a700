"""Too few replicas in sync: what batches in flight behind a refused one hear.

"One is missing before it" would make librdkafka take a new epoch, and write twice whatever it has in
flight elsewhere and does not know the fate of.
"""

import pytest
from compat.eventually import eventually
from compat.requests import produce
from compat.test_idempotence import numbered, producer_id
from compat.wire import NONE, Connection
from confluent_kafka.admin import AdminClient, NewTopic

from dmq.testing import Cluster

NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS_AFTER_APPEND = 19, 20
OUT_OF_ORDER_SEQUENCE_NUMBER = 45
TRIES = 3

pytestmark = pytest.mark.timeout(300)


def create(cluster: Cluster, topic: str) -> tuple[int, int]:
    """A topic that wants all three; who leads it, and in which epoch."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    wanted = NewTopic(topic, 1, 3, config={"min.insync.replicas": "3"})
    admin.create_topics([wanted])[topic].result(30)
    cluster.wait_ready(in_sync=True)
    return led(cluster, topic)


def led(cluster: Cluster, topic: str) -> tuple[int, int]:
    seen = eventually(lambda: cluster.partition_view(topic, 0), "somebody says who leads")
    return seen.leader, seen.epoch


def refuse_and_take(cluster: Cluster, topic: str, leader: int) -> None:
    lost = next(node for node in cluster.brokers if node != leader)
    with Connection(cluster.member(leader).bootstrap) as connection:
        me = producer_id(connection)
        assert produce(connection, topic, numbered(me, 0, [b"a"])).error_code == NONE
        cluster.kill(lost)

        def refused(sequence: int) -> int:
            return int(produce(connection, topic, numbered(me, sequence, [b"x"])).error_code)

        # Until the leader has noticed, a batch waits for the third disk: each is another try.
        sequence = 1
        while (code := refused(sequence)) != NOT_ENOUGH_REPLICAS:
            assert code in (NONE, NOT_ENOUGH_REPLICAS_AFTER_APPEND)
            sequence += 1
        assert refused(sequence + 1) == NOT_ENOUGH_REPLICAS
        assert refused(sequence + 3) == NOT_ENOUGH_REPLICAS
        cluster.restart(lost)
        cluster.wait_ready(in_sync=True)
        assert refused(sequence + 1) == NOT_ENOUGH_REPLICAS, "the first has not come again"
        eventually(lambda: refused(sequence) == NONE, "the first is taken")
        assert refused(sequence + 1) == NONE
        assert refused(sequence + 5) == OUT_OF_ORDER_SEQUENCE_NUMBER, "that one is missing"


def test_behind_a_refused_batch_nothing_is_missing() -> None:
    """With one leader throughout: on a busy machine another may be elected, then once more."""
    with Cluster(3, {"auto.leader.rebalance.enable": False}, network="direct") as cluster:
        for number in range(TRIES):
            topic = f"strict-{number}"
            before = create(cluster, topic)
            try:
                refuse_and_take(cluster, topic, before[0])
            except AssertionError:
                if led(cluster, topic) == before:
                    raise
            else:
                return
            for node in set(cluster.brokers) - set(cluster.running):
                cluster.restart(node)
    pytest.fail(f"the leader moved {TRIES} times")
