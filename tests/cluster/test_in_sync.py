"""Too few replicas in sync: what batches behind a refused one hear, and how clients get over it.

"One is missing before it" would make librdkafka take a new epoch, and write twice whatever it has in
flight elsewhere and does not know the fate of.
"""

import json
from typing import Any

import pytest
from compat.eventually import eventually
from compat.requests import produce
from compat.test_idempotence import numbered, producer_id
from compat.wire import NONE, Connection
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from dmq.testing import Cluster

NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS_AFTER_APPEND = 19, 20
OUT_OF_ORDER_SEQUENCE_NUMBER = 45
TRIES = 3
RECORDS = 40
QUIET = {"log_level": 0, "error_cb": lambda error: None}

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


class MovedError(Exception):
    """Another leads, or has in between: who was refused what is not known to it."""


def refuse_and_take(cluster: Cluster, topic: str, before: tuple[int, int]) -> None:
    """Raises MovedError as soon as an answer may be another leader's; no other answer is excused."""
    lost = next(node for node in cluster.brokers if node != before[0])
    with Connection(cluster.member(before[0]).bootstrap) as connection:
        me = producer_id(connection)

        def answered(sequence: int) -> int:
            code = int(produce(connection, topic, numbered(me, sequence, [b"x"])).error_code)
            if led(cluster, topic) != before:
                raise MovedError
            return code

        assert answered(0) == NONE
        cluster.kill(lost)
        # Until the leader has noticed, a batch waits for the third disk: each is another try.
        sequence = 1
        while (code := answered(sequence)) != NOT_ENOUGH_REPLICAS:
            assert code in (NONE, NOT_ENOUGH_REPLICAS_AFTER_APPEND)
            sequence += 1
        assert answered(sequence + 1) == NOT_ENOUGH_REPLICAS
        assert answered(sequence + 3) == NOT_ENOUGH_REPLICAS
        cluster.restart(lost)
        cluster.wait_ready(in_sync=True)
        assert answered(sequence + 1) == NOT_ENOUGH_REPLICAS, "the first has not come again"
        eventually(lambda: answered(sequence) == NONE, "the first is taken")
        assert answered(sequence + 1) == NONE
        assert answered(sequence + 5) == OUT_OF_ORDER_SEQUENCE_NUMBER, "that one is missing"


def test_behind_a_refused_batch_nothing_is_missing() -> None:
    """With one leader throughout: on a busy machine another may be elected, then once more."""
    with Cluster(3, {"auto.leader.rebalance.enable": False}, network="direct") as cluster:
        for number in range(TRIES):
            topic = f"strict-{number}"
            before = create(cluster, topic)
            try:
                refuse_and_take(cluster, topic, before)
            except MovedError:
                for node in set(cluster.brokers) - set(cluster.running):
                    cluster.restart(node)
            else:
                return
    pytest.fail(f"the leader moved {TRIES} times")


# --- clients --------------------------------------------------------------------------------------


class Waiting:
    """An idempotent producer of librdkafka, its outcomes and its own count of requests."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._topic = topic
        self._statistics: dict[str, Any] = {}
        self.delivered: list[str] = []
        self.failed: list[str] = []
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "message.timeout.ms": 240_000,
                "batch.num.messages": 5,  # Several are in flight when the first is refused.
                "statistics.interval.ms": 100,
                "stats_cb": self._note,
                **QUIET,
            }
        )

    def _note(self, statistics: str) -> None:
        self._statistics = json.loads(statistics)

    def _on_delivery(self, error: Any, message: Any) -> None:
        value = message.value().decode()
        if error is None:
            self.delivered.append(value)
        else:
            self.failed.append(f"{value}: {error.str()}")

    def write(self, values: list[str]) -> None:
        for value in values:
            self._producer.produce(self._topic, value, partition=0, on_delivery=self._on_delivery)

    def flush(self) -> bool:
        return self._producer.flush(120) == 0

    def requests(self) -> int:
        """How often it asked brokers to take something."""
        self._producer.poll(0.05)
        brokers = self._statistics.get("brokers", {}).values()
        return sum(int(broker["req"].get("Produce", 0)) for broker in brokers)


def read_all(cluster: Cluster, topic: str) -> list[str]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            **QUIET,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[str] = []

    def is_at_end() -> bool:
        message = consumer.poll(0.2)
        if message is None:
            return False
        error = message.error()
        if error is None:
            found.append(message.value().decode())
        return error is not None and error.code() == KafkaError._PARTITION_EOF

    try:
        eventually(is_at_end, "all is read")
    finally:
        consumer.close()
    return found


@pytest.mark.parametrize("is_leader", [False, True], ids=["follower", "leader"])
def test_a_client_waits_for_the_third_replica_and_writes_once(is_leader: bool) -> None:
    values = [f"{number}" for number in range(RECORDS)]
    with Cluster(3, network="direct") as cluster:
        leader, _ = create(cluster, "strict")
        lost = leader if is_leader else next(n for n in cluster.brokers if n != leader)
        producer = Waiting(cluster, "strict")
        producer.write(values[:1])
        assert producer.flush()
        cluster.stop(lost)

        def is_missed() -> bool:
            seen = cluster.partition_view("strict", 0)
            return seen is not None and seen.leader > 0 and lost not in seen.isr

        eventually(is_missed, "two are in sync")
        producer.write(values[1:])
        before = producer.requests()
        eventually(lambda: producer.requests() > before + 3, "it asks again and again")
        assert (producer.delivered, producer.failed) == (values[:1], [])
        cluster.restart(lost)
        assert producer.flush(), "it got over it by itself"
        assert (producer.delivered, producer.failed) == (values, [])
        assert read_all(cluster, "strict") == values
