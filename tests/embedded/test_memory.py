"""Memory stays flat under load: what a request brought is gone with its answer."""

import psutil
from confluent_kafka import Producer

from dmq.testing import Broker

MB = 1_000_000


def produce(producer: Producer, topic: str, total: int) -> None:
    value = bytes(10_000)
    for _ in range(total // len(value)):
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(60) == 0


def test_produced_bytes_do_not_stay() -> None:
    settings = {"num.partitions": 4, "durability": "sync"}
    with Broker(settings, in_process=False) as broker:
        process = psutil.Process(broker.pid)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "batch.size": MB})
        produce(producer, "t", 50 * MB)
        before = process.memory_info().rss
        produce(producer, "t", 300 * MB)
        grown = process.memory_info().rss - before
    assert grown < 60 * MB, f"300 MB were produced and {grown / MB:.0f} MB of them are still here"
