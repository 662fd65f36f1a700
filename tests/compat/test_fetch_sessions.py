"""Incremental fetch sessions (KIP-227): at the wire, and as the Java client uses them."""

from collections.abc import Callable
from typing import Any

import pytest
from compat import batches
from compat.conftest import NewTopic
from compat.requests import FETCH_BY_ID, fetch_request, fetch_topic, produce
from compat.wire import (
    FETCH_SESSION_ID_NOT_FOUND,
    INVALID_FETCH_SESSION_EPOCH,
    NONE,
    Connection,
    topic_id,
)
from kafka.protocol.consumer import FetchRequest

VERSIONS = (7, 11, 12, 13, 18)
OPENING = 0
CLOSING = -1


class Session:
    """A client's side of one fetch session on one topic."""

    def __init__(self, connection: Connection, topic: str, version: int) -> None:
        self._connection = connection
        self._version = version
        self._topic_id = topic_id(connection, topic) if version >= FETCH_BY_ID else None
        self._topic = topic
        self.id = 0
        self.epoch = OPENING

    def fetch(self, parts: dict[int, int], forget: tuple[int, ...] = (), **options: Any) -> Any:
        """One fetch of the session; `parts` are those added or moved."""
        topics = [fetch_topic(self._topic, parts, topic_id=self._topic_id)] if parts else []
        forgotten = FetchRequest.ForgottenTopic(
            topic=self._topic, topic_id=self._topic_id, partitions=list(forget)
        )
        request = fetch_request(
            topics,
            session_id=self.id,
            session_epoch=self.epoch,
            forgotten_topics_data=[forgotten] if forget else [],
            **options,
        )
        return self._connection.call(request, self._version)

    def open(self, parts: dict[int, int]) -> dict[int, Any]:
        answer = self.fetch(parts)
        assert answer.error_code == NONE
        assert answer.session_id > 0
        self.id, self.epoch = answer.session_id, 1
        return seen(answer)

    def go_on(self, parts: dict[int, int], forget: tuple[int, ...] = ()) -> dict[int, Any]:
        answer = self.fetch(parts, forget)
        assert (answer.error_code, answer.session_id) == (NONE, self.id)
        self.epoch += 1
        return seen(answer)


def seen(answer: Any) -> dict[int, Any]:
    return {part.partition_index: part for topic in answer.responses for part in topic.partitions}


@pytest.fixture
def connection(bootstrap: str) -> Any:
    with Connection(bootstrap) as connection:
        yield connection


@pytest.mark.parametrize("version", VERSIONS)
def test_only_what_changed_is_answered(
    version: int, connection: Connection, new_topic: NewTopic
) -> None:
    topic = new_topic(partitions=3)
    batch = batches.build([b"x"])
    session = Session(connection, topic, version)
    assert sorted(session.open({0: 0, 1: 0, 2: 0})) == [0, 1, 2]
    assert session.go_on({}) == {}
    assert produce(connection, topic, batch, partition=1).error_code == NONE
    changed = session.go_on({})
    assert sorted(changed) == [1]
    assert len(batches.records_in(changed[1].records)) == 1
    # Not moved on, so it is there again; moved on, there is nothing.
    assert sorted(session.go_on({})) == [1]
    assert session.go_on({1: 1}) == {}


@pytest.mark.parametrize("version", VERSIONS)
def test_forgotten_partitions_are_fetched_no_more(
    version: int, connection: Connection, new_topic: NewTopic
) -> None:
    topic = new_topic(partitions=3)
    batch = batches.build([b"x"])
    session = Session(connection, topic, version)
    session.open({0: 0, 1: 0})
    for partition in range(3):
        assert produce(connection, topic, batch, partition=partition).error_code == NONE
    assert sorted(session.go_on({}, forget=(1,))) == [0]
    assert sorted(session.go_on({2: 0})) == [0, 2]
    assert sorted(session.go_on({1: 0, 0: 1}, forget=(2,))) == [1]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_without_partitions_is_over(
    version: int, connection: Connection, new_topic: NewTopic
) -> None:
    session = Session(connection, new_topic(), version)
    session.open({0: 0})
    answer = session.fetch({}, forget=(0,))
    assert (answer.error_code, answer.session_id, seen(answer)) == (NONE, 0, {})
    session.epoch += 1
    assert session.fetch({0: 0}).error_code == FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("version", VERSIONS)
def test_a_wrong_epoch_and_an_unknown_session_are_refused(
    version: int, connection: Connection, new_topic: NewTopic
) -> None:
    session = Session(connection, new_topic(), version)
    session.open({0: 0})
    session.epoch = 7
    assert session.fetch({}).error_code == INVALID_FETCH_SESSION_EPOCH
    session.epoch = 1
    known, session.id = session.id, session.id ^ 0x5A5A5A
    assert session.fetch({}).error_code == FETCH_SESSION_ID_NOT_FOUND
    # Neither harmed the session that there is.
    session.id = known
    assert session.go_on({}) == {}


def test_a_session_can_be_closed_and_opened_again(
    connection: Connection, new_topic: NewTopic
) -> None:
    topic = new_topic()
    session = Session(connection, topic, 12)
    session.open({0: 0})
    first, session.epoch = session.id, CLOSING
    answer = session.fetch({0: 0})
    assert (answer.error_code, answer.session_id) == (NONE, 0)
    session.epoch = 1
    assert session.fetch({}).error_code == FETCH_SESSION_ID_NOT_FOUND
    session.id, session.epoch = 0, OPENING
    assert sorted(session.open({0: 0})) == [0]
    assert session.id != first


def test_an_error_is_told_until_it_is_over(connection: Connection, new_topic: NewTopic) -> None:
    session = Session(connection, new_topic(), 12)
    assert session.open({0: 5})[0].error_code == 1
    assert session.go_on({})[0].error_code == 1
    assert session.go_on({0: 0})[0].error_code == NONE
    assert session.go_on({}) == {}


def test_a_session_outlives_its_connection(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    with Connection(bootstrap) as connection:
        session = Session(connection, topic, 12)
        session.open({0: 0})
    with Connection(bootstrap) as connection:
        session._connection = connection
        assert session.go_on({}) == {}


@pytest.mark.foreign("java")
def test_the_java_client_gains_and_loses_partitions(
    clients: Callable[[str], Any], new_topic: NewTopic
) -> None:
    answer = clients("java").call(
        "tail",
        topic=new_topic(partitions=6),
        partitions=6,
        rounds=8,
        max_bytes=1 << 20,
        compression="none",
        acks="all",
        idempotent=True,
    )
    assert [one["seen"] for one in answer["rounds"]] == [
        one["assigned"] for one in answer["rounds"]
    ]
