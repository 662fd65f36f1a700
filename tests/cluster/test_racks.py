"""Reads from replicas (KIP-392): a consumer that says its rack is served there, by a follower too."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from compat.eventually import eventually
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from dmq.cli.raw import Exchange
from dmq.errors import ErrorCode
from dmq.testing import Cluster
from dmq.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData

pytestmark = [pytest.mark.compat, pytest.mark.timeout(300)]

QUIET = {"log_level": 0, "error_cb": lambda error: None}
RECORDS = 50


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(1, {"broker.rack": "r1"}, network="direct") as running:
        for rack in ("r2", "r3"):
            running.add({"broker.rack": rack})
        running.wait_ready(in_sync=True)
        yield running


@pytest.fixture
def topic(cluster: Cluster) -> str:
    """A topic with records that every replica has."""
    name = f"racks-{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
    admin.create_topics([NewTopic(name, 1, 3)])[name].result(30)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", **QUIET})
    for number in range(RECORDS):
        producer.produce(name, str(number).encode(), partition=0)
    assert producer.flush(60) == 0
    return name


def fetch(
    cluster: Cluster, node: int, topic: str, rack: str, offset: int = 0, version: int = 12
) -> PartitionData:
    wanted = FetchPartition(0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=100,
        min_bytes=1,
        session_epoch=-1,
        topics=[FetchTopic(topic, partitions=[wanted])],
        rack_id=rack,
    )
    with Exchange(*cluster.member(node).address) as exchange:
        response: Any = exchange.ask(1, version, request, 30)
    [told] = response.responses
    [partition] = told.partitions
    assert isinstance(partition, PartitionData)
    return partition


def rack_of(node: int) -> str:
    return f"r{node}"


def test_the_leader_names_the_replica_that_is_near(cluster: Cluster, topic: str) -> None:
    leader = cluster.leader(topic)
    for node in cluster.brokers:
        expected = -1 if node == leader else node

        def is_named(node: int = node, expected: int = expected) -> bool:
            told = fetch(cluster, leader, topic, rack_of(node))
            return told.preferred_read_replica == expected

        eventually(is_named, f"rack {rack_of(node)} is served there")
    nowhere = fetch(cluster, leader, topic, "elsewhere")
    assert nowhere.preferred_read_replica == -1
    assert nowhere.records


def test_a_follower_serves_what_is_committed(cluster: Cluster, topic: str) -> None:
    leader = cluster.leader(topic)
    whole = fetch(cluster, leader, topic, "")
    for node in cluster.brokers:
        if node == leader:
            continue

        def is_there(node: int = node) -> bool:
            return fetch(cluster, node, topic, rack_of(node)).high_watermark == RECORDS

        eventually(is_there, f"broker {node} knows what is committed")
        told = fetch(cluster, node, topic, rack_of(node))
        assert (told.error_code, told.records) == (ErrorCode.NONE, whole.records)
        behind = fetch(cluster, node, topic, rack_of(node), offset=RECORDS + 1000)
        assert behind.error_code == ErrorCode.OFFSET_NOT_AVAILABLE
        old = fetch(cluster, node, topic, "", version=10)
        assert old.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_librdkafka_reads_from_its_rack(cluster: Cluster, topic: str) -> None:
    leader = cluster.leader(topic)
    near = next(node for node in cluster.brokers if node != leader)
    settings = {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": topic,
        "client.rack": rack_of(near),
        "enable.auto.commit": False,
        **QUIET,
    }
    consumer = Consumer(settings)
    found: list[bytes] = []

    def has_all() -> bool:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            found.append(message.value())
        return len(found) >= RECORDS

    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        eventually(has_all, "all records came", within_s=60)
    finally:
        consumer.close()
    assert found == [str(number).encode() for number in range(RECORDS)]
