"""Reads from the replica in the reader's rack (KIP-392), and from the leader when that one fails."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from compat.eventually import eventually
from spark.feeding import create, numbered, produce, topic_name

from dmq.spark.cluster import Cluster as Connections
from dmq.spark.connection import Connection
from dmq.spark.decode import Wanted
from dmq.spark.fetching import RangeReader
from dmq.spark.options import SourceOptions
from dmq.spark.schema import arrow_schema, source_schema
from dmq.testing import Cluster
from dmq.wire.messages.k01_fetch import FetchResponse

COUNT = 2000
SCHEMA = arrow_schema(source_schema(False))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    settings = {"default.replication.factor": 3, "broker.rack": "r1"}
    with Cluster(1, settings) as running:
        for rack in ("r2", "r3"):
            running.add({"broker.rack": rack})
        running.wait_ready(in_sync=True)
        yield running


@pytest.fixture
def topic(cluster: Cluster) -> str:
    cluster.wait_ready(in_sync=True)
    name = create(cluster.bootstrap, topic_name("racks"), 1)
    feed(cluster, name, 0)
    return name


@pytest.fixture
def served(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Which brokers have brought records, fetch by fetch."""
    receive, found = Connection.receive, []
    nodes = {cluster.member(node).address[1]: node for node in cluster.brokers}

    def note(connection: Connection, **how: Any) -> Any:
        answer = receive(connection, **how)
        topics = answer.responses if isinstance(answer, FetchResponse) else []
        if any(part.records for topic in topics for part in topic.partitions):
            found.append(nodes[connection.address.port])
        return answer

    monkeypatch.setattr(Connection, "receive", note)
    return found


@pytest.fixture
def near(cluster: Cluster, topic: str, served: list[int]) -> int:
    """A follower that serves all records to a reader in its rack."""
    leader = cluster.leader(topic)
    found = next(node for node in cluster.brokers if node != leader)

    def serves() -> bool:
        """The leader may have to see first that it has them."""
        served.clear()
        assert read(cluster, topic, found) == list(range(COUNT))
        return set(served) == {found}

    eventually(serves, "all records come from the reader's rack")
    served.clear()
    return found


def feed(cluster: Cluster, topic: str, first: int) -> None:
    produce(cluster.bootstrap, topic, numbered(COUNT, first), batch_num_messages=100)


def read(
    cluster: Cluster, topic: str, near: int, end: int = COUNT, then: Callable[[], None] = int
) -> list[int]:
    """The offsets that come, in small fetches; `then` is done amid the read."""
    options = SourceOptions.of({
        "kafka.bootstrap.servers": cluster.bootstrap, "subscribe": topic, "fetchBytes": "4k",
        "kafka.client.rack": f"r{near}", "kafka.isolation.level": "read_uncommitted",
    })  # fmt: skip
    connections = Connections(options.settings)
    offsets: list[int] = []
    try:
        for number, batch in enumerate(
            RangeReader(connections, options, Wanted(topic, 0, 0, end)).read(SCHEMA)
        ):
            offsets += batch.column("offset").to_pylist()
            if number == 3:
                then()
    finally:
        connections.close()
    return offsets


def test_the_replica_in_the_readers_rack_is_read_from(
    cluster: Cluster, topic: str, near: int, served: list[int]
) -> None:
    assert read(cluster, topic, near) == list(range(COUNT))
    assert near in served


def test_a_replica_that_falls_behind_is_left_for_the_leader(
    cluster: Cluster, topic: str, near: int, served: list[int]
) -> None:
    def leave_behind() -> None:
        cluster.isolate(near)
        feed(cluster, topic, COUNT)

    try:
        offsets = read(cluster, topic, near, 2 * COUNT, leave_behind)
    finally:
        cluster.heal()
    assert offsets == list(range(2 * COUNT))
    assert served[0] == near
    assert served[-1] != near


def test_a_replica_that_dies_is_left_for_the_leader(
    cluster: Cluster, topic: str, near: int, served: list[int]
) -> None:
    try:
        assert read(cluster, topic, near, then=lambda: cluster.kill(near)) == list(range(COUNT))
    finally:
        cluster.restart(near)
    assert served[0] == near
    assert served[-1] != near
