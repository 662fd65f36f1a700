"""One broker process for all tests of the client, fresh topics, and clients that are closed after."""

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from fakes import ports

from dmq.client import Consumer, ConsumerConfig, Producer, ProducerConfig
from dmq.testing import Broker

NewTopicFixture = Callable[..., str]


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    settings = {
        "group.initial.rebalance.delay.ms": 0,
        "group.consumer.min.heartbeat.interval.ms": 200,
        "group.consumer.heartbeat.interval.ms": 200,
    }
    with Broker(settings, in_process=False) as broker:
        yield broker


@pytest.fixture
def servers(broker: Broker) -> str:
    return broker.bootstrap_servers


@pytest.fixture
def closed_port() -> Iterator[str]:
    """An address where nobody listens."""
    with ports.closed_port() as port:
        yield f"127.0.0.1:{port}"


@pytest.fixture
def topic() -> str:
    """A name that nobody has used; the first record creates the topic."""
    return f"client-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:12]}"


@pytest.fixture(scope="session")
def admin(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers})


@pytest.fixture
def new_topic(admin: AdminClient, topic: str) -> NewTopicFixture:
    """Create a topic before anybody uses it, with as many partitions as wanted."""

    def create(partitions: int = 1, suffix: str = "", **config: str) -> str:
        name = topic + suffix
        wanted = NewTopic(
            name, partitions, config={k.replace("_", "."): v for k, v in config.items()}
        )
        admin.create_topics([wanted])[name].result(timeout=30)
        return name

    return create


@pytest.fixture
def new_producer(servers: str) -> Iterator[Callable[..., Producer]]:
    made: list[Producer] = []

    def create(**settings: Any) -> Producer:
        made.append(Producer(ProducerConfig(**{"bootstrap_servers": servers} | settings)))
        return made[-1]

    yield create
    for producer in made:
        producer.close(30)


@pytest.fixture
def new_consumer(servers: str, group: str) -> Iterator[Callable[..., Consumer]]:
    """A consumer that reads from the beginning, and commits nothing by itself unless told to."""
    made: list[Consumer] = []
    defaults: dict[str, Any] = {
        "bootstrap_servers": servers,
        "group_id": group,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
    }

    def create(**settings: Any) -> Consumer:
        made.append(Consumer(ConsumerConfig(**defaults | settings)))
        return made[-1]

    yield create
    for consumer in made:
        consumer.close()
