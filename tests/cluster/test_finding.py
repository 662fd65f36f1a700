"""Who coordinates, asked while nobody does: the answer waits for the election.

librdkafka asks three times in half a second. If it hears three times that there is no coordinator, the
offsets of a transaction hang until some connection of it changes its state.
"""

from functools import partial
from typing import Any

import pytest
from compat.eventually import eventually
from compat.wire import NONE, Connection
from kafka.protocol.metadata import FindCoordinatorRequest

from dmq.testing import Cluster

GROUP, TRANSACTION = 0, 1
ASKS = 3

pytestmark = pytest.mark.timeout(300)


def coordinator(connection: Connection, kind: int) -> Any:
    """Who it is; None if nobody is."""
    told = connection.call(FindCoordinatorRequest(key="somebody", key_type=kind), 3)
    return told if told.error_code == NONE else None


def test_a_coordinator_that_died_has_a_successor_when_the_answer_comes() -> None:
    with Cluster(3, network="direct") as cluster:
        with Connection(cluster.bootstrap.split(",")[0]) as connection:
            for kind in (GROUP, TRANSACTION):
                first = eventually(partial(coordinator, connection, kind), "there is one")
        cluster.wait_ready(in_sync=True)
        dead = first.node_id
        alive = next(node for node in cluster.brokers if node != dead)
        with Connection(cluster.member(alive).bootstrap) as connection:
            cluster.kill(dead)
            answers = (coordinator(connection, TRANSACTION) for _ in range(ASKS))
            told = next(filter(None, answers), None)
        assert told is not None, f"{ASKS} answers did not wait for the election"
        assert told.node_id != dead
