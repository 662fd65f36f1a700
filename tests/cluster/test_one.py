"""`Cluster` with a single broker: its lives, and what is left behind."""

import asyncio
import os
import shutil
import signal
from pathlib import Path

import pytest
from compat.eventually import eventually
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from dmq.testing import BrokerFailedError, Cluster, NoSuchBrokerError

QUIET = {"log_level": 0, "error_cb": lambda error: None}


def create(cluster: Cluster, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
    admin.create_topics([NewTopic(topic, 1)])[topic].result(20)


def send(cluster: Cluster, topic: str) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, **QUIET})
    producer.produce(topic, b"hello", partition=0)
    assert producer.flush(20) == 0


def test_the_lives_of_a_broker() -> None:
    with Cluster(1) as cluster:
        create(cluster, "t")
        assert cluster.leader("t") == 1
        send(cluster, "t")
        cluster.kill(1)
        assert cluster.running == []
        cluster.kill(1)  # It is down: neither changes anything.
        cluster.pause(1)
        assert not cluster.member(1).is_paused
        cluster.restart(1)
        send(cluster, "t")
        cluster.stop(1)
        cluster.restart(1)
        cluster.pause(1)
        assert cluster.running == []
        assert cluster.views() == {}
        cluster.resume(1)
        cluster.wait_ready(in_sync=True)
        send(cluster, "t")
        folder = cluster.folder
    assert not folder.exists()


def test_brokers_that_are_not_there_and_cuts_that_make_no_sense_are_refused() -> None:
    cluster = Cluster(3)
    with pytest.raises(NoSuchBrokerError, match="has no broker 1; it has none: it is not running"):
        cluster.kill(1)
    with Cluster(1) as cluster:
        for use in (
            cluster.kill,
            cluster.pause,
            cluster.resume,
            cluster.restart,
            cluster.replace,
            cluster.remove,
            cluster.isolate,
            cluster.heal,
            cluster.stop,
        ):
            with pytest.raises(NoSuchBrokerError, match="has no broker 7; it has 1"):
                use(7)
        with pytest.raises(NoSuchBrokerError, match="has no broker 2"):
            cluster.partition([1], [2])
        with pytest.raises(ValueError, match="broker 1 is on 2 sides"):
            cluster.partition([1, 1], [1, 2])
        with pytest.raises(ValueError, match="cut from itself"):
            cluster.cut(1, 1)


def test_a_wiped_broker_has_nothing() -> None:
    with Cluster(1) as cluster:
        create(cluster, "t")
        cluster.kill(1)
        cluster.restart(1, wiped=True)
        cluster.wait_ready()
        seen = eventually(lambda: cluster.views().get(1), "it answers")
        assert seen.partitions == ()


def test_logs_are_kept_when_a_test_fails() -> None:
    cluster = Cluster(1)
    with pytest.raises(ZeroDivisionError) as caught, cluster:
        raise ZeroDivisionError
    assert str(cluster.folder) in caught.value.__notes__[0]
    assert (cluster.folder / "broker-1.log").exists()
    shutil.rmtree(cluster.folder)


def test_a_broker_that_can_not_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(BrokerFailedError, match=r"no\.such\.setting"):
        Cluster(1, {"no.such.setting": 1}, data_dir=tmp_path).start()


def test_async_with() -> None:
    async def main() -> None:
        async with Cluster(1, network="direct") as cluster:
            await asyncio.to_thread(create, cluster, "t")
            assert await asyncio.to_thread(cluster.leader, "t") == 1

    asyncio.run(main())


def test_a_broker_that_ends_by_itself_is_told() -> None:
    with Cluster(1) as cluster:
        os.kill(cluster.member(1).pid, signal.SIGABRT)
        eventually(lambda: not cluster.member(1).is_running, "it is dead")
        with pytest.raises(BrokerFailedError, match="ended by itself"):
            cluster.wait_ready()
