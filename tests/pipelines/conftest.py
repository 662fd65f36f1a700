"""The session of Spark that all tests share, and one cluster for the pipelines."""

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from spark.conftest import kafka_connector, spark
from spark.feeding import create

from demo.generator import TOPICS, Shop
from dmq.testing import Cluster

__all__ = ["kafka_connector", "spark"]

ORDERS = 600


@pytest.fixture(scope="package")
def cluster() -> Iterator[Cluster]:
    """Three brokers, with the events of the demo's shop."""
    with Cluster(3, network="direct") as running:
        for topic in TOPICS:
            create(running.bootstrap, topic, 3)
        yield running


@pytest.fixture(scope="package")
def shop(cluster: Cluster) -> Shop:
    """What was sent."""
    shop = Shop(ORDERS, round(time.time() * 1000), broken_share=1 / 20)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 5})
    for event in shop.events():
        producer.produce(event.topic, event.value, event.key, timestamp=event.timestamp_ms)
        producer.poll(0)
    producer.flush()
    return shop
