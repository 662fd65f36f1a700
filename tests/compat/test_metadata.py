"""Metadata at the wire, every version; topics that create themselves; topic ids."""

import uuid
from typing import Any

import pytest
from compat import batches, topics
from compat.clients.client import Client, Record
from compat.conftest import NewTopic, unique
from compat.eventually import eventually
from compat.matrix import PRODUCERS, every
from compat.requests import FETCH_BY_ID, fetch, produce
from compat.wire import (
    NONE,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    Connection,
    only,
    topic_id,
)
from kafka.protocol.metadata import MetadataRequest

INVALID_TOPIC = 17
INVALID_REQUEST = 42


def ask(connection: Connection, version: int, names: list[str] | None, **options: Any) -> Any:
    kind = MetadataRequest.MetadataRequestTopic
    asked = None if names is None else [kind(name=name) for name in names]
    request = MetadataRequest(topics=asked, **{"allow_auto_topic_creation": False, **options})
    return connection.call(request, version)


@pytest.mark.parametrize("version", range(14))
def test_every_version_describes_topic_and_broker(
    version: int, bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic(partitions=3)
    with Connection(bootstrap) as connection:
        answer = ask(connection, version, [topic])
        identity = topic_id(connection, topic)
    broker = only(answer.brokers)
    assert f"{broker.host}:{broker.port}" == bootstrap
    assert version < 1 or answer.controller_id == broker.node_id
    assert version < 2 or answer.cluster_id
    found = only(answer.topics)
    assert (found.error_code, found.name) == (NONE, topic)
    assert version < 1 or not found.is_internal
    assert version < 10 or found.topic_id == identity
    assert sorted(part.partition_index for part in found.partitions) == [0, 1, 2]
    for part in found.partitions:
        assert (part.error_code, part.leader_id) == (NONE, broker.node_id)
        assert part.replica_nodes == part.isr_nodes == [broker.node_id]
        assert version < 5 or part.offline_replicas == []
        assert version < 7 or part.leader_epoch >= 0


@pytest.mark.parametrize("version", range(8, 14))
def test_what_a_client_may_do_is_told_if_it_asks(
    version: int, bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    with Connection(bootstrap) as connection:
        flags = {"include_topic_authorized_operations": True}
        if version <= 10:
            flags["include_cluster_authorized_operations"] = True
        told = ask(connection, version, [topic], **flags)
        silent = ask(connection, version, [topic])
    assert only(told.topics).to_dict()["authorized_operations"] == [3, 4, 5, 6, 7, 8, 10, 11]
    assert only(silent.topics).to_dict()["authorized_operations"] is None
    if version <= 10:
        assert told.to_dict()["authorized_operations"] == [5, 7, 8, 9, 10, 11, 12]
        assert silent.to_dict()["authorized_operations"] is None


def test_a_topic_asked_for_twice_is_told_once(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    with Connection(bootstrap) as connection:
        answer = ask(connection, 9, [topic, "not-there", topic, "not-there"])
    assert sorted(found.name for found in answer.topics) == ["not-there", topic]


@pytest.mark.parametrize("version", range(14))
def test_all_topics_and_none(version: int, bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    with Connection(bootstrap) as connection:
        # An empty list means all in version 0, and none afterwards; null means all.
        everything = ask(connection, version, [] if version == 0 else None)
        assert topic in {found.name for found in everything.topics}
        if version > 0:
            assert ask(connection, version, []).topics == []


@pytest.mark.parametrize("version", [4, 8, 9, 12, 13])
def test_a_topic_is_created_only_if_the_client_allows_it(
    version: int, bootstrap: str, topic: str
) -> None:
    with Connection(bootstrap) as connection:
        refused = only(ask(connection, version, [topic]).topics)
        assert refused.error_code == UNKNOWN_TOPIC_OR_PARTITION
        assert topic not in {found.name for found in ask(connection, 9, None).topics}
        ask(connection, version, [topic], allow_auto_topic_creation=True)
        eventually(lambda: topics.is_usable(connection, topic, 1), f"{topic} creates itself")


def test_old_versions_always_create(bootstrap: str, topic: str) -> None:
    with Connection(bootstrap) as connection:
        ask(connection, 1, [topic])
        eventually(lambda: topics.is_usable(connection, topic, 1), f"{topic} creates itself")


@every(PRODUCERS)
def test_a_producers_first_record_creates_its_topic(client: Client) -> None:
    topic = unique()
    places = client.produce(topic, [Record(b"k", b"v")])
    assert [place.offset for place in places] == [0]


@pytest.mark.parametrize("name", ["a b", "..", ".", "x" * 250, "sla/sh", "naïve"])
def test_a_bad_name_is_refused_and_not_created(name: str, bootstrap: str) -> None:
    with Connection(bootstrap) as connection:
        found = only(ask(connection, 12, [name], allow_auto_topic_creation=True).topics)
        assert (found.error_code, found.name) == (INVALID_TOPIC, name)
        assert name not in {topic.name for topic in ask(connection, 12, None).topics}


def test_a_topic_is_found_by_its_id(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    kind = MetadataRequest.MetadataRequestTopic
    with Connection(bootstrap) as connection:
        wanted = [
            kind(name=None, topic_id=topic_id(connection, topic)),
            kind(name=None, topic_id=uuid.uuid4()),
        ]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        found = connection.call(request, 12).topics
    codes = {answer.name: answer.error_code for answer in found}
    assert codes == {topic: NONE, None: UNKNOWN_TOPIC_ID}


@pytest.mark.parametrize("version", [10, 11])
@pytest.mark.parametrize("is_named", [True, False])
def test_ids_are_not_asked_for_before_version_12(
    version: int, is_named: bool, bootstrap: str, new_topic: NewTopic
) -> None:
    """The fields are there, but an answer could not carry a null name yet."""
    topic = new_topic()
    with Connection(bootstrap) as connection:
        wanted = MetadataRequest.MetadataRequestTopic(
            name=topic if is_named else None, topic_id=topic_id(connection, topic)
        )
        request = MetadataRequest(topics=[wanted], allow_auto_topic_creation=False)
        found = only(connection.call(request, version).topics)
    assert (found.error_code, found.partitions) == (INVALID_REQUEST, [])
    assert found.name == (topic if is_named else "")


def test_a_topic_made_again_has_another_id(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    with Connection(bootstrap) as connection:
        former = topic_id(connection, topic)
        assert produce(connection, topic, batches.build([b"x"])).error_code == NONE
        topics.delete(bootstrap, topic)
        eventually(lambda: _is_gone(connection, topic), f"{topic} is gone")
        by_former = {"partition_options": {"topic_id": former}, "version": FETCH_BY_ID}
        assert fetch(connection, "", offset=0, **by_former).error_code == UNKNOWN_TOPIC_ID
        topics.create(bootstrap, topic)
        assert topic_id(connection, topic) != former
        assert fetch(connection, "", offset=0, **by_former).error_code == UNKNOWN_TOPIC_ID
        assert bytes(fetch(connection, topic, offset=0).records) == b""


def _is_gone(connection: Connection, topic: str) -> bool:
    return bool(topics.describe(connection, topic).error_code == UNKNOWN_TOPIC_OR_PARTITION)


def test_only_the_coordinators_topics_are_internal(bootstrap: str) -> None:
    """Clients that read by a pattern leave those out: a name with underscores is as good as others."""
    name = f"__{unique()}"
    topics.create(bootstrap, name, 1, {})
    with Connection(bootstrap) as connection:
        assert not only(ask(connection, 12, [name]).topics).is_internal
