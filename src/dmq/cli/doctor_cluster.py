"""What `dmq doctor` checks on a cluster: it answers, it speaks, a record makes the round trip.

Owns the test topic and deletes it whatever happens. Each check returns a `Finding`.
"""

import time
import uuid
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from dmq.cli.doctor import Check, Finding
from dmq.cli.exits import CommandError
from dmq.cli.kafka_errors import error_of, sentence
from dmq.cli.raw import api_versions
from dmq.cli.session import Session, addresses
from dmq.errors import ProtocolError
from dmq.wire.registry import APIS

ANSWER_TIMEOUT_S = 10.0
ROUND_TRIP_TIMEOUT_S = 15.0
NEEDED_APIS = (0, 1, 2, 3, 10, 18, 19, 20, 22, 32)
"""What any client needs for a first record: Produce, Fetch, offsets, metadata, topics, configs."""

_VALUE = b"dmq doctor was here"


def broker(session: Session, *, is_asked_for: bool) -> Finding:
    """Somebody answers a Metadata request. Silence at the default address is only a warning."""
    verdict = "fail" if is_asked_for else "warn"
    try:
        started = time.perf_counter()
        metadata = session.admin().list_topics(timeout=ANSWER_TIMEOUT_S)
        took_ms = (time.perf_counter() - started) * 1000
    except CommandError as error:
        return Finding("broker", verdict, error.message, error.hint)
    except KafkaException as error:
        why = session.last_words() or sentence(error_of(error))
        advice = "Check the address, and TLS and SASL in --client-config."
        return Finding("broker", verdict, f"{session.bootstrap} does not answer: {why}", advice)
    brokers = ", ".join(f"{b.id} at {b.host}:{b.port}" for b in metadata.brokers.values())
    detail = f"cluster {metadata.cluster_id}: {brokers}; {len(metadata.topics)} topics"
    return Finding("broker", "ok", f"{detail}; first answer in {took_ms:.0f} ms")


def checks_of(session: Session) -> list[Check]:
    """The checks of a cluster that answers."""
    return [partial(versions, session), partial(round_trip, session)]


def versions(session: Session) -> Finding:
    """The broker speaks what clients need."""
    if not session.is_plain:
        detail = "not asked: the connection has TLS or a login"
        return Finding("API versions", "ok", detail)
    host, port = addresses(session.bootstrap)[0]
    try:
        spoken = api_versions(host, port)
    except (OSError, ProtocolError) as error:
        advice = f"Is {host}:{port} a Kafka broker, and not another server?"
        return Finding("API versions", "fail", f"no answer that makes sense: {error}", advice)
    missing = [APIS[key].name for key in NEEDED_APIS if key not in spoken]
    if missing:
        advice = "Use a broker that is newer, or not made for another purpose."
        return Finding("API versions", "fail", f"lacks {', '.join(missing)}", advice)
    newest = f"Produce to {spoken[0][1]}, Fetch to {spoken[1][1]}, Metadata to {spoken[3][1]}"
    return Finding("API versions", "ok", f"{len(spoken)} APIs ({newest})")


def round_trip(session: Session) -> Finding:
    """A record goes in and comes out, on a topic of our own."""
    topic = f"dmq-doctor-{uuid.uuid4().hex[:12]}"
    admin = session.admin()
    try:
        _create(admin, topic)
        sent_ms = _produce(session, topic)
        read_ms = _consume(session, topic)
    except KafkaException as error:
        advice = "Look at the broker's log; `dmq topic list` and `dmq produce` may say more."
        return Finding("round trip", "fail", sentence(error_of(error)), advice)
    finally:
        left_over = _delete(admin, topic)
    detail = f"acknowledged in {sent_ms:.0f} ms, read back in {read_ms:.0f} ms"
    if left_over:
        advice = f"Delete it by hand: `dmq topic delete {topic} --yes`."
        return Finding("round trip", "warn", f"{detail}; {topic} stayed: {left_over}", advice)
    return Finding("round trip", "ok", detail)


def _create(admin: AdminClient, topic: str) -> None:
    new = NewTopic(topic, num_partitions=1, replication_factor=-1)
    admin.create_topics([new], operation_timeout=ANSWER_TIMEOUT_S)[topic].result(ANSWER_TIMEOUT_S)


def _delete(admin: AdminClient, topic: str) -> str:
    """Delete the topic; returns why not, or nothing."""
    try:
        admin.delete_topics([topic], operation_timeout=ANSWER_TIMEOUT_S)[topic].result()
    except KafkaException as error:
        inner = error_of(error)
        return "" if inner.code() == KafkaError.UNKNOWN_TOPIC_OR_PART else sentence(inner)
    return ""


def _produce(session: Session, topic: str) -> float:
    errors: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Any) -> None:
        if error is not None:
            errors.append(error)

    producer = session.producer({"message.timeout.ms": round(ROUND_TRIP_TIMEOUT_S * 1000)})
    started = time.perf_counter()
    producer.produce(topic, _VALUE, b"doctor", on_delivery=delivered)
    producer.flush(ROUND_TRIP_TIMEOUT_S + 1)
    if errors:
        raise KafkaException(errors[0])
    return (time.perf_counter() - started) * 1000


def _consume(session: Session, topic: str) -> float:
    settings = {"group.id": topic, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    with session.consumer(settings) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        started = time.perf_counter()
        if _first_value(consumer) != _VALUE:
            raise KafkaException(KafkaError(KafkaError._BAD_MSG, "another record came back"))
        return (time.perf_counter() - started) * 1000


def _first_value(consumer: Consumer) -> bytes | None:
    deadline = time.monotonic() + ROUND_TRIP_TIMEOUT_S
    while time.monotonic() < deadline:
        message = consumer.poll(0.1)
        if message is None:
            continue
        if error := message.error():
            raise KafkaException(error)
        return message.value()
    raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the record did not come back in time"))
