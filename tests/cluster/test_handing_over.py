"""A broker that stops in order, as its clients see it: nobody is sent to nobody."""

import threading
from contextlib import suppress
from typing import Any

import pytest
from compat import batches
from compat.eventually import eventually
from compat.requests import produce
from compat.wire import NONE, Connection, EndOfConnectionError
from confluent_kafka.admin import AdminClient, NewTopic

from dmq.testing import Cluster

QUIET: dict[str, Any] = {"log_level": 0, "error_cb": lambda error: None}
TOPIC = "t"
PARTITIONS = 3
STOPS = 4
PATIENCE_S = 60.0
NOT_LEADER_OR_FOLLOWER = 6


class Writer(threading.Thread):
    """Writes to one partition of a broker without a break, until it is refused or hung up on."""

    def __init__(self, address: tuple[str, int], partition: int) -> None:
        super().__init__(daemon=True)
        self._address, self._partition = address, partition
        self.written = 0
        self.refusal: Any = None
        self.is_over = False

    def run(self) -> None:
        address = "{}:{}".format(*self._address)
        with suppress(OSError, EndOfConnectionError), Connection(address) as connection:
            while self.refusal is None and not self.is_over:
                batch = batches.build([b"x"])
                answer = produce(connection, TOPIC, batch, partition=self._partition, version=10)
                if answer.error_code == NONE:
                    self.written += 1
                else:
                    self.refusal = answer


def begin(cluster: Cluster) -> tuple[int, list[Writer]] | None:
    """A broker that leads, and writers to all that it leads; None if it ceased to lead meanwhile."""
    victim = cluster.leader(TOPIC, 0)
    led = [p for p in range(PARTITIONS) if cluster.leader(TOPIC, p) == victim]
    writers = [Writer(cluster.member(victim).address, p) for p in led]
    for writer in writers:
        writer.start()
    for writer in writers:
        eventually(lambda w=writer: w.written or not w.is_alive(), "it writes", PATIENCE_S)
    if all(writer.is_alive() for writer in writers):
        return victim, writers
    for writer in writers:
        writer.is_over = True
        writer.join(PATIENCE_S)
    return None


@pytest.mark.timeout(300)
def test_who_writes_to_a_broker_that_stops_is_told_who_leads_instead() -> None:
    with Cluster(3, {"auto.leader.rebalance.enable": False}) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(PATIENCE_S)
        told = 0
        for _ in range(STOPS):
            cluster.wait_ready(PATIENCE_S, in_sync=True)
            victim, writers = eventually(lambda: begin(cluster), "all of them write", PATIENCE_S)
            others = [node for node in cluster.brokers if node != victim]
            stopping = threading.Thread(target=cluster.stop, args=(victim,))
            stopping.start()
            for writer in writers:
                writer.join(PATIENCE_S)
                if writer.refusal is not None:
                    told += 1
                    assert writer.refusal.error_code == NOT_LEADER_OR_FOLLOWER
                    assert writer.refusal.current_leader.leader_id in others, writer.refusal
            stopping.join(PATIENCE_S)
            cluster.restart(victim)
        assert told, "no writer heard more than the end of its connection"
