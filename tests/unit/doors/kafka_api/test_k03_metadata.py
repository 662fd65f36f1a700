"""What Metadata says of leaders: only those are named that the client can reach."""

from unittest.mock import Mock
from uuid import UUID

import pytest

from dmq.broker.views import PartitionView, TopicView, Views
from dmq.doors.kafka_api.k03_metadata import _topic, _Unnamed, _unreachable
from dmq.errors import ErrorCode
from dmq.machines.records import BrokerRecord, Endpoint
from dmq.machines.state import ClusterState
from dmq.types import NIL_UUID

NONE, GONE = ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE
STRANGER = ErrorCode.LISTENER_NOT_FOUND


@pytest.mark.parametrize(
    ("leader", "offline", "told"),
    [
        (2, [], (NONE, 2)),
        (3, [], (STRANGER, -1)),
        (2, [2], (GONE, -1)),
        (3, [3], (GONE, -1)),
        (-1, [], (GONE, -1)),
    ],
)
def test_a_leader_without_the_clients_listener_is_not_named(
    leader: int, offline: list[int], told: tuple[ErrorCode, int]
) -> None:
    view = PartitionView(0, leader, 5, [2, 3], [2, 3], offline)
    unnamed = _Unnamed(frozenset({3}), STRANGER)
    (partition,) = _topic(TopicView("t", NIL_UUID, False, [view]), unnamed).partitions
    assert (partition.error_code, partition.leader_id) == told
    assert (partition.leader_epoch, partition.isr_nodes) == (5, [2, 3])


def test_old_clients_hear_of_no_leader() -> None:
    assert [_unreachable(version) for version in (0, 5, 6, 13)] == [GONE, GONE, STRANGER, STRANGER]


def test_who_lacks_a_listener_is_a_stranger_to_it() -> None:
    def broker(node: int, *names: str) -> BrokerRecord:
        endpoints = tuple(Endpoint(name, "b", 10 * node, "PLAINTEXT") for name in names)
        return BrokerRecord(node, UUID(int=node), UUID(int=node), node, None, endpoints, {}, 0)

    state = ClusterState()
    for each in (broker(1, "IN", "OUT"), broker(2, "IN"), broker(3, "OUT")):
        state.brokers[each.node] = each
    views = Views(lambda: state, Mock(), list, list)
    assert views.strangers("IN") == {3}
    assert views.strangers("OUT") == {2}
    assert views.strangers("ELSE") == {1, 2, 3}
