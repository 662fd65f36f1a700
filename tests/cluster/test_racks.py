"""Reads from replicas (KIP-392): a consumer that says its rack is served there, by a follower too."""

import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from compat.eventually import eventually
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition

from dmq.cli.raw import Exchange
from dmq.errors import ErrorCode
from dmq.spark.cluster import Cluster as Connections
from dmq.spark.decode import Wanted
from dmq.spark.fetching import RangeReader
from dmq.spark.options import SourceOptions
from dmq.spark.schema import arrow_schema, source_schema
from dmq.testing import Cluster
from dmq.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData

pytestmark = [pytest.mark.compat, pytest.mark.timeout(300)]

QUIET = {"log_level": 0, "error_cb": lambda error: None}
RECORDS = 50
NAME = 8
"""So many bytes say which record it is."""
SIZE = 4096
READ_COMMITTED = 1


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
    name = create(cluster)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", **QUIET})
    for number in range(RECORDS):
        producer.produce(name, name_of(number).ljust(SIZE), partition=0)
    assert producer.flush(60) == 0
    return name


def create(cluster: Cluster) -> str:
    name = f"racks-{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
    admin.create_topics([NewTopic(name, 1, 3)])[name].result(30)
    return name


def name_of(number: int) -> str:
    return f"{number:0{NAME}d}"


def fetch(
    cluster: Cluster,
    node: int,
    topic: str,
    rack: str,
    offset: int = 0,
    version: int = 12,
    isolation: int = 0,
) -> PartitionData:
    wanted = FetchPartition(0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=100,
        min_bytes=1,
        session_epoch=-1,
        isolation_level=isolation,
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


@pytest.mark.parametrize("isolation", [0, READ_COMMITTED])
def test_the_leader_names_the_replica_that_is_near(
    cluster: Cluster, topic: str, isolation: int
) -> None:
    leader = cluster.leader(topic)
    for node in cluster.brokers:
        expected = -1 if node == leader else node

        def is_named(node: int = node, expected: int = expected) -> bool:
            told = fetch(cluster, leader, topic, rack_of(node), isolation=isolation)
            return told.preferred_read_replica == expected

        eventually(is_named, f"rack {rack_of(node)} is served there")
    nowhere = fetch(cluster, leader, topic, "elsewhere", isolation=isolation)
    assert nowhere.preferred_read_replica == -1
    assert nowhere.records
    gone = fetch(cluster, leader, topic, "r1", offset=-1, isolation=isolation)
    assert gone.error_code == ErrorCode.OFFSET_OUT_OF_RANGE, "the leader's word counts"


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
        stray = fetch(cluster, node, topic, "", isolation=READ_COMMITTED)
        assert stray.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


class RackReader:
    """librdkafka at one partition, with its own count of the bytes that each broker sent."""

    def __init__(self, cluster: Cluster, topic: str, rack: str) -> None:
        self.found: list[str] = []
        self.is_at_end = False
        self._statistics: dict[str, Any] = {}
        self._consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": topic,
                "client.rack": rack,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "statistics.interval.ms": 50,
                "stats_cb": self._note,
                **QUIET,
            }
        )
        self._consumer.assign([TopicPartition(topic, 0, 0)])

    def _note(self, statistics: str) -> None:
        self._statistics = json.loads(statistics)

    def bytes_from(self, node: int) -> int:
        brokers = self._statistics.get("brokers", {}).values()
        return sum(broker["rxbytes"] for broker in brokers if broker["nodeid"] == node)

    def poll(self) -> None:
        message = self._consumer.poll(0.2)
        if message is None:
            return
        error = message.error()
        if error is None:
            self.found.append(message.value()[:NAME].decode())
            self.is_at_end = False
        elif error.code() == KafkaError._PARTITION_EOF:
            self.is_at_end = True

    def read(self, until: Callable[[], bool], what: str) -> None:
        def is_done() -> bool:
            self.poll()
            return until()

        eventually(is_done, what, within_s=90)

    def close(self) -> None:
        self._consumer.close()


def wait_until_named(cluster: Cluster, topic: str, node: int) -> int:
    """The leader, which has taken note by now that the replica has everything."""

    def found() -> int:
        leader = cluster.leader(topic)
        told = fetch(cluster, leader, topic, rack_of(node), isolation=READ_COMMITTED)
        return leader if told.preferred_read_replica == node else 0

    return eventually(found, f"readers are sent to broker {node}")


def test_librdkafka_reads_from_its_rack(cluster: Cluster, topic: str) -> None:
    """It reads committed transactions only, if nothing else is said."""
    leader = cluster.leader(topic)
    near = next(node for node in cluster.brokers if node != leader)
    assert wait_until_named(cluster, topic, near) == leader
    reader = RackReader(cluster, topic, rack_of(near))
    try:
        reader.read(lambda: len(reader.found) >= RECORDS, "all records came")
        reader.read(lambda: reader.bytes_from(near) >= RECORDS * SIZE, "its rack sent them")
        assert reader.bytes_from(leader) < RECORDS * SIZE / 2
    finally:
        reader.close()
    assert reader.found == [name_of(number) for number in range(RECORDS)]


