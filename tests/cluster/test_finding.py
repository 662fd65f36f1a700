"""Who coordinates, asked while nobody does: the answer waits for the election.

librdkafka asks three times in half a second. If it hears three times that there is no coordinator, the
offsets of a transaction hang until some connection of it changes its state.
"""

from typing import Any

import pytest
from compat.wire import NONE, Connection
from kafka.protocol.metadata import FindCoordinatorRequest

from dmq.testing import Cluster

GROUP, TRANSACTION = 0, 1

pytestmark = pytest.mark.timeout(300)


def coordinator(connection: Connection, kind: int) -> Any:
    return connection.call(FindCoordinatorRequest(key="somebody", key_type=kind), 3)


def test_a_coordinator_that_died_has_a_successor_when_the_answer_comes() -> None:
    with Cluster(3, network="direct") as cluster:
        with Connection(cluster.bootstrap.split(",")[0]) as connection:
            for kind in (GROUP, TRANSACTION):
                told = coordinator(connection, kind)
                assert told.error_code == NONE
        cluster.wait_ready(in_sync=True)
        dead = told.node_id
        alive = next(node for node in cluster.brokers if node != dead)
        with Connection(cluster.member(alive).bootstrap) as connection:
            cluster.kill(dead)
            told = coordinator(connection, TRANSACTION)
        assert told.error_code == NONE
        assert told.node_id != dead
