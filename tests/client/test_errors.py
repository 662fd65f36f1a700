"""Errors: whose move it is, and words that say what to do."""

from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException

from dmq.client import (
    AccessError,
    ClientError,
    ConnectionFailedError,
    Consumer,
    ConsumerConfig,
    FencedError,
    GroupError,
    Producer,
    ProducerConfig,
    TimedOutError,
    TransactionAbortedError,
    TransactionError,
    UnknownTopicError,
)
from dmq.client.errors import translate, translate_raised
from dmq.errors import DmqError, ErrorCode


@pytest.mark.parametrize(
    ("code", "kind", "retriable"),
    [
        (KafkaError._ALL_BROKERS_DOWN, ConnectionFailedError, True),
        (KafkaError.REQUEST_TIMED_OUT, TimedOutError, True),
        (KafkaError._MSG_TIMED_OUT, TimedOutError, False),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, UnknownTopicError, False),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, AccessError, False),
        (KafkaError._AUTHENTICATION, AccessError, False),
        (KafkaError.ILLEGAL_GENERATION, GroupError, False),
        (KafkaError._FENCED, FencedError, False),
        (KafkaError._STATE, TransactionError, False),
        (KafkaError.POLICY_VIOLATION, ClientError, False),
    ],
)
def test_codes_become_kinds(code: int, kind: type[ClientError], retriable: bool) -> None:
    error = translate(KafkaError(code, "as it was said."), "send to 'orders'")
    assert type(error) is kind
    assert isinstance(error, DmqError)
    assert error.retriable is retriable
    assert not error.fatal
    assert str(error).startswith(f"send to 'orders': as it was said ({error.name}).")
    assert error.code == (ErrorCode(code) if code >= -1 else ErrorCode.UNKNOWN_SERVER_ERROR)


def test_flags_of_librdkafka_count() -> None:
    abort = KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "gap", txn_requires_abort=True)
    assert type(translate(abort, "commit")) is TransactionAbortedError
    fatal = translate(KafkaError(KafkaError._FATAL, "broken", fatal=True), "send")
    assert fatal.fatal
    assert not fatal.retriable
    assert "make a new one" in str(fatal)
    again = KafkaError(KafkaError.POLICY_VIOLATION, "busy", retriable=True)
    assert translate(again, "send").retriable
    assert str(translate_raised(KafkaException("odd"), "send")) == "send: odd"


def test_a_timeout_is_also_pythons_own() -> None:
    assert issubclass(TimedOutError, TimeoutError)


def test_nobody_there_is_told_soon(closed_port: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dmq.client.sending.START_TIMEOUT_S", 0.5)
    with pytest.raises(ConnectionFailedError, match=f"{closed_port}.*dmq up"):
        Producer(ProducerConfig(closed_port)).__enter__()
    with pytest.raises(ConnectionFailedError, match=closed_port) as caught:
        Consumer(ConsumerConfig(closed_port)).__enter__()
    assert caught.value.retriable


def test_a_record_for_a_broker_that_is_not_there_fails_in_its_time(
    closed_port: str, topic: str
) -> None:
    producer = Producer(ProducerConfig(closed_port, delivery_timeout_ms=100))
    with pytest.raises(TimedOutError, match="delivery_timeout_ms"):
        producer.send(topic, value=b"x").result(30)
    producer.close(10)


def test_a_partition_that_is_not_there(new_producer: Callable[..., Producer], topic: str) -> None:
    producer = new_producer()
    producer.send(topic, value=b"x").result(30)
    with pytest.raises(UnknownTopicError):
        producer.send(topic, value=b"x", partition=7).result(30)


def test_a_name_that_no_topic_can_have(new_producer: Callable[..., Producer]) -> None:
    with pytest.raises(UnknownTopicError, match="No topic can have that name: they are 1 to 249"):
        new_producer().send("a/b", value=b"x").result(30)
