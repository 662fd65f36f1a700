"""The coordinators' topics are theirs: clients may read them, and neither write nor cut them.

Runs unchanged against Apache Kafka with DMQ_TEST_BOOTSTRAP.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from compat import batches, topics
from compat.eventually import eventually
from compat.requests import PRODUCE_BY_ID, produce
from compat.wire import NONE, Connection, only, topic_id
from kafka.protocol.admin import DeleteRecordsRequest
from kafka.protocol.metadata import FindCoordinatorRequest

INVALID_TOPIC_EXCEPTION = 17
GROUP, TRANSACTION = 0, 1
TOPICS = {"__consumer_offsets": GROUP, "__transaction_state": TRANSACTION}


@pytest.fixture(params=TOPICS)
def internal(request: pytest.FixtureRequest, bootstrap: str) -> Iterator[tuple[Connection, str]]:
    """A connection, and a coordinators' topic that is there."""
    topic = request.param
    with Connection(bootstrap) as connection:

        def is_there() -> Any:
            wanted = FindCoordinatorRequest(key_type=TOPICS[topic], coordinator_keys=["someone"])
            connection.call(wanted, 4)
            found = topics.describe(connection, topic)
            return found.error_code == NONE and found.partitions[0].error_code == NONE

        eventually(is_there, f"{topic} is there")
        yield connection, topic


@pytest.mark.parametrize("version", [3, 9, 12, PRODUCE_BY_ID])
def test_clients_do_not_write_there(internal: tuple[Connection, str], version: int) -> None:
    connection, topic = internal
    end = only(topics.list_offsets(connection, topic, [0], topics.LATEST)).offset
    name, identity = topic, None
    if version >= PRODUCE_BY_ID:
        name, identity = "", topic_id(connection, topic)
    batch = batches.build([b"no coordinator wrote this"], key=b"k")
    answer = produce(connection, name, batch, version=version, topic_id=identity)
    assert answer.error_code == INVALID_TOPIC_EXCEPTION
    assert only(topics.list_offsets(connection, topic, [0], topics.LATEST)).offset == end


def test_clients_do_not_delete_there(internal: tuple[Connection, str]) -> None:
    connection, topic = internal
    wanted = DeleteRecordsRequest.DeleteRecordsTopic
    request = DeleteRecordsRequest(
        topics=[
            wanted(
                name=topic,
                partitions=[wanted.DeleteRecordsPartition(partition_index=0, offset=-1)],
            )
        ],
        timeout_ms=10_000,
    )
    answer = only(only(connection.call(request, 2).topics).partitions)
    assert answer.error_code == INVALID_TOPIC_EXCEPTION
