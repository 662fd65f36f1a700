"""A cluster with 10,000 topics: every client lists them all."""

from collections.abc import Iterator

import pytest
from compat import topics
from compat.clients.client import Client
from compat.conftest import unique
from compat.eventually import eventually
from compat.matrix import PRODUCERS, every
from compat.wire import NONE, Connection
from kafka.protocol.admin import CreateTopicsRequest, DeleteTopicsRequest
from kafka.protocol.metadata import MetadataRequest

MANY = 10_000
AT_ONCE = 1000
# Apache Kafka takes minutes to get used to so many topics, and again to forget them.
PATIENCE_S = 400
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def many_topics(bootstrap: str) -> Iterator[set[str]]:
    """10,000 topics, which are gone again afterwards."""
    prefix = unique("many")
    names = [f"{prefix}-{index}" for index in range(MANY)]
    with Connection(bootstrap, timeout_s=60) as connection:
        for start in range(0, MANY, AT_ONCE):
            wanted = [topics.creatable(name) for name in names[start : start + AT_ONCE]]
            request = CreateTopicsRequest(topics=wanted, timeout_ms=60_000, validate_only=False)
            answers = connection.call(request, 5).topics
            assert {answer.error_code for answer in answers} == {NONE}
        eventually(lambda: listed(connection, prefix) == MANY, "all are listed", PATIENCE_S)
        yield set(names)
        for start in range(0, MANY, AT_ONCE):
            doomed = names[start : start + AT_ONCE]
            request = DeleteTopicsRequest(topic_names=doomed, timeout_ms=60_000)
            answers = connection.call(request, 5).responses
            assert {answer.error_code for answer in answers} == {NONE}
        eventually(lambda: listed(connection, prefix) == 0, "all are gone", PATIENCE_S)


def listed(connection: Connection, prefix: str) -> int:
    found = connection.call(MetadataRequest(topics=None), 9).topics
    return sum(topic.name.startswith(prefix) for topic in found)


@every(PRODUCERS)
def test_ten_thousand_topics_are_listed(client: Client, many_topics: set[str]) -> None:
    assert many_topics <= client.topics()
