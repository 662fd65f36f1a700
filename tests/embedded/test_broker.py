"""`dmq.testing.Broker` as other people use it: in a thread, in a child, async, killed, misconfigured."""

import asyncio
import os
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from dmq.testing import Broker, BrokerFailedError

PATIENCE_S = 20


def produce(servers: str, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": servers, "log_level": 0})
    failures: list[object] = []
    for value in values:
        producer.produce(
            topic, value, on_delivery=lambda error, _: failures.append(error) if error else None
        )
    assert producer.flush(PATIENCE_S) == 0
    assert failures == []


def consume(servers: str, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "g", "log_level": 0})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        messages = consumer.consume(count, timeout=PATIENCE_S)
        return [message.value() for message in messages]
    finally:
        consumer.close()


def test_a_broker_in_a_thread() -> None:
    with Broker() as broker:
        produce(broker.bootstrap_servers, "t", b"one", b"two")
        assert consume(broker.bootstrap_servers, "t", 2) == [b"one", b"two"]
        data_dir = broker.data_dir
        assert data_dir is not None
        assert data_dir.exists()
    assert not data_dir.exists(), "a temporary directory does not stay"


def test_an_async_test_does_not_block_its_loop() -> None:
    async def use() -> list[bytes]:
        async with Broker() as broker:
            await asyncio.to_thread(produce, broker.bootstrap_servers, "t", b"x")
            return await asyncio.to_thread(consume, broker.bootstrap_servers, "t", 1)

    assert asyncio.run(use()) == [b"x"]


def test_a_given_directory_stays_and_keeps_its_records(tmp_path: Path) -> None:
    for round_number in range(3):
        with Broker(data_dir=tmp_path / "data") as broker:
            produce(broker.bootstrap_servers, "t", b"%d" % round_number)
            values = consume(broker.bootstrap_servers, "t", round_number + 1)
            assert values == [b"%d" % n for n in range(round_number + 1)]


def test_a_child_can_be_killed_and_started_again(tmp_path: Path) -> None:
    broker = Broker(data_dir=tmp_path / "data", in_process=False).start()
    try:
        assert broker.pid != os.getpid()
        produce(broker.bootstrap_servers, "t", b"kept")
        broker.kill()
        broker.start()
        assert consume(broker.bootstrap_servers, "t", 1) == [b"kept"]
    finally:
        broker.stop()


def test_several_brokers_at_once() -> None:
    with Broker() as one, Broker() as two:
        assert one.bootstrap_servers != two.bootstrap_servers
        produce(one.bootstrap_servers, "t", b"1")
        produce(two.bootstrap_servers, "t", b"2")
        assert consume(one.bootstrap_servers, "t", 1) == [b"1"]
        assert consume(two.bootstrap_servers, "t", 1) == [b"2"]


def test_settings_reach_the_broker() -> None:
    with Broker({"num.partitions": 4}) as broker:
        produce(broker.bootstrap_servers, "t", b"x")
        metadata = Producer({"bootstrap.servers": broker.bootstrap_servers}).list_topics("t", 5)
        assert len(metadata.topics["t"].partitions) == 4


@pytest.mark.parametrize("in_process", [True, False])
def test_a_directory_in_use_is_refused(tmp_path: Path, in_process: bool) -> None:
    second = Broker(data_dir=tmp_path / "data", in_process=in_process)
    with (
        Broker(data_dir=tmp_path / "data", in_process=False),
        pytest.raises(BrokerFailedError) as caught,
    ):
        second.start()
    assert "in use" in str(caught.value)


def test_a_port_in_use_is_refused() -> None:
    with Broker() as broker:
        port = int(broker.bootstrap_servers.rpartition(":")[2])
        with pytest.raises(BrokerFailedError, match=r"[Aa]ddress already in use"):
            Broker({"port": port}).start()


def test_a_directory_is_free_again_after_a_start_that_failed(tmp_path: Path) -> None:
    with Broker() as broker:
        port = int(broker.bootstrap_servers.rpartition(":")[2])
        with pytest.raises(BrokerFailedError):
            Broker({"port": port}, data_dir=tmp_path / "data").start()
        with Broker(data_dir=tmp_path / "data"):
            pass


@pytest.mark.parametrize("in_process", [True, False])
def test_settings_that_do_not_hold_are_told_alike(in_process: bool) -> None:
    broker = Broker({"nonsense": 1, "num.partitions": "many"}, in_process=in_process)
    with pytest.raises(BrokerFailedError) as caught:
        broker.start()
    assert "nonsense" in str(caught.value)
    assert "num.partitions" in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_a_child_says_in_words_why_it_could_not_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    with pytest.raises(BrokerFailedError, match="File exists") as caught:
        Broker(data_dir=tmp_path / "file", in_process=False).start()
    assert "dmq.testing.child" not in str(caught.value)
