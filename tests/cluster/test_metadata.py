"""What clients are told of leaders in the very moment in which one dies."""

import contextlib
from typing import Any

import pytest
from compat.eventually import eventually
from compat.wire import Connection
from kafka.protocol.metadata import MetadataRequest
from spark.feeding import create

from dmq.testing import Cluster

TOPIC = "orders"
TIMES = 3

pytestmark = pytest.mark.timeout(300)


def ask(connection: Connection) -> tuple[Any, int, int]:
    wanted = MetadataRequest.MetadataRequestTopic(name=TOPIC)
    return connection.send(MetadataRequest(topics=[wanted]), 9)


def leaders(connection: Connection, asked: tuple[Any, int, int]) -> set[int]:
    told = connection.receive(asked)
    return {part.leader_id for part in told.topics[0].partitions}


def kill_between(cluster: Cluster, dead: int) -> list[set[int]]:
    """Who leads in the eyes of the others, which find a client's question and the end of their link
    with the dead one at once, the question first."""
    others = [node for node in cluster.brokers if node != dead]
    with contextlib.ExitStack() as stack:
        lines = [stack.enter_context(Connection(cluster.member(node).bootstrap)) for node in others]
        for line in lines:
            eventually(lambda line=line: dead in leaders(line, ask(line)), "it knows who leads")
        for node in others:
            cluster.pause(node)
        asked = [ask(line) for line in lines]
        cluster.kill(dead)
        for node in others:
            cluster.resume(node)
        return [leaders(line, each) for line, each in zip(lines, asked, strict=True)]


@pytest.mark.crash
def test_who_asks_at_once_is_not_told_that_the_dead_one_leads() -> None:
    """librdkafka would believe it for a second."""
    with Cluster(3, network="direct") as cluster:
        create(cluster.bootstrap, TOPIC, 6)
        for _ in range(TIMES):
            cluster.wait_ready(in_sync=True)
            dead = cluster.leader(TOPIC, 0)
            assert not [told for told in kill_between(cluster, dead) if dead in told]
            cluster.restart(dead)
