"""Who else is registered at a newcomer's addresses."""

from uuid import UUID

import pytest

from dmq.broker.predecessors import predecessors, tell_predecessors
from dmq.machines.brokers import PEER_LISTENER
from dmq.machines.records import BrokerRecord, Endpoint
from dmq.machines.state import ClusterState


def broker(node: int, port: int, peer_port: int) -> BrokerRecord:
    endpoints = (
        Endpoint("PLAINTEXT", "b", port, "PLAINTEXT"),
        Endpoint(PEER_LISTENER, "b", peer_port, "PLAINTEXT"),
    )
    return BrokerRecord(node, UUID(int=node), UUID(int=node), node, None, endpoints, {}, 0)


def cluster(*brokers: BrokerRecord) -> ClusterState:
    state = ClusterState()
    state.brokers.update({each.node: each for each in brokers})
    return state


def test_one_at_the_same_address_is_found_by_either_door(caplog: pytest.LogCaptureFixture) -> None:
    state = cluster(broker(1, 10, 11), broker(4, 40, 41), broker(5, 50, 61), broker(6, 60, 61))
    assert predecessors(state, 4) == {}
    assert predecessors(state, 6) == {5: "b:61"}
    assert predecessors(cluster(broker(2, 60, 21), broker(6, 60, 61)), 6) == {2: "b:60"}
    tell_predecessors(state, 4)
    assert not caplog.messages
    tell_predecessors(state, 6)
    (line,) = caplog.messages
    assert line.startswith("broker 5 is registered at b:61, which is an address of this broker 6")
    assert (
        "`dmq cluster decommission 6`, and start it with an empty data directory and --node-id 5"
        in line
    )
