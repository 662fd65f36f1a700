"""The pytest plugin in somebody else's test suite."""

import pytest

pytest_plugins = ["pytester"]

SUITE = """
from confluent_kafka import Consumer, Producer, TopicPartition


def test_round_trip(dmq_broker, dmq_topic):
    producer = Producer({"bootstrap.servers": dmq_broker.bootstrap_servers})
    producer.produce(dmq_topic, b"hello", partition=0)
    assert producer.flush(20) == 0
    consumer = Consumer({"bootstrap.servers": dmq_broker.bootstrap_servers, "group.id": "g"})
    consumer.assign([TopicPartition(dmq_topic, 0, 0)])
    (message,) = consumer.consume(1, timeout=20)
    assert message.value() == b"hello"
    consumer.close()


def test_another_topic_each_time(dmq_topic, request):
    first = request.config.cache.get("topic", None)
    assert first != dmq_topic
    request.config.cache.set("topic", dmq_topic)


def test_settings_of_the_suite(dmq_broker, dmq_topic):
    producer = Producer({"bootstrap.servers": dmq_broker.bootstrap_servers})
    assert len(producer.list_topics(dmq_topic, 10).topics) == 1
"""

CONFTEST = """
import pytest


@pytest.fixture(scope="session")
def dmq_settings():
    return {"num.partitions": 2}
"""


def test_the_fixtures_work_in_a_suite_of_their_own(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(SUITE)
    outcome = pytester.runpytest_subprocess("-q", "-p", "no:randomly")
    outcome.assert_outcomes(passed=3)


def test_the_plugin_is_light_when_nobody_asks(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_nothing_is_imported():
            heavy = {"uvloop", "dmq.broker", "dmq.storage", "confluent_kafka"} & set(sys.modules)
            assert heavy == set()
        """
    )
    pytester.runpytest_subprocess("-q").assert_outcomes(passed=1)
