"""A leader that is cut off from its peers, but not from clients: what it tells those who still ask it."""

from contextlib import suppress
from typing import Any

import pytest
from compat import batches
from compat.eventually import eventually
from compat.requests import fetch_request, fetch_topic, produce
from compat.topics import LATEST, list_offsets
from compat.wire import NONE, Connection, only
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.protocol.consumer import OffsetForLeaderEpochRequest

from dmq.testing import Cluster

QUIET: dict[str, Any] = {"log_level": 0, "error_cb": lambda error: None}
TOPIC = "t"
PATIENCE_S = 60.0
NOT_LEADER_OR_FOLLOWER = 6
OFFSET_NOT_AVAILABLE = 78


@pytest.mark.timeout(300)
def test_a_leader_that_was_cut_off_does_not_tell_the_old_end_of_its_log() -> None:
    """Asked without a break by a client that it still reaches, while another leader takes records."""
    with Cluster(3, network="proxy") as cluster:
        create_topic(cluster)
        old = cluster.leader(TOPIC)
        others = [node for node in cluster.brokers if node != old]
        with connect(cluster, old) as left_alone:
            assert latest(left_alone) == (NONE, 0)
            cluster.isolate(old)
            end = eventually(lambda: write(cluster, others), "another one leads", PATIENCE_S)
            assert end == 1
            told = [latest(left_alone)]
            while told[-1] != (NOT_LEADER_OR_FOLLOWER, -1):
                told.append(latest(left_alone))
        assert {offset for code, offset in told if code == NONE} == set(), told
        cluster.heal()
        cluster.wait_ready(PATIENCE_S, in_sync=True)
        with connect(cluster, cluster.leader(TOPIC)) as connection:
            assert latest(connection) == (NONE, 1)


@pytest.mark.timeout(300)
def test_a_leader_that_slept_does_not_tell_readers_that_its_log_ends() -> None:
    """Both requests lie in its socket when it wakes; its successor has a record by then. Who is told that
    the log ends before goes back, or goes on at the end and misses what lies between."""
    with Cluster(3, network="direct") as cluster:
        create_topic(cluster)
        old = cluster.leader(TOPIC)
        others = [node for node in cluster.brokers if node != old]
        with connect(cluster, old) as sleeper:
            assert latest(sleeper) == (NONE, 0)
            cluster.pause(old)
            end = eventually(lambda: write(cluster, others), "another one leads", PATIENCE_S)
            assert end == 1
            asked = sleeper.send(fetch_request([fetch_topic(TOPIC, {0: end})]), 10)
            epochs = sleeper.send(end_of_epoch(100), 4)
            cluster.resume(old)
            told = only(only(sleeper.receive(asked).responses).partitions)
            ended = only(only(sleeper.receive(epochs).topics).partitions)
        refusals = (NOT_LEADER_OR_FOLLOWER, OFFSET_NOT_AVAILABLE)
        assert told.error_code in (NONE, *refusals), told
        assert ended.error_code in refusals or ended.end_offset == end, ended


def test_only_the_leader_tells_where_an_epoch_ends() -> None:
    with Cluster(3, network="direct") as cluster:
        create_topic(cluster)
        leader = cluster.leader(TOPIC)
        for node in cluster.brokers:
            with connect(cluster, node) as connection:
                answer = only(only(connection.call(end_of_epoch(100), 4).topics).partitions)
            assert answer.error_code == (NONE if node == leader else NOT_LEADER_OR_FOLLOWER)


def end_of_epoch(epoch: int) -> Any:
    kind = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    wanted = kind.OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=epoch)
    return OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[kind(topic=TOPIC, partitions=[wanted])]
    )


def create_topic(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
    admin.create_topics([NewTopic(TOPIC, 1, 3)])[TOPIC].result(PATIENCE_S)
    cluster.wait_ready(PATIENCE_S, in_sync=True)


def connect(cluster: Cluster, node: int) -> Connection:
    host, port = cluster.member(node).address
    return Connection(f"{host}:{port}")


def latest(connection: Connection) -> tuple[int, int]:
    """Error code and offset of ListOffsets."""
    answer = only(list_offsets(connection, TOPIC, [0], LATEST))
    return answer.error_code, answer.offset


def write(cluster: Cluster, brokers: list[int]) -> int | None:
    """Where the log ends after a record that one of these has taken; None: none of them leads yet."""
    for node in brokers:
        with suppress(OSError), connect(cluster, node) as connection:
            answer = produce(connection, TOPIC, batches.build([b"later"]))
            if answer.error_code == NONE:
                return int(answer.base_offset) + 1
    return None
