"""What clients are told of leaders in the very moment in which one dies."""

import contextlib
import socket
import threading

import pytest
from compat.wire import Connection
from kafka.protocol.metadata import MetadataRequest
from spark.feeding import create

from dmq.testing import Cluster

TOPIC = "orders"
TIMES = 3

pytestmark = pytest.mark.timeout(300)


def leaders(connection: Connection) -> set[int]:
    wanted = MetadataRequest.MetadataRequestTopic(name=TOPIC)
    told = connection.call(MetadataRequest(topics=[wanted]), 9)
    return {part.leader_id for part in told.topics[0].partitions}


def await_end(address: str) -> None:
    """Until the broker's kernel ends a connection: so a client learns of its death."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port))) as line, contextlib.suppress(ConnectionError):
        assert line.recv(1) == b""


@pytest.mark.crash
def test_who_asks_at_once_is_not_told_that_the_dead_one_leads() -> None:
    """librdkafka would believe it for a second."""
    with Cluster(3, network="direct") as cluster:
        create(cluster.bootstrap, TOPIC, 6)
        for _ in range(TIMES):
            cluster.wait_ready(in_sync=True)
            dead = cluster.leader(TOPIC, 0)
            others = [node for node in cluster.brokers if node != dead]
            with contextlib.ExitStack() as stack:
                lines = [
                    stack.enter_context(Connection(cluster.member(node).bootstrap))
                    for node in others
                ]
                assert all(dead in leaders(line) for line in lines)
                killer = threading.Timer(0.1, cluster.kill, (dead,))
                killer.start()
                await_end(cluster.member(dead).bootstrap)
                told = [leaders(line) for line in lines]
                killer.join()
            assert not [each for each in told if dead in each]
            cluster.restart(dead)
