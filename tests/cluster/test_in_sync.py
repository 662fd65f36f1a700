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
TOPIC = "strict"

pytestmark = pytest.mark.timeout(300)


def test_behind_a_refused_batch_nothing_is_missing() -> None:
    with Cluster(3, network="direct") as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        wanted = NewTopic(TOPIC, 1, 3, config={"min.insync.replicas": "3"})
        admin.create_topics([wanted])[TOPIC].result(30)
        cluster.wait_ready(in_sync=True)
        leader = cluster.leader(TOPIC, 0)
        lost = next(node for node in cluster.brokers if node != leader)
        with Connection(cluster.member(leader).bootstrap) as connection:
            me = producer_id(connection)
            assert produce(connection, TOPIC, numbered(me, 0, [b"a"])).error_code == NONE
            cluster.kill(lost)

            def refused(sequence: int) -> int:
                return int(produce(connection, TOPIC, numbered(me, sequence, [b"x"])).error_code)

            # Until the leader has noticed, a batch waits for the third disk: each is another try.
            sequence = 1
            while (code := refused(sequence)) != NOT_ENOUGH_REPLICAS:
                assert code in (NONE, NOT_ENOUGH_REPLICAS_AFTER_APPEND)
                sequence += 1
            assert refused(sequence + 1) == NOT_ENOUGH_REPLICAS
            assert refused(sequence + 3) == NOT_ENOUGH_REPLICAS
            cluster.restart(lost)
            cluster.wait_ready(in_sync=True)
            assert cluster.leader(TOPIC, 0) == leader
            assert refused(sequence + 1) == NOT_ENOUGH_REPLICAS, "the first has not come again"
            eventually(lambda: refused(sequence) == NONE, "the first is taken")
            assert refused(sequence + 1) == NONE
            assert refused(sequence + 5) == OUT_OF_ORDER_SEQUENCE_NUMBER, "that one is missing"
