"""`dmq topic`: what it says of what a cluster would not do, or would do without a word."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from dmq.cli.app import run
from dmq.cli.exits import Exit
from dmq.cli.session import Session


def done(value: Any) -> "Future[Any]":
    future: Future[Any] = Future()
    if isinstance(value, Exception):
        future.set_exception(value)
    else:
        future.set_result(value)
    return future


class FakeAdmin:
    """A cluster with the topic `orders`: one partition, three replicas, one setting."""

    def __init__(self) -> None:
        self.altered = 0

    def describe_topics(self, topics: Any, **rest: Any) -> Any:
        told = SimpleNamespace(name="orders", partitions=[SimpleNamespace(replicas=[1, 2, 3])])
        return {"orders": done(told)}

    def describe_configs(self, resources: list[Any], **rest: Any) -> Any:
        entry = SimpleNamespace(name="retention.ms", value="1", is_sensitive=False, source=5)
        return {resource: done({entry.name: entry}) for resource in resources}

    def incremental_alter_configs(self, resources: list[Any], **rest: Any) -> Any:
        self.altered += 1
        return {resource: done(None) for resource in resources}

    def create_topics(self, topics: list[Any], **rest: Any) -> Any:
        error = KafkaError(KafkaError.TOPIC_ALREADY_EXISTS, "Topic 'orders' already exists.")
        return {topic.topic: done(KafkaException(error)) for topic in topics}


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> FakeAdmin:
    admin = FakeAdmin()
    monkeypatch.setattr(Session, "admin", lambda session: admin)
    return admin


def test_a_setting_that_there_is_not_can_not_be_deleted(
    admin: FakeAdmin, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["topic", "alter", "orders", "-d", "nosuch"]) == Exit.FAILURE
    assert "there is no topic setting 'nosuch'" in capsys.readouterr().err
    assert admin.altered == 0
    assert run(["topic", "alter", "orders", "-d", "retention.ms"]) == Exit.OK
    assert admin.altered == 1


def test_more_copies_in_sync_than_there_are_replicas_are_warned_of(
    admin: FakeAdmin, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["topic", "alter", "orders", "-c", "min.insync.replicas=4"]) == Exit.OK
    assert "is more than the 3 replicas" in capsys.readouterr().err
    assert run(["topic", "alter", "orders", "-c", "min.insync.replicas=3"]) == Exit.OK
    assert "warning" not in capsys.readouterr().err
    run(["topic", "create", "orders", "-r", "1", "-c", "min.insync.replicas=2"])
    assert "is more than the 1 replica of a partition" in capsys.readouterr().err


def test_a_topic_is_named_once(admin: FakeAdmin, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topic", "create", "orders"]) == Exit.FAILURE
    assert capsys.readouterr().err.startswith("error: Topic 'orders' already exists. Add ")