def test_kafka_python_reads_from_its_rack(cluster: Cluster, topic: str) -> None:
    leader = cluster.leader(topic)
    near = next(node for node in cluster.brokers if node != leader)
    assert wait_until_named(cluster, topic, near) == leader
    consumer = KafkaConsumer(
        bootstrap_servers=cluster.bootstrap,
        client_rack=rack_of(near),
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        group_id=None,
    )
    found: list[str] = []

    def has_all() -> bool:
        for records in consumer.poll(timeout_ms=200).values():
            found.extend(record.value[:NAME].decode() for record in records)
        return len(found) >= RECORDS

    def received(node: int) -> float:
        kinds = consumer.metrics()
        return sum(
            float(values.get("incoming-byte-rate", 0.0))
            for kind, values in kinds.items()
            if kind.endswith(f"node-metrics.node-{node}")
        )

    try:
        consumer.assign([KafkaPythonPartition(topic, 0)])
        eventually(has_all, "all records came")
        assert received(near) > 2 * received(leader)
    finally:
        consumer.close()
    assert found == [name_of(number) for number in range(RECORDS)]


def test_the_spark_source_reads_from_its_rack(cluster: Cluster, topic: str) -> None:
    leader = cluster.leader(topic)
    near = next(node for node in cluster.brokers if node != leader)
    assert wait_until_named(cluster, topic, near) == leader
    options = SourceOptions.of(
        {
            "kafka.bootstrap.servers": cluster.bootstrap,
            "subscribe": topic,
            "kafka.client.rack": rack_of(near),
            "fetchBytes": str(10 * SIZE),
        }
    )
    connections = Connections(options.settings)
    try:
        reader = RangeReader(connections, options, Wanted(topic, 0, 0, RECORDS))
        batches = reader.read(arrow_schema(source_schema(False)))
        offsets = [offset for batch in batches for offset in batch.column("offset").to_pylist()]
        assert reader._near == near
    finally:
        connections.close()
    assert offsets == list(range(RECORDS))


# --- transactions ---------------------------------------------------------------------------------


class Writer:
    """A producer with one transaction after the other."""

    def __init__(self, cluster: Cluster, topic: str, name: str) -> None:
        self._topic = topic
        self._name = name
        self._count = 0
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "transactional.id": f"{topic}-{name}",
                "transaction.timeout.ms": 600_000,
                **QUIET,
            }
        )
        self._producer.init_transactions(60)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def write(self) -> str:
        """Acknowledged, and so behind all that was acknowledged before."""
        name = f"{self._name}{self._count}".ljust(NAME)
        self._count += 1
        self._producer.produce(self._topic, name, partition=0)
        assert self._producer.flush(60) == 0
        return name

    def commit(self) -> None:
        self._retry(self._producer.commit_transaction)

    def abort(self) -> None:
        self._retry(self._producer.abort_transaction)

    @staticmethod
    def _retry(end: Callable[[float], None]) -> None:
        def is_done() -> bool:
            try:
                end(30)
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
                return False
            return True

        eventually(is_done, "the transaction ends", within_s=90)


def told_by(cluster: Cluster, topic: str, node: int) -> tuple[int, list[tuple[int, int]], bytes]:
    told = fetch(cluster, node, topic, rack_of(node), isolation=READ_COMMITTED)
    aborted = [(txn.producer_id, txn.first_offset) for txn in told.aborted_transactions or ()]
    return told.last_stable_offset, aborted, bytes(told.records or b"")


def read_in(cluster: Cluster, topic: str, rack: str) -> list[str]:
    """What an application in this rack sees."""
    reader = RackReader(cluster, topic, rack)
    try:
        reader.read(lambda: reader.is_at_end, "the end of what is decided")
    finally:
        reader.close()
    return reader.found


def check_everywhere(cluster: Cluster, topic: str, expected: list[str]) -> None:
    """The leader and every follower tell the same, to the byte, and readers see `expected`."""
    leader = cluster.leader(topic)
    whole = told_by(cluster, topic, leader)
    assert read_in(cluster, topic, "") == expected
    for node in cluster.running:
        if node != leader:
            eventually(
                lambda node=node: told_by(cluster, topic, node) == whole,  # type: ignore[misc]
                f"broker {node} tells what the leader tells",
            )
            wait_until_named(cluster, topic, node)
            assert read_in(cluster, topic, rack_of(node)) == expected


def test_readers_of_committed_transactions_are_served_alike_everywhere(cluster: Cluster) -> None:
    topic = create(cluster)
    good, bad, slow = (Writer(cluster, topic, name) for name in ("good", "bad", "slow"))
    expected: list[str] = []
    for _ in range(3):  # One within the other.
        good.begin()
        bad.begin()
        expected.append(good.write())
        bad.write()
        expected.append(good.write())
        bad.abort()
        expected.append(good.write())
        good.commit()
    slow.begin()
    slow.write()
    good.begin()
    later = [good.write()]
    good.commit()
    check_everywhere(cluster, topic, expected)

    leader = cluster.leader(topic)
    near = next(node for node in cluster.brokers if node != leader)
    reader = RackReader(cluster, topic, rack_of(near))
    try:
        reader.read(lambda: len(reader.found) == len(expected), "what is decided came")
        cluster.kill(leader)
        slow.write()
        slow.abort()
        good.begin()
        later.append(good.write())
        good.commit()
        expected += later
        reader.read(lambda: len(reader.found) >= len(expected), "the rest came")
        assert reader.found == expected
    finally:
        reader.close()
    check_everywhere(cluster, topic, expected)
    cluster.restart(leader)
    cluster.wait_ready(in_sync=True)
    check_everywhere(cluster, topic, expected)
