"""Transactions of version 2 (KIP-890) are really spoken, not only offered: what goes over the wire.

A Java client 4 that finds `transaction.version` finalized at 2 adds no partitions to its transactions: it
produces, and the leader asks the coordinator. librdkafka does not know version 2 and adds them by itself;
it shows that the tap would see it.
"""

from collections.abc import Callable, Iterator

import pytest
from compat import topics
from compat.conftest import unique
from compat.tap import Tap
from compat.wire import NONE, Connection
from confluent_kafka import Producer
from foreign.programs import Program
from kafka.protocol.metadata import ApiVersionsRequest

from dmq.testing import Broker
from dmq.testing.networks import free_port

pytestmark = [pytest.mark.compat, pytest.mark.timeout(180)]

PRODUCE, ADD_PARTITIONS, ADD_OFFSETS, END, COMMIT_OFFSETS = 0, 24, 25, 26, 28
FIRST_OF_VERSION_2 = {PRODUCE: 12, END: 5, COMMIT_OFFSETS: 5}
"""From these on a request says that its client speaks version 2."""


@pytest.fixture(scope="module")
def tapped() -> Iterator[Tap]:
    """A broker that clients know by the tap's address only."""
    port = free_port()
    with Tap() as tap:
        settings = {"port": port, "advertised.listeners": f"PLAINTEXT://{tap.address}"}
        with Broker(settings):
            tap.to(f"127.0.0.1:{port}")
            yield tap


@pytest.fixture
def tap(tapped: Tap) -> Tap:
    tapped.asked.clear()
    return tapped


def test_version_2_is_offered_and_finalized(tap: Tap) -> None:
    with Connection(tap.address) as connection:
        asked = ApiVersionsRequest(client_software_name="judge", client_software_version="1")
        answer = connection.call(asked, 4)
    assert answer.error_code == NONE
    offered = {one.name: one.max_version for one in answer.supported_features}
    finalized = {one.name: one.max_version_level for one in answer.finalized_features}
    assert offered["transaction.version"] == finalized["transaction.version"] == 2
    assert answer.finalized_features_epoch >= 0, "else clients do not believe it"


@pytest.mark.foreign("java")
def test_a_java_client_adds_nothing_to_its_transactions(
    tap: Tap, foreign_command: Callable[[str], tuple[str, ...]]
) -> None:
    source, target, name = unique("source"), unique("target"), unique("chain")
    for topic in (source, target):
        topics.create(tap.address, topic)
    program = Program(foreign_command("java"), tap.address)
    try:
        producer = unique("producer")
        # The first call waits for the JVM too.
        program.call("txn_start", 90.0, id=producer, name=unique("transactional"))
        for end in ("txn_commit", "txn_abort", "txn_commit"):
            program.call("txn_begin", id=producer)
            program.call("txn_send", id=producer, topic=source, values=["a", "b"])
            program.call(end, id=producer)
        program.call("txn_close", id=producer)
        links = {"topic": source, "target": target, "group": name, "name": name}
        done = program.call("chain", 90.0, count=4, how="new", **links)
        assert done["moved"] == 4
    finally:
        program.close()
    keys = {one.api_key for one in tap.asked}
    assert not keys & {ADD_PARTITIONS, ADD_OFFSETS}
    for key, least in FIRST_OF_VERSION_2.items():
        versions = {one.version for one in tap.asked if one.api_key == key}
        assert versions, f"API {key} was not asked"
        assert min(versions) >= least, (key, versions)


def test_a_client_of_version_1_adds_partitions_and_is_seen_to(tap: Tap) -> None:
    topic = unique("topic")
    topics.create(tap.address, topic)
    producer = Producer({"bootstrap.servers": tap.address, "transactional.id": unique("old")})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"v")
    producer.commit_transaction(30)
    keys = [one.api_key for one in tap.asked]
    assert keys.index(ADD_PARTITIONS) < keys.index(PRODUCE) < keys.index(END)
    assert all(one.version < 5 for one in tap.asked if one.api_key == END)
