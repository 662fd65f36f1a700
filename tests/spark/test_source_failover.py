"""Leaders that move and brokers that die while they are read from: nothing is lost, nothing is twice."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from compat.eventually import eventually
from pyspark.sql import SparkSession
from spark.feeding import create, numbered, produce, rows, stream, topic_name

from dmq.spark.cluster import Cluster as Connections
from dmq.spark.connection import Connection
from dmq.spark.decode import Wanted
from dmq.spark.failures import SparkSourceError
from dmq.spark.fetching import RangeReader
from dmq.spark.offsets import OffsetFinder
from dmq.spark.options import SourceOptions
from dmq.spark.schema import arrow_schema, source_schema
from dmq.testing import Cluster
from dmq.wire.messages.k01_fetch import FetchResponse

COUNT = 3000
SCHEMA = arrow_schema(source_schema(False))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    settings = {"default.replication.factor": 3, "min.insync.replicas": 2}
    with Cluster(3, settings, network="direct") as running:
        yield running


@pytest.fixture
def topic(cluster: Cluster) -> str:
    name = create(cluster.bootstrap, topic_name("moving"), 1)
    produce(cluster.bootstrap, name, numbered(COUNT), batch_num_messages=100)
    return name


@contextmanager
def reading(cluster: Cluster, topic: str, **more: str) -> Iterator[Iterator[Any]]:
    """A read of all records in small fetches, so that it has many."""
    servers = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": topic}
    options = SourceOptions.of({**servers, "fetchBytes": "4k", **more})
    connections = Connections(options.settings)
    try:
        yield RangeReader(connections, options, Wanted(topic, 0, 0, COUNT)).read(SCHEMA)
    finally:
        connections.close()


def test_a_leader_that_dies_in_mid_read_is_replaced(cluster: Cluster, topic: str) -> None:
    offsets: list[int] = []
    dead = 0
    with reading(cluster, topic) as batches:
        for number, batch in enumerate(batches):
            offsets += batch.column("offset").to_pylist()
            if number == 5:
                dead = cluster.leader(topic, 0)
                cluster.kill(dead)
    assert offsets == list(range(COUNT))
    cluster.restart(dead)


def test_a_leadership_that_is_handed_over_in_mid_read_is_followed(
    cluster: Cluster, topic: str
) -> None:
    offsets: list[int] = []
    stopped = 0
    with reading(cluster, topic) as batches:
        for number, batch in enumerate(batches):
            offsets += batch.column("offset").to_pylist()
            if number == 5:
                stopped = cluster.leader(topic, 0)
                cluster.stop(stopped)
    assert offsets == list(range(COUNT))
    cluster.restart(stopped)


def test_a_reader_above_its_quota_waits_and_goes_on(
    cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive, throttled = Connection.receive, 0

    def receive_slowly(connection: Connection, **how: Any) -> Any:
        """As a broker of Kafka does it whose client has used its quota up."""
        nonlocal throttled
        answer = receive(connection, **how)
        if isinstance(answer, FetchResponse) and throttled < 3:
            throttled += 1
            return FetchResponse(throttle_time_ms=5, error_code=0, session_id=0, responses=[])
        return answer

    monkeypatch.setattr(Connection, "receive", receive_slowly)
    with reading(cluster, topic) as batches:
        offsets = [offset for batch in batches for offset in batch.column("offset").to_pylist()]
    assert offsets == list(range(COUNT))


def test_a_cluster_that_stays_away_is_told_when_patience_ends(cluster: Cluster, topic: str) -> None:
    short = {"kafka.default.api.timeout.ms": "5000"}
    with reading(cluster, topic, **short) as batches:
        next(batches)
        for broker in cluster.brokers:
            cluster.kill(broker)
        with pytest.raises(SparkSourceError, match=r"could not read .*no broker answers"):
            list(batches)
    for broker in cluster.brokers:
        cluster.restart(broker, wait=False)
    cluster.wait_ready()


def test_partitions_are_asked_for_until_brokers_are_back(
    cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Longer than for a topic that brokers say they don't know."""
    options = SourceOptions.of({"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": topic})
    connections, asked = Connections(options.settings), 0
    refresh = connections.refresh

    def refresh_or_restart(topics: Any = ()) -> Any:
        nonlocal asked
        asked += 1
        if asked == 3:
            for broker in cluster.brokers:
                cluster.restart(broker, wait=False)
            cluster.wait_ready()
        return refresh(topics)

    monkeypatch.setattr("dmq.spark.offsets.UNKNOWN_TOPIC_PATIENCE_S", 0.0)
    monkeypatch.setattr(connections, "refresh", refresh_or_restart)
    for broker in cluster.brokers:
        cluster.kill(broker)
    try:
        assert OffsetFinder(connections, options).partitions() == [(topic, 0)]
    finally:
        connections.close()
    assert asked >= 3


def test_a_query_goes_on_after_its_brokers_were_away(
    spark: SparkSession, cluster: Cluster, checkpoint: str
) -> None:
    topic = create(cluster.bootstrap, topic_name("away"), 2)
    memory = topic_name("away").replace("-", "_")
    produce(cluster.bootstrap, topic, numbered(100))
    df = stream(spark, cluster.bootstrap, subscribe=topic, startingOffsets="earliest")
    query = (
        df.writeStream.format("memory")
        .queryName(memory)
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime="100 milliseconds")
        .start()
    )
    try:
        eventually(lambda: spark.table(memory).count() == 100, "the first records")
        for broker in cluster.brokers:
            cluster.kill(broker)
        for broker in cluster.brokers:
            cluster.restart(broker, wait=False)
        cluster.wait_ready()
        produce(cluster.bootstrap, topic, numbered(100, 100))
        eventually(lambda: spark.table(memory).count() >= 200, "records from after")
        assert query.isActive
    finally:
        query.stop()
    found = sorted((row[3], row[4]) for row in rows(spark.table(memory)))
    assert len(found) == len(set(found)) == 200
